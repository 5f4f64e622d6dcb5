"""The programs of the end-to-end benchmark of operators."""

from __future__ import annotations

from typing import Any

from tests.bench.peers.operator_data import (
    ADVANCE_MS,
    AS_OF_MS,
    CLOSING_MS,
    GAP_MS,
    GRACE_MS,
    HOPPING_MS,
    RETENTION_MS,
    SLIDING_MS,
    TTL_MS,
    WITHIN_MS,
    foreign_key,
    joined,
)
from topology import (
    JoinWindows,
    KStream,
    ProcessorContext,
    Record,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    serdes,
)

RECORD_BY_RECORD = {"global", "versioned", "grace", "as-of", "processor", "ttl"}


class Counts:
    """Forwards how many records of its key there were so far."""

    def init(self, context: ProcessorContext[bytes, int]) -> None:
        self.context = context
        self.counts = context.get_state_store("counts")

    def process(self, record: Record[bytes, bytes]) -> None:
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.with_value(count))


def record_by_record(
    builder: StreamsBuilder, workload: str, stream: KStream[bytes, bytes], other: str
) -> KStream[bytes, Any]:
    """The results of a program that writes one for each record."""
    if workload == "global":
        rows = builder.global_table(other, key=serdes.bytes, value=serdes.bytes, store="table")
        return stream.join(rows, joined, on=lambda _, value: foreign_key(value))
    if workload == "processor":
        builder.add_state_store(Store("counts", key=serdes.bytes, value=serdes.long))
        return stream.process(Counts, stores=["counts"])
    if workload == "ttl":
        return stream.group_by_key().count(store=Store("counts", ttl=TTL_MS)).to_stream()
    if workload == "as-of":
        others = builder.stream(other, key=serdes.bytes, value=serdes.bytes)
        return stream.join_asof(others, joined, AS_OF_MS, grace=0)
    versions = builder.table(
        other,
        key=serdes.bytes,
        value=serdes.bytes,
        store=Store("versions", kind="versioned", retention=RETENTION_MS),
    )
    return stream.join(versions, joined, grace=GRACE_MS if workload == "grace" else None)


def build(workload: str, sources: str, sink: str) -> Topology:
    """``sources``: one topic or two, with a comma between them."""
    source, _, other = sources.partition(",")
    builder = StreamsBuilder()
    if workload == "words":
        words = builder.stream(source, key=serdes.bytes, value=serdes.string).flat_map_values(str.split)
        by_word = words.group_by(lambda _, word: word, key=serdes.string, value=serdes.string)
        by_word.count(store="counts").to_stream().to(sink, key=serdes.string, value=serdes.long)
        return builder.build()
    if workload in ("table-table", "foreign-key"):
        left, right = (
            builder.table(topic, key=serdes.bytes, value=serdes.bytes, store=f"of-{index}")
            for index, topic in enumerate((source, other))
        )
        result = (
            left.join(right, joined) if workload == "table-table" else left.join(right, joined, foreign_key=foreign_key)
        )
        result.to_stream().to(sink, key=serdes.bytes, value=serdes.bytes)
        return builder.build()
    stream = builder.stream(source, key=serdes.bytes, value=serdes.bytes)
    if workload in RECORD_BY_RECORD:
        result = record_by_record(builder, workload, stream, other)
        result.to(sink, key=serdes.bytes, value=serdes.long if workload in ("processor", "ttl") else serdes.bytes)
    elif workload == "stream-table":
        table = builder.table(other, key=serdes.bytes, value=serdes.bytes, store="table")
        stream.join(table, joined).to(sink, key=serdes.bytes, value=serdes.bytes)
    elif workload == "stream-stream":
        right_stream = builder.stream(other, key=serdes.bytes, value=serdes.bytes)
        windows = JoinWindows(WITHIN_MS, grace=1_000)
        stream.join(right_stream, joined, windows).to(sink, key=serdes.bytes, value=serdes.bytes)
    elif workload == "session":
        sessions = stream.group_by_key().windowed_by(SessionWindows(GAP_MS, grace=1_000)).count(store="counts")
        sessions.to_stream().to(sink, key=serdes.session_windowed(serdes.bytes), value=serdes.long)
    else:
        windows_of = {
            "hopping": TimeWindows(HOPPING_MS, ADVANCE_MS, grace=1_000),
            "sliding": SlidingWindows(SLIDING_MS, grace=1_000),
            "suppress": TimeWindows(CLOSING_MS, grace=0),
        }
        windows_used = windows_of[workload]
        counts = stream.group_by_key().windowed_by(windows_used).count(store="counts")
        if workload == "suppress":
            counts = counts.suppress(Suppressed.until_window_closes())
        counts.to_stream().to(sink, key=serdes.time_windowed(serdes.bytes, windows_used.size_ms), value=serdes.long)
    return builder.build()
