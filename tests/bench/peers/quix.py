"""quixstreams: filter + map (W1), count per key (W2), count per key and minute (W3), a map of one record in many (W7, which
with 0 records runs until SIGTERM), filter + map and filter + sum per key over JSON (W8, W9), windows and joins as in
``operator_data``, and the programs of ``quix_formats``.

START is the first record that was processed; END is the return of ``run()``, which flushes the producer and commits. The
callback that counts the records costs about a hundredth of what a record costs.
"""

import os
import resource
import sys
import warnings
from hashlib import sha256
from pathlib import Path

warnings.filterwarnings("ignore")

from quixstreams import Application  # noqa: E402

FORMATS = {"json", "pydantic", "dataclass", "typeddict", "avro", "avro-used", "protobuf", "string", "number"}


def mark(name, records):
    used = resource.getrusage(resource.RUSAGE_SELF)
    os.write(1, f"MARK {name} {records} {used.ru_utime + used.ru_stime:.6f}\n".encode())


def worked(value):
    digest = value
    for _ in range(5):
        digest = sha256(digest).digest()
    return value[0]


def count(value, state):
    seen = state.get("n", 0) + 1
    state.set("n", seen)
    return seen


def summed(order, state):
    cents, orders = state.get("cents", 0) + order["cents"], state.get("orders", 0) + 1
    state.set("cents", cents)
    state.set("orders", orders)
    return {"cents": cents, "orders": orders}


def joined(one, other):
    return one[:20] + "|" + other[:20]


def main(arguments):
    bootstrap, workload, source, sink, application, records, directory = arguments
    total, done = int(records), 0

    def processed(topic, partition, offset):
        nonlocal done
        done += 1
        if done == 1:
            mark("START", 1)
        elif done == total:
            app.stop()

    app = Application(
        broker_address=bootstrap,
        consumer_group=application,
        auto_offset_reset="earliest",
        state_dir=directory,
        loglevel="WARNING",
        commit_interval=1.0,
        on_message_processed=processed,
    )
    if workload in FORMATS:
        # Not run as part of a package, and the libraries of formats cost the others memory.
        sys.path.append(str(Path(__file__).resolve().parent))
        import quix_formats

        quix_formats.add(app, workload, source, sink)
        app.run()
        mark("END", done)
        return
    sources = source.split(",")
    # What a join keeps must be text.
    kind = "json" if workload in ("W8", "W9") else "string" if len(sources) > 1 else "bytes"
    frame, *others = [
        app.dataframe(app.topic(name, key_deserializer="bytes", value_deserializer=kind)) for name in sources
    ]
    if workload == "W1":
        out = app.topic(sink, key_serializer="bytes", value_serializer="bytes")
        frame.filter(lambda v: not v[16] & 1).apply(lambda v: v.upper()).to_topic(out)
    elif others:
        out = app.topic(sink, key_serializer="bytes", value_serializer="string")
        if workload == "stream-table":
            result = frame.join_asof(others[0], how="inner", on_merge=joined)
        else:
            result = frame.join_interval(
                others[0], how="inner", on_merge=joined, grace_ms=2_000, backward_ms=200, forward_ms=200
            )
        result.to_topic(out)
    elif workload == "W7":
        out = app.topic(sink, key_serializer="bytes", value_serializer="bytes")
        frame.filter(lambda v: worked(v) == 77).apply(lambda v: v.upper()).to_topic(out)
    elif workload in ("W8", "W9"):
        out = app.topic(sink, key_serializer="bytes", value_serializer="json")
        orders = frame.filter(lambda order: order["cents"] >= 50_000)
        if workload == "W8":
            orders.apply(
                lambda order: {"id": order["id"], "double": order["cents"] * 2, "city": order["address"]["city"]}
            ).to_topic(out)
        else:
            orders.apply(summed, stateful=True).to_topic(out)
    else:
        out = app.topic(sink, key_serializer="bytes", value_serializer="json")
        if workload == "W2":
            frame.apply(count, stateful=True).to_topic(out)
        elif workload == "hopping":
            frame.hopping_window(60_000, 15_000, grace_ms=1_000).count().current().to_topic(out)
        elif workload == "session":
            frame.session_window(2_000, grace_ms=1_000).count().current().to_topic(out)
        elif workload == "suppress":
            frame.tumbling_window(5_000).count().final(closing_strategy="partition").to_topic(out)
        else:
            frame.tumbling_window(60_000, grace_ms=30_000).count().current().to_topic(out)
    app.run()
    mark("END", done)


if __name__ == "__main__":
    main(sys.argv[1:])
