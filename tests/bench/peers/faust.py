"""faust-streaming: filter + map (W1), count per key (W2), count per key and minute (W3), filter + map and filter + sum per
key over JSON (W8, W9), and filter, map and aggregate over JSON as dicts (json) and as its own models (pydantic).

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
LEAST_CENTS = 50_000
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

elif WORKLOAD == "W3":
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

elif WORKLOAD in ("W8", "W9", "json"):
    orders = app.topic(SOURCE, key_type=bytes, key_serializer="raw", value_serializer="json")
    results = app.topic(SINK, key_type=bytes, key_serializer="raw", value_serializer="json")
    totals = app.Table("totals", **{**TABLE, "default": lambda: {"cents": 0, "orders": 0}, "value_type": None})

    @app.agent(orders)
    async def total_orders(stream):
        async for event in stream.events():
            order = event.value
            if order["cents"] >= LEAST_CENTS:
                if WORKLOAD == "W8":
                    result = {"id": order["id"], "double": order["cents"] * 2, "city": order["address"]["city"]}
                elif WORKLOAD == "W9":
                    key = event.key.decode()
                    total = totals[key]
                    result = {"cents": total["cents"] + order["cents"], "orders": total["orders"] + 1}
                    totals[key] = result
                else:
                    line = {"cents": order["cents"] * 2, "city": order["address"]["city"]}
                    key = event.key.decode()
                    total = totals[key]
                    result = {
                        "cents": total["cents"] + line["cents"],
                        "orders": total["orders"] + 1,
                        "city": line["city"],
                    }
                    totals[key] = result
                await results.send(key=event.key, value=result)
            processed()

else:

    class Address(faust.Record, validation=True):
        city: str
        zip: int

    class Item(faust.Record, validation=True):
        sku: str
        count: int

    class Order(faust.Record, validation=True):
        id: int
        customer: str
        cents: int
        currency: str
        address: Address
        items: list[Item]
        note: str

    class Line(faust.Record, validation=True):
        cents: int
        city: str

    class Total(faust.Record, validation=True):
        cents: int
        orders: int
        city: str

    orders = app.topic(SOURCE, key_type=bytes, key_serializer="raw", value_type=Order)
    results = app.topic(SINK, key_type=bytes, key_serializer="raw", value_type=Total)
    totals = app.Table(
        "totals", **{**TABLE, "default": lambda: Total(cents=0, orders=0, city="-"), "value_type": Total}
    )

    @app.agent(orders)
    async def total_models(stream):
        async for event in stream.events():
            order = event.value
            if order.cents >= LEAST_CENTS:
                line = Line(cents=order.cents * 2, city=order.address.city)
                key = event.key.decode()
                before = totals[key]
                total = Total(cents=before.cents + line.cents, orders=before.orders + 1, city=line.city)
                totals[key] = total
                await results.send(key=event.key, value=total)
            processed()


if __name__ == "__main__":
    sys.argv = ["faust", "worker", "-l", "warn", "--without-web"]
    app.main()
