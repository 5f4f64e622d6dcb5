"""A context for testing a processor by itself (Kafka Streams' ``MockProcessorContext``).

    context = MockProcessorContext()
    counts = context.add_state_store(Store("counts", key=serdes.string, value=serdes.long))
    processor.init(context)
    processor.process(Record("k", "v", 5))
    assert context.forwarded() == [CapturedForward(Record("k", 1, 5))]

Nothing happens by itself: forwarded records are kept, the test runs punctuations, and time does not advance. With
``fixed_key=True`` it is the context of ``process_values`` and refuses records with another key; it learns the key from
``context.process(processor, record)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from streamsrt.config import StreamsConfig, below
from streamsrt.errors import ConfigError, UserError
from streamsrt.operators.engine.forwarded_records import check_forwarded
from streamsrt.operators.engine.user_metrics import UserMetrics
from streamsrt.state.cache import RowFormat
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import cache_over, lay_out, make_store, store_access
from streamsrt.state.passing_directory import PassingDirectory
from topology.build.materialize import added_store
from topology.spec.codecs import ProgramSerde
from topology.spec.errors import UnknownStoreError
from topology.spec.functions import check_schedule
from topology.spec.processor import PunctuationType, Record, RecordMetadata
from topology.spec.stores import Store
from topology.spec.windows import Duration, Time, to_epoch_ms


class CapturedForward(NamedTuple):
    """A forwarded record; ``child`` None: to every child."""

    record: Record[Any, Any]
    child: str | None = None


class _Processor(Protocol):
    def process(self, record: Record[Any, Any]) -> None: ...


@dataclass(slots=True, eq=False)
class CapturedPunctuator:
    """A scheduled punctuation. ``callback(timestamp)`` runs it."""

    interval_ms: int
    type: PunctuationType
    callback: Callable[[int], None]
    cancelled: bool = field(default=False)
    start_time_ms: int | None = None
    """When it should first run; None if the processor did not say."""

    def cancel(self) -> None:
        self.cancelled = True


def _given(serde: ProgramSerde | None, setting: str) -> ProgramSerde:
    if serde is None:
        raise ConfigError(f"{setting} is not set: MockProcessorContext(config={{{setting!r}: ...}})")
    return serde


class MockProcessorContext:
    """A :class:`topology.spec.processor.ProcessorContext` that records what a processor does. Times are epoch milliseconds.

    ``fixed_key``: as for a processor of ``process_values``. ``config``: settings of the application. ``state_dir``: the
    task's directory; None: a temporary one. Metrics return what was counted: ``context.metrics.counter("seen").total``.
    Source: MockProcessorContext and MockFixedKeyProcessorContext.
    """

    def __init__(
        self,
        *,
        application_id: str = "mock",
        task_id: str = "0_0",
        fixed_key: bool = False,
        config: Mapping[str, Any] | StreamsConfig | None = None,
        state_dir: Path | None = None,
    ) -> None:
        self.config = StreamsConfig.of({"application.id": application_id}, config)
        self.application_id = self.config.application_id
        self._state_dir = state_dir
        self._passing_directory = PassingDirectory()
        self.metrics = UserMetrics(self.current_system_time_ms).of_node("mock")
        self.task_id = task_id
        self._fixed_key = fixed_key
        self._current: Record[Any, Any] | None = None
        self._punctuates = False
        self.record_metadata: RecordMetadata | None = None
        self.record_timestamp = 0
        """What rows get that the processor puts without a timestamp."""
        self.is_committed = False
        """Whether the processor asked for a commit since the last :meth:`reset_commit`."""
        self._forwarded: list[CapturedForward] = []
        self._punctuators: list[CapturedPunctuator] = []
        self._stores: dict[str, Any] = {}
        self._stream_time_ms = -1
        self._system_time_ms = 0
        self._sequence = 0

    # ------------------------------------------------------------------------------------------------ for processors

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        if self._fixed_key and not self._punctuates:
            if self._current is None:
                raise UserError(
                    "hand records over with context.process(processor, record): a fixed key has to be known"
                )
            if record.key != self._current.key:
                raise UserError("process_values must not change the key; use process")
        check_forwarded("the processor", record)
        self._forwarded.append(CapturedForward(record, child))

    @property
    def state_dir(self) -> Path:
        return self._passing_directory() if self._state_dir is None else self._state_dir

    @property
    def key_serde(self) -> ProgramSerde:
        return _given(self.config.default_key_serde, "default.key.serde")

    @property
    def value_serde(self) -> ProgramSerde:
        return _given(self.config.default_value_serde, "default.value.serde")

    def app_configs(self) -> Mapping[str, Any]:
        return self.config.settings()

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        return below(prefix, self.config.settings(only_given=True))

    def get_state_store(self, name: str) -> Any:
        """The store that :meth:`add_state_store` added. Raises UnknownStoreError, as the context of an application."""
        if name not in self._stores:
            known = ", ".join(self._stores) or "none"
            raise UnknownStoreError(
                f"there is no store {name!r}: add it with add_state_store. Stores of this context: {known}"
            )
        return self._stores[name]

    def schedule(
        self,
        interval: Duration,
        punctuation_type: PunctuationType,
        callback: Callable[[int], None],
        *,
        start_time: Time | None = None,
    ) -> CapturedPunctuator:
        interval_ms = check_schedule(interval, punctuation_type, callback, "schedule()")
        start_time_ms = None if start_time is None else to_epoch_ms(start_time, "start_time")
        captured = CapturedPunctuator(
            interval_ms, punctuation_type, self._punctuating(callback), start_time_ms=start_time_ms
        )
        self._punctuators.append(captured)
        return captured

    def _punctuating(self, callback: Callable[[int], None]) -> Callable[[int], None]:
        def punctuate(timestamp: int) -> None:
            self._punctuates = True
            try:
                callback(timestamp)
            finally:
                self._punctuates = False

        return punctuate

    def commit(self) -> None:
        self.is_committed = True

    def current_stream_time_ms(self) -> int:
        return self._stream_time_ms

    def current_system_time_ms(self) -> int:
        return self._system_time_ms

    # ----------------------------------------------------------------------------------------------------- for tests

    def process(self, processor: _Processor, record: Record[Any, Any]) -> None:
        """Passes a record to a processor. Its timestamp is the default for stores, its key the fixed key."""
        self._current, self.record_timestamp = record, record.timestamp
        try:
            processor.process(record)
        finally:
            self._current = None

    def add_state_store(self, store: Store) -> Any:
        """Adds a store, in memory and without a changelog, and returns it. Its serdes must be given."""
        planned = added_store(store)
        spec = planned.spec
        if spec.key_serde is None or spec.value_serde is None:
            raise UserError(f"store {spec.name!r} needs key= and value=: there are no default serdes here")
        value = spec.value_serde
        timestamped = spec.timestamped and not spec.plain_rows
        row_format = RowFormat(value.serialize, value.deserialize, timestamped=timestamped)
        cache = cache_over(spec, lay_out(spec, make_store(spec)), row_format)
        self._stores[spec.name] = store_access(spec, cache, spec.key_serde, self._now, None, timestamped=True)
        return self._stores[spec.name]

    def _now(self) -> tuple[int, Headers, int]:
        self._sequence += 1
        return self.record_timestamp, (), self._sequence

    def set_record_metadata(self, topic: str, partition: int, offset: int) -> None:
        """Sets the source of the next record."""
        self.record_metadata = RecordMetadata(topic, partition, offset)

    def set_current_stream_time(self, milliseconds: int) -> None:
        self._stream_time_ms = milliseconds

    def set_current_system_time(self, milliseconds: int) -> None:
        self._system_time_ms = milliseconds

    def forwarded(self, child: str | None = None) -> list[CapturedForward]:
        """What was forwarded since the last :meth:`reset_forwards`; with ``child``: only to that child."""
        return [captured for captured in self._forwarded if child is None or captured.child in (None, child)]

    def reset_forwards(self) -> None:
        self._forwarded.clear()

    def scheduled_punctuators(self) -> list[CapturedPunctuator]:
        """All scheduled punctuations, including cancelled ones."""
        return list(self._punctuators)

    def reset_commit(self) -> None:
        self.is_committed = False
