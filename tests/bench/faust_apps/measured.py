"""Applications as Faust's users write them, run unchanged by Faust's worker and by ``streamsrt faust run``.

The environment says what to do: ``BROKER WORKLOAD APPLICATION SOURCE SINK DIRECTORY``. Each writes its CPU time into the
file ``began`` of its directory when it has its first record.
"""

import asyncio
import os
import resource

import faust

WORKLOAD, SOURCE, SINK = (os.environ[name] for name in ("WORKLOAD", "SOURCE", "SINK"))
DIRECTORY = os.environ["DIRECTORY"]
PARTITIONS = 4
CALL_S = 0.005

app = faust.App(
    os.environ["APPLICATION"],
    broker="kafka://" + os.environ["BROKER"],
    datadir=DIRECTORY + "/faust",
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    topic_disable_leader=True,
    web_enabled=False,
    consumer_auto_offset_reset="earliest",
    broker_commit_interval=1.0,
    stream_wait_empty=False,
)


class Order(faust.Record):
    user: str
    item: str
    amount: int


class Bill(faust.Record):
    user: str
    amount: int


raw_orders = app.topic(SOURCE, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
orders = app.topic(SOURCE, key_type=str, key_serializer="raw", value_type=Order)
raw_results = app.topic(SINK, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
results = app.topic(SINK, key_type=str, key_serializer="raw", value_type=int)
bills = app.topic(SINK, key_type=str, key_serializer="raw", value_type=Bill)
has_begun = False


def begin():
    global has_begun
    if has_begun:
        return
    has_begun = True
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open(DIRECTORY + "/began.new", "w") as file:
        file.write(str(used.ru_utime + used.ru_stime))
    os.rename(DIRECTORY + "/began.new", DIRECTORY + "/began")


if WORKLOAD in ("map", "latency"):

    @app.agent(raw_orders)
    async def shout(stream):
        async for event in stream.events():
            begin()
            await raw_results.send(key=event.key, value=event.value.upper())

elif WORKLOAD == "models":

    @app.agent(orders)
    async def bill(stream):
        async for key, order in stream.items():
            begin()
            await bills.send(key=key, value=Bill(user=order.user, amount=order.amount * 2))

elif WORKLOAD in ("count", "restore"):
    counts = app.Table("counts", default=int, key_type=str, value_type=int, partitions=PARTITIONS)

    @app.agent(raw_orders)
    async def count(stream):
        async for event in stream.events():
            begin()
            key = event.key.decode()
            counts[key] += 1
            await raw_results.send(key=event.key, value=b"%d" % counts[key])

elif WORKLOAD == "windows":
    windows = app.Table("windows", default=int, key_type=str, value_type=int, partitions=PARTITIONS).tumbling(
        60.0, expires=1e9
    )

    @app.agent(raw_orders)
    async def count_windows(stream):
        async for event in stream.events():
            begin()
            key = event.key.decode()
            windows[key] += 1
            await raw_results.send(key=event.key, value=b"%d" % windows[key].current())

elif WORKLOAD == "group_by":
    by_item = app.Table("by_item", default=int, key_type=str, value_type=int, partitions=PARTITIONS)

    @app.agent(orders)
    async def count_items(stream):
        async for order in stream.group_by(Order.item, partitions=PARTITIONS):
            begin()
            by_item[order.item] += order.amount
            await results.send(key=order.item, value=by_item[order.item])

elif WORKLOAD == "join":
    users = app.Table("users", default=int, key_type=str, value_type=int, partitions=PARTITIONS)

    @app.agent(app.topic(SOURCE + "-users", key_type=str, key_serializer="raw", value_type=int))
    async def learn(stream):
        async for key, discount in stream.items():
            users[key] = discount

    @app.agent(orders)
    async def charge(stream):
        async for key, order in stream.items():
            begin()
            await bills.send(key=key, value=Bill(user=order.user, amount=order.amount - users[order.user]))

elif WORKLOAD == "async":

    async def called():
        answer = asyncio.get_running_loop().create_future()
        answer.get_loop().call_later(CALL_S, answer.set_result, None)
        await answer

    @app.agent(raw_orders, concurrency=64)
    async def call(stream):
        async for event in stream.events():
            begin()
            await called()
            await raw_results.send(key=event.key, value=event.value)


if __name__ == "__main__":
    app.main()
