"""``streamsrt groups remove-members``, on both brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig
from streamsrt.errors import RequestFailedError
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from tests.streamsrt.cli.conftest import Command, Done

PATIENCE_S = 30.0
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
_NUMBERS = count()


@pytest.fixture
def network(bootstrap_servers: str) -> Iterator[NetworkThread]:
    made = NetworkThread(ClientConfig(bootstrap_servers=bootstrap_servers))
    made.start(timeout_s=PATIENCE_S)
    yield made
    made.stop()


@pytest.fixture
def remove(command: Command, bootstrap_servers: str) -> Command:
    def run(*arguments: object, stdin: str = "") -> Done:
        return command("groups", "remove-members", *arguments, "-b", bootstrap_servers, stdin=stdin)

    return run


@pytest.fixture
def group() -> str:
    return f"remove-{next(_NUMBERS)}"


def until(holds: Callable[[], bool]) -> None:
    """A broker that has just started does not know its groups yet."""
    pause = threading.Event()
    for _ in range(600):
        if holds():
            return
        pause.wait(0.05)
    raise AssertionError("the broker does not take the request")


def beat(network: NetworkThread, group: str, instance: str, epoch: int) -> None:
    """A heartbeat of the member of an instance: 0 joins, -2 goes away."""
    request = types.StreamsGroupHeartbeatRequest(
        group_id=group, member_id=f"member-{instance}", member_epoch=epoch, instance_id=instance
    )
    if epoch == 0:
        subtopology = types.StreamsGroupHeartbeatRequest.Subtopology(subtopology_id="0", source_topics=["t"])
        request.topology = types.StreamsGroupHeartbeatRequest.Topology(epoch=0, subtopologies=[subtopology])
        request.rebalance_timeout_ms = 10_000
        request.active_tasks, request.standby_tasks, request.warmup_tasks = [], [], []
        request.process_id, request.client_tags = instance, []

    def is_taken() -> bool:
        try:
            answer = network.request(request, coordinator_of=group).result(PATIENCE_S)
        except RequestFailedError as error:
            if error.error_code not in NOT_YET:
                raise
            return False
        assert answer.error_code in {0, *NOT_YET}, answer
        return not answer.error_code

    until(is_taken)


def instances(network: NetworkThread, group: str) -> set[str | None]:
    return {member.instance_id for member in network.admin.describe_streams_groups([group])[0].members}


def test_who_is_away_is_removed_and_who_runs_stays(network: NetworkThread, remove: Command, group: str) -> None:
    for instance in ("a", "b", "c"):
        beat(network, group, instance, 0)
    for instance in ("a", "b"):
        beat(network, group, instance, -2)
    said = remove(group, "--all", "--json")
    assert (said.code, {row["instance"] for row in said.rows}) == (0, {"a", "b"})
    assert "nothing is changed: use --execute to do it" in said.err
    assert instances(network, group) == {"a", "b", "c"}

    done = remove(group, "--instance", "a", "--execute", "--json")
    assert (done.code, [row["instance"] for row in done.rows]) == (0, ["a"])
    assert instances(network, group) == {"b", "c"}
    done = remove(group, "--all", "--execute")
    left = (
        "left out: 1 member, running or killed. One that was killed counts as running until its session expires, and is "
        "then removed anyway\n"
    )
    assert (done.code, done.err) == (0, f"{left}removed 1 member of group {group}\n")
    assert instances(network, group) == {"c"}
    assert remove(group, "--all", "--execute").err == f"{left}removed 0 members of group {group}\n"

    running = remove(group, "--instance", "c", "--execute")
    assert running.code == 2
    assert f"c of group {group} is running: stop the instance first" in running.err
    missing = remove(group, "--instance", "x", "--instance", "c", "--execute")
    assert missing.code == 2
    assert f"group {group} has no member with the group.instance.id x; it has: c" in missing.err
    beat(network, group, "c", -1)


def test_members_of_a_classic_group_are_removed_by_instance_or_all(
    network: NetworkThread, remove: Command, group: str
) -> None:
    request = types.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        # A member that sends no SyncGroup in that time is removed: commands take a while.
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[types.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        group_instance_id="a",
    )

    def is_in() -> bool:
        try:
            return not network.request(request, coordinator_of=group).result(PATIENCE_S).error_code
        except RequestFailedError as error:
            if error.error_code not in NOT_YET:
                raise
            return False

    def members() -> list[str | None]:
        wanted = types.DescribeGroupsRequest(groups=[group])
        (described,) = network.request(wanted, coordinator_of=group).result(PATIENCE_S).groups
        return [member.group_instance_id for member in described.members]

    until(is_in)
    assert remove(group, "--instance", "a").code == 0
    assert members() == ["a"]
    assert remove(group, "--instance", "a", "--execute").code == 0
    assert members() == []
    until(is_in)
    assert remove(group, "--all", "--execute").code == 0
    assert members() == []


def test_whom_to_remove_is_said_once(remove: Command, group: str) -> None:
    for arguments in ((), ("--all", "--instance", "a")):
        done = remove(group, *arguments)
        assert (done.code, done.err) == (
            2,
            "streamsrt: give the members to remove: --instance ID (repeatable) or --all\n",
        )
    assert remove("nobody", "--all").err == (
        "streamsrt: no such group: nobody (streamsrt groups list shows all groups)\n"
    )
