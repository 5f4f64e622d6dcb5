"""A program replayed as a whole and in slices, without files: what both have computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamsrt.backfill.replay import OfflineSettings, TaskReplay
from streamsrt.backfill.slice_merging import merged_by_key, merged_rows, merged_snapshots
from streamsrt.backfill.slices.eligibility import obstacle
from streamsrt.backfill.slices.share import Slice
from streamsrt.backfill.task_state import LastValue
from streamsrt.tasks.global_state import GlobalState
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.records import RecordColumns, iter_columns
from tests.streamsrt.operators.programs import APPLICATION, GlobalRows, Piped, columns_of
from topology import serdes
from topology.graph.nodes import Subtopology

Rows = list[tuple[bytes, bytes]]
Records = Mapping[str, Sequence[Piped] | Sequence[RecordColumns]]
"""By topic."""


@dataclass
class Computed:
    """``outputs``: by topic and key, in their order. ``carried``: what another backfill would go on with."""

    rows: dict[str, Rows] = field(default_factory=dict)
    changelogs: dict[str, list[tuple[bytes, LastValue]]] = field(default_factory=dict)
    outputs: dict[tuple[str, bytes | None], list[tuple[Any, ...]]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    carried: dict[str, list[int | str]] = field(default_factory=dict)
    parts: int = 0
    """In how many parts the records were processed."""
    written: dict[str, list[RecordColumns]] = field(default_factory=dict, compare=False)
    """By topic, as another task reads it."""


def config_of(*, cached: bool, generate: bool = True) -> TaskConfig:
    return TaskConfig(
        default_key_serde=serdes.string,
        default_value_serde=serdes.string,
        cache_max_bytes=(10 << 20) * cached,
        generate=generate,
    )


def prevents(subtopology: Subtopology, config: TaskConfig) -> str | None:
    return obstacle(config.resolved(subtopology, APPLICATION), config)


def whole(
    subtopology: Subtopology, records: Records, config: TaskConfig, shared: GlobalState | None = None
) -> Computed:
    return _computed(subtopology, records, config, None, shared=shared)


def sliced(
    subtopology: Subtopology,
    records: Records,
    config: TaskConfig,
    count: int,
    partitions: int = 1,
    shared: GlobalState | None = None,
) -> Computed:
    """The results of ``count`` slices, merged. ``partitions``: those of each output; ``shared``: the global tables."""
    parts = [
        _computed(subtopology, records, config, Slice("t", index, count), partitions, shared) for index in range(count)
    ]
    specs = {spec.name: spec for spec in subtopology.stores}
    outputs: dict[tuple[str, bytes | None], list[tuple[Any, ...]]] = {}
    for part in parts:
        for place, rows in part.outputs.items():
            assert place not in outputs, "a key is in two slices"
            outputs[place] = rows
    return Computed(
        {name: list(merged_rows(spec, [part.rows[name] for part in parts])) for name, spec in specs.items()},
        {topic: list(merged_by_key("s", [part.changelogs[topic] for part in parts])) for topic in parts[0].changelogs},
        outputs,
        {name: sum(part.counters[name] for part in parts) for name in parts[0].counters},
        {name: max(part.times.get(name, -1) for part in parts) for part in parts for name in part.times},
        merged_snapshots([part.carried for part in parts]),
        sum(part.parts for part in parts),
    )


def _computed(
    subtopology: Subtopology,
    records: Records,
    config: TaskConfig,
    share: Slice | None,
    partitions: int = 1,
    shared: GlobalState | None = None,
) -> Computed:
    found = Computed()

    def sink(topic: str, partition: int, batch: bytes, count: int) -> None:
        for columns in iter_columns(batch):
            found.written.setdefault(topic, []).append(columns)
            headers = columns.headers or [()] * len(columns)
            for key, *rest in zip(columns.keys, columns.values, columns.timestamps, headers, strict=True):
                found.outputs.setdefault((topic, key), []).append(tuple(rest))

    settings = OfflineSettings(
        application_id=APPLICATION,
        task_config=config,
        partitions_of_topic=lambda topic: partitions,
        full_changelogs=False,
    )
    replay = TaskReplay(subtopology, 0, settings, sink, global_stores=shared or GlobalRows())

    inputs = {tp: _cut(records.get(tp[0], ())) for tp in replay.task.source_partitions}
    done: list[int] = []
    replay.merge(inputs, done.append, share)
    replay.finish()
    found.rows = {name: list(store.range()) for name, store in replay.rows.items()}
    found.changelogs = {topic: list(entries) for topic, entries in replay.changelogs().items()}
    found.counters, found.times = replay.task.counters(), replay.task.operator_times()
    found.carried, found.parts = replay.snapshot, len(done)
    return found


def _cut(rows: Sequence[Piped] | Sequence[RecordColumns]) -> Iterator[RecordColumns]:
    piped = [row for row in rows if isinstance(row, Piped)]
    yield from (row for row in rows if isinstance(row, RecordColumns))
    for start in range(0, len(piped), 7):
        yield columns_of(piped[start : start + 7], start)
