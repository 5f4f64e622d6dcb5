"""This runtime: filter + map (W1), count per key (W2), count per key and minute (W3), restore of a table (W6), a map of one
record in many (W7), filter + map and filter + sum per key over JSON (W8, W9), and the programs of
:mod:`tests.bench.peers.ours_operators` and :mod:`tests.bench.peers.ours_formats`.

START is the moment when the group has given out the tasks, before the first fetch (the last of several such moments: without
its internal topics a group gives out none); END is the return of ``run()``, after the last commit, leaving the group and
closing the stores. HALF is the first progress snapshot behind half of the records; the programs of operators print each
snapshot instead, as SEEN, in which records of internal topics count too. In W6 START is when the first of four partitions
begins to be restored, and END when the last one is; SEEN has the records that standby tasks have applied, at most once a
second. W6, and W7 with 0 records, run until SIGTERM.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from hashlib import sha256

from streamsrt.app import KafkaStreams
from streamsrt.client.values import TopicPartition
from streamsrt.runtime.values import State
from streamsrt.tasks.restore.listeners import RestoreListener, StandbyListener
from tests.bench.peers import json_data, ours_operators
from topology import StreamsBuilder, TimeWindows, Topology, serdes

PARTITIONS = 4
HASHES = 5
TIMEOUT_S = 600
FORMATS = {"json", "pydantic", "dataclass", "typeddict", "avro", "avro-used", "protobuf", "string", "number"}


def mark(name: str, records: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    os.write(1, f"MARK {name} {records} {used.ru_utime + used.ru_stime:.6f}\n".encode())


def worked(value: bytes) -> int:
    """Some work; the first byte."""
    digest = value
    for _ in range(HASHES):
        digest = sha256(digest).digest()
    return value[0]


class Restored(RestoreListener):
    """Prints when restoring begins, and when it is over."""

    def __init__(self, records: int) -> None:
        self.begun = self.ended = 0
        self.records = records

    def on_restore_start(self, changelog: TopicPartition, store: str, start_offset: int, end_offset: int) -> None:
        self.begun += 1
        if self.begun == 1:
            mark("START", 0)

    def on_restore_end(self, changelog: TopicPartition, store: str, total_records: int) -> None:
        self.ended += 1
        if self.ended == PARTITIONS:
            mark("END", self.records)


class Loaded(StandbyListener):
    """Prints what standby tasks have applied."""

    def __init__(self) -> None:
        self.records = 0
        self.told_s = 0.0

    def on_batch_loaded(
        self, changelog: TopicPartition, store: str, task_id: str, batch_end_offset: int, records: int, end_offset: int
    ) -> None:
        self.records += records
        if time.monotonic() - self.told_s >= 1:
            self.told_s = time.monotonic()
            mark("SEEN", self.records)


def build(workload: str, source: str, sink: str) -> Topology:
    if workload in FORMATS:
        from tests.bench.peers import ours_formats  # the libraries of formats cost the others memory

        return ours_formats.build(workload, source, sink)
    if not workload.startswith("W"):
        return ours_operators.build(workload, source, sink)
    builder = StreamsBuilder()
    if workload in ("W8", "W9"):
        orders = builder.stream(source, key=serdes.bytes, value=serdes.json).filter(
            lambda _, order: order["cents"] >= json_data.LEAST_CENTS
        )
        if workload == "W8":
            orders.map_values(
                lambda order: {"id": order["id"], "double": order["cents"] * 2, "city": order["address"]["city"]}
            ).to(sink, value=serdes.json)
        else:
            sums = orders.group_by_key().aggregate(
                lambda: {"cents": 0, "orders": 0},
                lambda _, order, total: {"cents": total["cents"] + order["cents"], "orders": total["orders"] + 1},
                store="sums",
                value=serdes.json,
            )
            sums.to_stream().to(sink, value=serdes.json)
        return builder.build()
    stream = builder.stream(source, key=serdes.bytes, value=serdes.bytes)
    if workload == "W1":
        stream.filter(lambda _, v: not v[16] & 1).map_values(lambda v: v.upper()).to(sink, value=serdes.bytes)
    elif workload == "W2":
        stream.group_by_key().count(store="counts").to_stream().to(sink, value=serdes.long)
    elif workload == "W6":
        stream.group_by_key().reduce(lambda before, now: now, store="latest")
    elif workload == "W7":
        stream.filter(lambda _, v: worked(v) == 77).map_values(lambda v: v.upper()).to(sink, value=serdes.bytes)
    else:
        windows = TimeWindows(60_000, grace=30_000)
        counts = stream.group_by_key().windowed_by(windows).count(store="counts")
        counts.to_stream().to(sink, key=serdes.time_windowed(serdes.bytes, 60_000), value=serdes.long)
    return builder.build()


def watch(streams: KafkaStreams, records: int, over: threading.Event) -> None:
    """Prints HALF. A snapshot is up to 5 ms old when the CPU time is read."""
    seen = streams.progress
    while not over.wait(0.005):
        progress = streams.progress
        if progress is not seen and progress.processed_records >= records // 2:
            mark("HALF", progress.processed_records)
            return
        seen = progress


def report(streams: KafkaStreams, over: threading.Event) -> None:
    """Prints SEEN with each snapshot, which is up to 5 ms old when the CPU time is read."""
    seen = streams.progress
    while not over.wait(0.005):
        progress = streams.progress
        if progress is not seen:
            mark("SEEN", progress.processed_records)
        seen = progress


def main(arguments: list[str]) -> None:
    bootstrap, workload, source, sink, application, records, directory, *settings = arguments

    def entered(new: State, old: State) -> None:
        if new is State.RUNNING and not streams.progress.processed_records:
            mark("START", 0)

    config = {
        "bootstrap.servers": bootstrap,
        "application.id": application,
        "state.dir": directory,
        "commit.interval.ms": 1000,
        "auto.offset.reset": "earliest",
        **dict(setting.split("=", 1) for setting in settings),
    }
    if workload == "W6":
        restored, loaded = Restored(int(records)), Loaded()
        KafkaStreams(build(workload, source, sink), config, restore_listener=restored, standby_listener=loaded).run()
        return
    streams = KafkaStreams(build(workload, source, sink), config, state_listener=entered)
    if not int(records):
        streams.run()
        return
    over = threading.Event()
    if workload.startswith("W") or workload in FORMATS:
        watcher = threading.Thread(target=watch, args=(streams, int(records), over), daemon=True)
    else:
        watcher = threading.Thread(target=report, args=(streams, over), daemon=True)
    watcher.start()
    progress = streams.run(until="quiet", timeout_s=TIMEOUT_S)
    over.set()
    watcher.join()
    mark("END", progress.processed_records)


if __name__ == "__main__":
    main(sys.argv[1:])
