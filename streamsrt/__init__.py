"""Kafka Streams semantics for Python, on the streams rebalance protocol.

- ``__main__``         ``python -m streamsrt``: the command
- ``app``              ``KafkaStreams``: one instance of an application, from its start to its end
- ``application``      finding an application by its name: ``MODULE:ATTRIBUTE``
- ``assignment``       who runs which task, as pure functions that broker and client share
- ``avro``             values of Avro as bytes, by code that is generated for each schema
- ``backfill``         the state of an application computed offline from history, then handed over to the live
                       application
- ``checksum``         CRC-32C, by the hardware
- ``cli``              the command line: ``streamsrt``
- ``client``           connections to a broker: the only package of the runtime that uses asyncio
- ``config``           the application's configuration: Kafka Streams' keys, checked before anything starts
- ``dead_letters``     listing, replaying and dropping dead letters
- ``errors``           errors, by who is at fault and what the caller must do
- ``faust``            runs applications of faust-streaming unchanged (extra ``faust``)
- ``http``             an instance over HTTP: queries that are routed to the instance that has the answer, health,
                       metrics, tasks, topology
- ``json_text``        values of programs as JSON
- ``membership``       the member's half of the streams rebalance protocol, as a pure machine
- ``operators``        the processing of a subtopology: functions over columns of records and stores
- ``queries``          interactive queries: the state of a running application
- ``runtime``          the processing thread: poll, process, commit; and the threads and processes around it
- ``schema_registry``  serdes whose schemas are in a schema registry (Confluent's, Karapace's, Apicurio's compatible
                       API): Avro, JSON, Protobuf
- ``sensors``          statistics of measurements: their number, their sum, and recent rates, means and maxima
- ``state``            stores: bytes in RocksDB or memory, behind a write-back cache of values
- ``tasks``            tasks, each one subtopology for one partition, and the manager that opens and closes them
- ``testing``          runs a topology without a broker
- ``wire``             the Kafka wire protocol: messages, frames, record batches
- ``wording``          how numbers are worded in messages

The public names are loaded when they are first used, so that importing one leaf of the package (the bundled broker
imports :mod:`streamsrt.wire` and :mod:`streamsrt.assignment`) does not load the runtime.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
"""Not imported: the module ``typing`` takes longer than all before it, and the command can't take care of Ctrl-C yet."""

if TYPE_CHECKING:
    from streamsrt.app import KafkaStreams
    from streamsrt.config import StreamsConfig
    from streamsrt.errors import StreamsError
    from streamsrt.runtime.values import Progress, State
    from streamsrt.tasks.restore.listeners import RestoreListener, StandbyListener
    from streamsrt.testing.topology_test_driver import TopologyTestDriver

_EXPORTS: dict[str, str] = {
    "KafkaStreams": "streamsrt.app",
    "Progress": "streamsrt.runtime.values",
    "RestoreListener": "streamsrt.tasks.restore.listeners",
    "StandbyListener": "streamsrt.tasks.restore.listeners",
    "State": "streamsrt.runtime.values",
    "StreamsConfig": "streamsrt.config",
    "StreamsError": "streamsrt.errors",
    "TopologyTestDriver": "streamsrt.testing.topology_test_driver",
}

__all__ = [
    "KafkaStreams",
    "Progress",
    "RestoreListener",
    "StandbyListener",
    "State",
    "StreamsConfig",
    "StreamsError",
    "TopologyTestDriver",
]


def __getattr__(name: str) -> object:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'streamsrt' has no attribute {name!r}")
    found: object = getattr(importlib.import_module(module), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
