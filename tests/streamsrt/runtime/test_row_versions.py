"""Rows of two versions through members: restored, kept by a standby that takes over, read from files as exports do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamsrt.backfill.state_reading import StateFiles, StoreReading
from streamsrt.membership.values import Tasks
from streamsrt.state.rocksdb_files import RocksDBFiles
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.store_kinds import KINDS, LATER, ROWS, Row, pipe
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import APPLICATION_ID, Rig
from topology import serdes
from topology.graph.store_kinds import StoreKind
from topology.graph.topology import Topology
from topology.spec.row_versions import latest_version_in, version_of

pytestmark = pytest.mark.matrix

Value = dict[str, int]


def to_second(value: Value) -> Value:
    return {**value, "second": 1}


def first(kind: StoreKind) -> Topology:
    return KINDS[kind].build("rows", {})


def second(kind: StoreKind) -> Topology:
    return KINDS[kind].build("rows", {"version": 2, "upcast": {1: to_second}})


key_value, window = second(StoreKind.KEY_VALUE), second(StoreKind.WINDOW)
"""By these names an export finds them."""


class Members:
    """Members over one log, each in a folder of its own."""

    def __init__(self, folder: Path, kind: StoreKind) -> None:
        self.kind, self.folder = kind, folder
        stores = [spec for each in first(kind).subtopologies for spec in each.stores]
        logs = [f"{APPLICATION_ID}-{spec.changelog_name}" for spec in stores]
        self.network = InProcessNetwork(dict.fromkeys(("in", "other", "out", *logs), 1))
        self._changelog = f"{APPLICATION_ID}-{KINDS[kind].spec(first(kind), 'rows').changelog_name}"
        self._rigs: list[Rig] = []

    def start(self, folder: str, topology: Topology) -> Rig:
        self._rigs.append(Rig(self.folder / folder, topology, self.network))
        return self._rigs[-1]

    def ran(self, folder: str, topology: Topology, rows: list[Row]) -> Rig:
        """One that has had the task, and has worked these rows off."""
        rig = self.start(folder, topology)
        rig.start(Tasks(active=rig.tasks(0)))
        self.run(rig, rows)
        return rig

    def run(self, rig: Rig, rows: list[Row]) -> None:
        for topic, key, value, timestamp in _read(self.kind, rows):
            data = None if value is None else serdes.json.serialize(value)
            self.network.write((topic, 0), [(key.encode(), data)], timestamp)
            rig.move()
            rig.commit()

    def logged(self) -> list[tuple[bytes | None, bytes | None]]:
        return self.network.read(self._changelog)

    def close(self) -> None:
        for rig in self._rigs:
            rig.close()


def _read(kind: StoreKind, rows: list[Row]) -> list[Row]:
    return [row for row in rows if row[0] == "in" or KINDS[kind].reads_other]


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Callable[[StoreKind], Members]]:
    made: list[Members] = []

    def make(kind: StoreKind) -> Members:
        made.append(Members(tmp_path, kind))
        return made[-1]

    yield make
    for each in made:
        each.close()


def by_driver(kind: StoreKind, *parts: tuple[Topology, list[Row]]) -> list[tuple[bytes | None, bytes | None]]:
    """What the store logs where one member runs all of it."""
    log = KINDS[kind].spec(first(kind), "rows").changelog_name
    with TopologyTestDriver(parts[0][0]) as driver:
        for number, (topology, rows) in enumerate(parts):
            if number:
                driver.restart(topology=topology)
            for row in rows:
                pipe(driver, [row], reads_other=KINDS[kind].reads_other)
                driver.commit()
        return [(each.key, each.value) for each in driver.producer_history if each.topic.endswith(f"-{log}")]


@pytest.mark.parametrize("kind", StoreKind)
@pytest.mark.parametrize("has_files", [True, False])
def test_a_standby_takes_over_rows_of_both_versions(
    members: Callable[[StoreKind], Members], kind: StoreKind, has_files: bool
) -> None:
    """``has_files``: the standby begins on those of the first version."""
    group = members(kind)
    group.ran("one", first(kind), ROWS).close()
    assert group.logged()
    two = group.start("two", second(kind))
    two.start(Tasks(active=two.tasks(0)))
    three = group.start("one" if has_files else "three", second(kind))
    three.start(Tasks(standby=three.tasks(0)))
    group.run(two, LATER[:2])
    three.move()
    two.close()
    three.start(Tasks(active=three.tasks(0)))
    group.run(three, LATER[2:])
    logged = group.logged()
    assert {latest_version_in(value) for _, value in logged if value is not None} == {1, 2}
    assert logged == by_driver(kind, (first(kind), ROWS), (second(kind), LATER))


@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.WINDOW])
def test_files_with_rows_of_both_versions_are_exported(
    members: Callable[[StoreKind], Members], tmp_path: Path, kind: StoreKind
) -> None:
    group = members(kind)
    group.ran("one", first(kind), [("in", "ann", {"pens": 1}, 1_000), ("in", "bob", {"books": 2}, 2_000)]).close()
    group.ran("one", second(kind), [("in", "cid", {"cups": 3}, 3_000)]).close()
    versions = {key[:3]: version_of(value) for key, value in group.logged() if key is not None and value is not None}
    assert sorted(versions.items()) == [(b"ann", 1), (b"bob", 1), (b"cid", 2)], "nothing was rewritten"
    application = f"{__name__}:{kind.name.lower()}"
    files = StateFiles(StoreReading(application, APPLICATION_ID, "rows"), tmp_path / "one")
    with files.snapshot(0) as snapshot:
        exported = {row.key: json.loads(row.value or "") for row in snapshot.rows}
    assert exported == {"ann": {"pens": 1, "second": 1}, "bob": {"books": 2, "second": 1}, "cid": {"cups": 3}}


@pytest.mark.parametrize("kind", StoreKind)
def test_files_tell_the_latest_version_of_their_values(
    members: Callable[[StoreKind], Members], tmp_path: Path, kind: StoreKind
) -> None:
    """A former version looks for it in each row of the files that it follows on."""
    group = members(kind)
    group.ran("one", first(kind), ROWS).close()
    assert _versions_on_disk(tmp_path / "one") <= {1}
    group.ran("one", second(kind), LATER).close()
    logged = {latest_version_in(value) for _, value in group.logged() if value is not None}
    assert 2 in logged
    assert 2 in _versions_on_disk(tmp_path / "one") or not KINDS[kind].spec(first(kind), "rows").persistent


def _versions_on_disk(folder: Path) -> set[int]:
    found: set[int] = set()
    for path in folder.glob("**/stores/*/*/"):
        with RocksDBFiles(path, path.name) as files:
            found.update(latest_version_in(value) for _, value in files.range())
    return found
