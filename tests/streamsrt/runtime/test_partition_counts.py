"""Topics that records choose, while the cluster does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsrt.client.values import RequestTimedOutError
from streamsrt.membership.values import Tasks
from streamsrt.operators.engine.handlers import ExceptionHandlers, log_and_continue
from streamsrt.runtime.assembly import PartitionCounts
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import Rig
from topology import StreamsBuilder, serdes


class LookingUp(Rig):
    """Asks the cluster for the partitions of a topic, as an application does."""

    def _count(self, topic: str) -> int:
        return PartitionCounts(self.network)(topic)


def silent() -> None:
    raise RequestTimedOutError("No answer in time.")


@pytest.mark.parametrize("placed", [False, True], ids=["by key", "by a partitioner"])
def test_no_record_is_skipped_since_its_topic_can_not_be_looked_up(tmp_path: Path, placed: bool) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string).to(
        lambda key, value, context: value, partitioner=(lambda topic, key, value, count: 0) if placed else None
    )
    network = InProcessNetwork({"in": 1, "chosen": 1})
    skipping = ExceptionHandlers(processing=log_and_continue, production=log_and_continue)
    rig = LookingUp(tmp_path, builder.build(), network, partitions=1, handlers=skipping)
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(3)
    network.write(("in", 0), [(b"k", b"chosen")])
    network.admin.before_answer = silent
    rig.iterate(3)
    network.admin.before_answer = lambda: None
    rig.clock_ms += 60_000
    rig.iterate(6)
    rig.commit()
    assert network.read("chosen") == [(b"k", b"chosen")]
    rig.close()
