"""Any sequence of operations leaves a store as it leaves a dictionary."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamsrt.state.store import BytesStore
from tests.streamsrt.state.conftest import make_memory_store, make_rocksdb_store_with_small_buffers

keys = st.binary(max_size=3) | st.sampled_from([b"", b"\0", b"d", b"m:changelog-offset", b"\xff\xff"])
values = st.binary(max_size=4) | st.just(b"v" * 5000)
puts = st.lists(st.tuples(keys, values | st.none()), max_size=20)
bounds = keys | st.none()


def sorted_rows(model: dict[bytes, bytes], start: bytes | None, end: bytes | None) -> list[tuple[bytes, bytes]]:
    return sorted((k, v) for k, v in model.items() if (start is None or start <= k) and (end is None or k < end))


class StoreMachine(RuleBasedStateMachine):
    @staticmethod
    def open_store(path: Path) -> BytesStore:
        return make_memory_store(path)

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="store-model-"))
        self.store = self.open_store(self.directory / "store")
        self.model: dict[bytes, bytes] = {}
        self.offset: int | None = None
        self.scan: tuple[Any, list[tuple[bytes, bytes]]] | None = None

    def teardown(self) -> None:
        self.scan = None
        self.store.close()
        shutil.rmtree(self.directory)

    def _apply(self, batch: list[tuple[bytes, bytes | None]]) -> None:
        for key, value in batch:
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    @rule(batch=puts, offset=st.integers(0, 2**63 - 1) | st.none())
    def write(self, batch: list[tuple[bytes, bytes | None]], offset: int | None) -> None:
        self.store.write(iter(batch), changelog_offset=offset)
        self._apply(batch)
        self.offset = self.offset if offset is None else offset

    @rule(batch=puts, offset=st.integers(0, 2**63 - 1))
    def restore(self, batch: list[tuple[bytes, bytes | None]], offset: int) -> None:
        self.store.restore([key for key, _ in batch], [value for _, value in batch], offset)
        self._apply(batch)
        self.offset = offset

    @rule(start=bounds, end=bounds)
    def delete_range(self, start: bytes | None, end: bytes | None) -> None:
        self.store.delete_range(start, end)
        for key, _ in sorted_rows(self.model, start, end):
            del self.model[key]

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.model.get(key)

    @rule(start=bounds, end=bounds, reverse=st.booleans())
    def range(self, start: bytes | None, end: bytes | None, reverse: bool) -> None:
        expected = sorted_rows(self.model, start, end)
        assert list(self.store.range(start, end, reverse=reverse)) == (expected[::-1] if reverse else expected)

    @rule()
    def begin_scan(self) -> None:
        self.scan = (self.store.range(), sorted_rows(self.model, None, None))

    @precondition(lambda self: self.scan is not None)
    @rule()
    def end_scan(self) -> None:
        assert self.scan is not None
        rows, expected = self.scan
        self.scan = None
        assert list(rows) == expected

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @invariant()
    def offset_is_the_last_one_written(self) -> None:
        assert self.store.changelog_offset() == self.offset


class PersistentStoreMachine(StoreMachine):
    @staticmethod
    def open_store(path: Path) -> BytesStore:
        return make_rocksdb_store_with_small_buffers(path)

    @rule()
    def reopen(self) -> None:
        self.scan = None
        self.store.close()
        self.store = self.open_store(self.directory / "store")


_settings = settings(
    max_examples=30, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestMemoryStore = StoreMachine.TestCase
TestMemoryStore.settings = _settings
TestRocksDBStore = PersistentStoreMachine.TestCase
TestRocksDBStore.settings = _settings
