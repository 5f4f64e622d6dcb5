"""Writes records evenly: SERVERS TOPIC RECORDS_PER_SECOND SECONDS [keys]. One in 50 is M and the time in nanoseconds.

With ``keys``, these are not values but keys, and of every batch, however small; the other records have 10,000 keys in turn.
It ends when the time is over, and says on stdout how many records it has written, and how late it was at the end.
"""

from __future__ import annotations

import sys
import threading
import time

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig
from streamsrt.runtime.tuning import tune_process
from streamsrt.wire.records import encode_batch

PARTITIONS = 4
MARKED = 50
TICK_S = 0.005
KEYED_TICK_S = 0.002
VALUE = b"x" * 100
KEYS = [b"user-%07d" % number for number in range(10_000)]


def batch(count: int) -> bytearray | bytes:
    """So many records of now; at least one of them is marked."""
    now_ns = time.time_ns()
    marked = max(1, count // MARKED)
    values: list[bytes | None] = [VALUE] * (count - marked) + [b"M%019d" % now_ns] * marked
    keys: list[bytes | None] = [b"key"] * count
    return encode_batch(keys, values, [now_ns // 1_000_000] * count)


def keyed_batch(count: int, number: int) -> bytearray | bytes:
    """So many records of now, of which the first has a key that no other has. ``number``: of the batch."""
    now_ns = time.time_ns()
    start = number * count
    keys: list[bytes | None] = [
        b"M%019d" % now_ns,
        *(KEYS[each % len(KEYS)] for each in range(start + 1, start + count)),
    ]
    values: list[bytes | None] = [VALUE] * count
    return encode_batch(keys, values, [now_ns // 1_000_000] * count)


def main(arguments: list[str]) -> None:
    servers, topic, per_s, seconds = arguments[0], arguments[1], float(arguments[2]), float(arguments[3])
    is_keyed = "keys" in arguments[4:]
    tune_process()
    network = NetworkThread(ClientConfig(bootstrap_servers=servers, client_id="paced"))
    network.start()
    pause = threading.Event()
    # One batch a tick, to one partition after the other, of 50 records at least.
    tick_s = KEYED_TICK_S if is_keyed else max(TICK_S / PARTITIONS, MARKED / per_s)
    each = max(1, round(per_s * tick_s))
    began_s, ticks = time.perf_counter(), 0
    while (due_s := ticks * tick_s) < seconds:
        ahead_s = due_s - (time.perf_counter() - began_s)
        if ahead_s > 0:
            pause.wait(ahead_s)
        records = keyed_batch(each, ticks) if is_keyed else batch(each)
        network.producer.send(topic, ticks % PARTITIONS, records, each)
        ticks += 1
    network.producer.flush()
    late_s = time.perf_counter() - began_s - seconds
    network.stop()
    print(ticks * each, f"{late_s:.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
