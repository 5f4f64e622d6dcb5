"""What is asked of the logs after a commit, where the cluster does not answer."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

import pytest

from streamsrt.client.values import RequestTimedOutError, TopicPartition
from streamsrt.membership.values import Tasks
from streamsrt.runtime.loop.values import PurgeRepartitionTopics
from tests.streamsrt.in_process_network import InProcessAdmin, InProcessNetwork
from tests.streamsrt.rig import APPLICATION_ID, MakeRig
from topology import StreamsBuilder, serdes

REPARTITION = f"{APPLICATION_ID}-keyed-repartition"


class Slow(InProcessAdmin):
    """Its answers come later."""

    def __init__(self, network: InProcessNetwork) -> None:
        super().__init__(network)
        self.asked: list[tuple[dict[TopicPartition, int], Future[dict[TopicPartition, int]]]] = []

    def begin_delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float = 30.0
    ) -> Future[dict[TopicPartition, int]]:
        self.asked.append((dict(before), Future()))
        return self.asked[-1][1]


def test_a_purge_is_not_waited_for(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.long)
    stream.select_key(lambda key, value: key).repartition(name="keyed").to("out")
    network = InProcessNetwork({"in": 1, "out": 1, REPARTITION: 1})
    rig = make_rig(topology=builder.build(), network=network, partitions=1, subtopology=1)
    network.write((REPARTITION, 0), [(b"a", bytes(8))])
    network.admin = slow = Slow(network)
    rig.start(Tasks(active=rig.tasks(0)))
    assert rig.move() == 1
    rig.commit()
    purge = PurgeRepartitionTopics()
    rig.thread._do(purge)
    rig.thread._do(purge)
    assert [before for before, _ in slow.asked] == [{(REPARTITION, 0): 1}], "one at a time"
    slow.asked[0][1].set_exception(RequestTimedOutError("127.0.0.1:9092 has not answered yet"))
    assert "repartition topics could not be purged, trying again later: 127.0.0.1:9092 has not answered" in caplog.text
    rig.thread._do(purge)
    assert len(slow.asked) == 2
    slow.asked[1][1].cancel()
