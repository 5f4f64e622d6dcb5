"""What the leader of a classic group counts as unread, on each broker."""

from __future__ import annotations

from streamsrt.client.leading import LeaderWork
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import NewTopic, OffsetAndMetadata, ProducerConfig
from tests.streamsrt.client.conftest import Connect
from tests.streamsrt.client.test_transactions import WAIT_S, batch


def leader_of(network: NetworkThread, group: str) -> LeaderWork:
    return LeaderWork(network._cluster, network.admin.on_loop, group)


def test_what_an_open_transaction_has_written_counts_as_unread(
    bootstrap_servers: str, connect: Connect, name: str
) -> None:
    network = connect(bootstrap_servers, producer=ProducerConfig(transactional_id=name))
    network.transactions.initialize(WAIT_S)
    place = (name, 0)
    assert network.admin.create_topics([NewTopic(name=name, partitions=1)]) == {name: None}
    leader = leader_of(network, name)
    network.producer.send(*place, batch(1, 2), 2)
    network.producer.flush(WAIT_S)

    # Nobody of this group has committed anything of it: it may be another application's.
    assert network._call(leader.left([place]), WAIT_S).unread == {}
    network.admin.commit(name, {place: OffsetAndMetadata(0)})
    assert network._call(leader.left([place]), WAIT_S).unread == {place: 2}

    stable = network._call(leader.end_offsets([place], [], []), WAIT_S).offsets
    assert stable == {place: 0}
    written = network._call(leader.end_offsets([], [], [place]), WAIT_S).offsets
    assert written == {place: 2}
    network.transactions.abort(WAIT_S)
