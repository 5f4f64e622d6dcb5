"""faust-streaming: filter + map (W1), count per key (W2), count per key and minute (W3).

START is when the first record is done, END when the producer is flushed after the last one: no commit and no closing of
tables is in the measured time, in this peer's favour.
"""

import asyncio
import os
import resource
import sys

import faust


def mark(name, records):
    used = resource.getrusage(resource.RUSAGE_SELF)
    os.write(1, f"MARK {name} {records} {used.ru_utime + used.ru_stime:.6f}\n".encode())


BOOTSTRAP, WORKLOAD, SOURCE, SINK, APPLICATION, RECORDS, DIRECTORY = sys.argv[1:8]
RAW = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
TABLE = {
    "default": int,
    "partitions": 4,
    "key_type": str,
    "value_type": int,
    "options": {"driver": "rocksdict"},
}

app = faust.App(
    APPLICATION,
    broker="kafka://" + BOOTSTRAP,
    store="rocksdb://",
    datadir=DIRECTORY,
    topic_partitions=4,
    topic_replication_factor=1,
    topic_disable_leader=True,
    web_enabled=False,
    consumer_auto_offset_reset="earliest",
    broker_commit_interval=1.0,
)
source, sink = app.topic(SOURCE, **RAW), app.topic(SINK, **RAW)
total, done = int(RECORDS), 0
finishing = []


async def finish():
    await app.producer.flush()
    mark("END", done)


def processed():
    global done
    done += 1
    if done == 1:
        mark("START", 1)
    elif done == total:
        finishing.append(asyncio.ensure_future(finish()))


if WORKLOAD == "W1":

    @app.agent(source)
    async def upper(stream):
        async for event in stream.events():
            value = event.value
            if not value[16] & 1:
                await sink.send(key=event.key, value=value.upper())
            processed()

elif WORKLOAD == "W2":
    counts = app.Table("counts", **TABLE)

    @app.agent(source)
    async def count(stream):
        async for event in stream.events():
            key = event.key.decode()
            counts[key] += 1
            await sink.send(key=event.key, value=b"%d" % counts[key])
            processed()

else:
    windows = app.Table("windows", **TABLE).tumbling(60.0, expires=3600.0)

    @app.agent(source)
    async def count_windows(stream):
        async for event in stream.events():
            key = event.key.decode()
            windows[key] += 1
            start = int(event.message.timestamp) // 60 * 60_000
            await sink.send(
                key=b"%s@%d" % (event.key, start),
                value=b"%d" % windows[key].value(event),
                partition=event.message.partition,
            )
            processed()


if __name__ == "__main__":
    sys.argv = ["faust", "worker", "-l", "warn", "--without-web"]
    app.main()
