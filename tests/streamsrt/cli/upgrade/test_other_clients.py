"""``streamsrt upgrade`` and ``topology diff`` beside groups of Java's Kafka Streams, of Faust, and of other clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.cli.conftest import Command

PROGRAM = """
from topology import StreamsBuilder, serdes

def counted(store):
    builder = StreamsBuilder()
    builder.stream("{topic}", key=serdes.string, value=serdes.string).group_by_key().count(store=store)
    return builder.build()

first, second = counted("one"), counted("two")
"""
WAIT_S = 30.0

Join = Callable[[str], str]


@pytest.fixture
def join(bundled_broker: BundledBroker, topic: str) -> Iterator[Join]:
    """Makes a classic group with one member, which assigns with that protocol; returns its name."""
    network = NetworkThread(ClientConfig(bootstrap_servers=bundled_broker.bootstrap_servers))
    network.start()
    network.admin.create_topics([NewTopic(name=topic, partitions=1)])

    def joined(protocol: str) -> str:
        group = f"{topic}-{protocol}"
        own = types.JoinGroupRequest.JoinGroupRequestProtocol(name=protocol, metadata=b"")
        ask = types.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[own],
        )
        known = network.request(ask, coordinator_of=group).result(WAIT_S)
        assert known.error_code == ErrorCode.MEMBER_ID_REQUIRED
        ask.member_id = known.member_id
        made = network.request(ask, coordinator_of=group).result(WAIT_S)
        given = types.SyncGroupRequest.SyncGroupRequestAssignment(member_id=made.member_id, assignment=b"")
        sync = types.SyncGroupRequest(
            group_id=group, generation_id=made.generation_id, member_id=made.member_id, assignments=[given]
        )
        assert network.request(sync, coordinator_of=group).result(WAIT_S).error_code == ErrorCode.NONE
        return group

    yield joined
    network.stop()


@pytest.fixture
def module(tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"{topic.replace('-', '_')}_beside"
    (tmp_path / f"{name}.py").write_text(PROGRAM.replace("{topic}", topic))
    monkeypatch.syspath_prepend(tmp_path)
    return name


WHO = {
    "stream": "1 member of Java's Kafka Streams",
    "faust": "1 member of Faust",
    "range": "1 member of another client (protocol range)",
}


@pytest.mark.parametrize("protocol", WHO)
def test_who_runs_is_said_and_what_is_possible(on_broker: Command, join: Join, module: str, protocol: str) -> None:
    group, who = join(protocol), WHO[protocol]
    first, second = f"{module}:first", f"{module}:second"
    for refused, how in (
        (on_broker("topology", "diff", second, "--group", group), "before the new one"),
        (on_broker("upgrade", "plan", second, "--group", group), "with --old"),
    ):
        assert refused.code == 2
        assert f"group '{group}' has {who}, which tell no topology: give the one that they run {how}" in refused.err
    planned = on_broker("upgrade", "plan", second, "--group", group, "--old", first)
    assert planned.code == 12
    assert f"refused: {who} run, " in planned.out
    assert "no instance runs" not in planned.out
    same = on_broker("upgrade", "plan", first, "--group", group, "--old", first)
    assert same.code == (0 if protocol == "stream" else 12)
    aborted = on_broker("upgrade", "abort", first, "--group", group, "--execute")
    assert (aborted.code, f"has {who}, and none of streamsrt: there is no upgrade" in aborted.err) == (2, True)
    assert (
        f"{who} run in this group, and report no versions" in on_broker("upgrade", "status", "-g", group, "--once").out
    )
