"""A store of every kind with rows of two versions in its changelog, and programs that read both, by the names of kinds."""

from __future__ import annotations

import json
from collections.abc import Iterable

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import NewTopic
from streamsrt.testing.topology_test_driver import ProducedRecord, TopologyTestDriver
from streamsrt.wire.records import encode_batch
from tests.store_kinds import KINDS, LATER, ROWS, pipe
from tests.streamsrt.testing.test_store_versions import Value, shown, to_second
from topology import serdes
from topology.graph.nodes import StoreSpec
from topology.graph.store_kinds import StoreKind
from topology.graph.topology import Topology
from topology.spec.row_versions import latest_version_in


def __getattr__(name: str) -> Topology:
    """By the name of a kind of store its program is found."""
    if name.upper() not in StoreKind.__members__:
        raise AttributeError(name)
    return program(StoreKind[name.upper()])


def program(kind: StoreKind) -> Topology:
    """It reads values of version 1, and writes version 2."""
    return KINDS[kind].build("rows", {"version": 2, "upcast": {1: to_second}})


class TwoVersions:
    """The first version has logged some rows, and the second one some more. ``expected``: the values as the second one has
    them; of a buffer those that it lets go in the end."""

    def __init__(self, network: NetworkThread, kind: StoreKind, application_id: str) -> None:
        self.application_id, self.program = application_id, f"{__name__}:{kind.name.lower()}"
        self.spec: StoreSpec = KINDS[kind].spec(program(kind), "rows")
        with TopologyTestDriver(KINDS[kind].build("rows", {})) as driver:
            pipe(driver, ROWS, reads_other=KINDS[kind].reads_other)
            driver.commit()
            driver.restart(topology=program(kind))
            pipe(driver, LATER[:2], reads_other=KINDS[kind].reads_other)
            driver.commit()
            log = f"-{self.spec.changelog_name}"
            records = [each for each in driver.producer_history if each.topic.endswith(log)]
            self.expected = _let_go(driver) if kind is StoreKind.BUFFER else shown(driver, kind)
        self.versions = {latest_version_in(each.value) for each in records if each.value is not None}
        self._write(network, records)

    def _write(self, network: NetworkThread, records: Iterable[ProducedRecord]) -> None:
        topic = f"{self.application_id}-{self.spec.changelog_name}"
        network.admin.create_topics([NewTopic(name=topic, partitions=1)])
        for each in records:
            batch = encode_batch([each.key], [each.value], [each.timestamp], headers=[list(each.headers)])
            network.producer.send(topic, 0, batch, 1)
        network.producer.flush()

    def has(self, texts: Iterable[str | None]) -> bool:
        """Whether these are the values, as JSON, in any order."""
        return sorted((json.loads(text or "null") for text in texts), key=repr) == sorted(self.expected, key=repr)


def _let_go(driver: TopologyTestDriver) -> list[Value]:
    out = driver.create_output_topic("out", serdes.string, serdes.json)
    pipe(driver, LATER[-1:], reads_other=False)
    driver.commit()
    return [value for _, value in out.read_key_values_to_list()]
