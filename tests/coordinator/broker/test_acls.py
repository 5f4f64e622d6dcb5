"""ACLs by request, what is kept of them, and what follows from a change."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.broker.access import java_address
from coordinator.group.settings import InvalidConfigError
from coordinator.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from tests.coordinator.broker.in_process import AUTHORIZED, SUPER_USER, InProcessBroker
from tests.coordinator.broker.test_groups import heartbeat

QUICK = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}
ADA = "User:ada"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    broker = InProcessBroker(tmp_path / "data", {**AUTHORIZED, **QUICK})
    broker.principal = SUPER_USER
    yield broker
    broker.close()


def acl(
    operation: Operation,
    name: str,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
    host: str = "*",
) -> Acl:
    return Acl(kind, pattern, name, ADA, host, operation, permission)


def creation(**fields: Any) -> types.CreateAclsRequest:
    usual = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "t",
        "principal": ADA,
        "host": "*",
        "operation": Operation.READ,
        "permission_type": Permission.ALLOW,
    }
    return types.CreateAclsRequest(creations=[types.CreateAclsRequest.AclCreation(**{**usual, **fields})])


def all_acls(broker: InProcessBroker, version: int | None = None, **fields: Any) -> list[tuple[str, str, int]]:
    usual = {
        "resource_type_filter": ResourceType.ANY,
        "pattern_type_filter": PatternType.ANY,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }
    answer = broker.ask(types.DescribeAclsRequest(**{**usual, **fields}), version)
    assert answer.error_code == 0
    return [
        (resource.resource_name, each.principal, each.operation)
        for resource in answer.resources
        for each in resource.acls
    ]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_made_shown_and_deleted_and_outlive_a_restart(broker: InProcessBroker, version: int) -> None:
    for name in ("one", "two"):
        assert broker.ask(creation(resource_name=name), version).results[0].error_code == 0
    assert broker.ask(creation(resource_name="one"), version).results[0].error_code == 0
    expected = [("one", ADA, Operation.READ), ("two", ADA, Operation.READ)]
    assert all_acls(broker, version) == expected
    broker.restart()
    assert all_acls(broker, version) == expected
    chosen = types.DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter="one",
        pattern_type_filter=PatternType.MATCH,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    result = broker.ask(types.DeleteAclsRequest(filters=[chosen]), version).filter_results[0]
    assert [(each.resource_name, each.error_code) for each in result.matching_acls] == [("one", 0)]
    broker.restart()
    assert all_acls(broker, version) == expected[1:]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": ResourceType.DELEGATION_TOKEN}, "no delegation tokens"),
        ({"resource_type": ResourceType.CLUSTER}, "only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "empty resource name"),
        ({"resource_pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"permission_type": Permission.ANY}, "Invalid permissionType ANY"),
        ({"principal": "ada"}, "no colon is present"),
    ],
)
def test_what_is_no_acl_is_refused(broker: InProcessBroker, fields: dict[str, Any], reason: str) -> None:
    result = broker.ask(creation(**fields)).results[0]
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert reason in result.error_message
    assert all_acls(broker) == []


def test_an_unknown_filter_is_refused(broker: InProcessBroker) -> None:
    answer = broker.ask(types.DescribeAclsRequest(resource_type_filter=50, operation=1, permission_type=1))
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    chosen = types.DeleteAclsRequest.DeleteAclsFilter(resource_type_filter=1, operation=77, permission_type=1)
    result = broker.ask(types.DeleteAclsRequest(filters=[chosen])).filter_results[0]
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")


def test_without_an_authorizer_there_are_no_acls_and_nothing_is_refused(tmp_path: Path) -> None:
    broker = InProcessBroker(tmp_path / "data")
    assert broker.ask(creation()).results[0].error_code == ErrorCode.SECURITY_DISABLED
    answer = broker.ask(types.DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1))
    assert answer.error_code == ErrorCode.SECURITY_DISABLED
    chosen = types.DeleteAclsRequest.DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)
    answer = broker.ask(types.DeleteAclsRequest(filters=[chosen]))
    assert answer.filter_results[0].error_code == ErrorCode.SECURITY_DISABLED
    broker.create("t")
    assert broker.produce("t", b"v") == 0
    broker.close()


def test_open_without_acl_and_closed_with_one(tmp_path: Path) -> None:
    configs = {**AUTHORIZED, "allow.everyone.if.no.acl.found": "true"}
    broker = InProcessBroker(tmp_path / "data", configs)
    broker.principal = ADA
    broker.create("t")
    assert visible(broker) == {"t"}
    broker.grant(Acl(ResourceType.TOPIC, PatternType.LITERAL, "t", "User:bob", "*", Operation.READ, Permission.ALLOW))
    assert visible(broker) == set()
    broker.close()


@pytest.mark.parametrize("setting", ["super.users=ada", "authorizer.class.name=kafka.security.Own"])
def test_settings_that_mean_nothing_are_refused(tmp_path: Path, setting: str) -> None:
    key, _, value = setting.partition("=")
    with pytest.raises(InvalidConfigError, match=key):
        InProcessBroker(tmp_path / "data", {**AUTHORIZED, key: value})


def visible(broker: InProcessBroker) -> set[str]:
    request = types.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    return {topic.name for topic in broker.ask(request, 12).topics if not topic.is_internal}


def test_hosts_and_denials(broker: InProcessBroker) -> None:
    for name in ("open", "elsewhere", "denied"):
        broker.create(name)
    broker.principal = ADA
    broker.grant(
        acl(Operation.READ, "open", host="127.0.0.1"),
        acl(Operation.READ, "elsewhere", host="10.0.0.1"),
        acl(Operation.ALL, "*"),
        acl(Operation.ALL, "den", pattern=PatternType.PREFIXED, permission=Permission.DENY),
    )
    assert visible(broker) == {"open", "elsewhere"}
    broker.revoke_all()
    broker.grant(acl(Operation.READ, "open", host="127.0.0.1"), acl(Operation.READ, "elsewhere", host="10.0.0.1"))
    assert visible(broker) == {"open"}


@pytest.mark.parametrize(
    ("address", "java"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "0:0:0:0:0:0:0:1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("local", "local")],
)
def test_addresses_are_named_as_java_names_them(address: str, java: str) -> None:
    assert java_address(address) == java


# ------------------------------------------------------------------------------------------------ authorized operations


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


@pytest.mark.requirement("SG-352")
def test_answers_tell_what_may_be_done(broker: InProcessBroker) -> None:
    broker.create("t")
    broker.ask(heartbeat("g"), 0)
    broker.principal = ADA
    group = ResourceType.GROUP
    broker.grant(acl(Operation.READ, "t"), acl(Operation.ALTER_CONFIGS, "g", group), acl(Operation.DELETE, "g", group))
    request = types.MetadataRequest(topics=None, include_topic_authorized_operations=True)
    topics = {topic.name: topic.topic_authorized_operations for topic in broker.ask(request, 12).topics}
    assert topics == {"t": bits(Operation.READ, Operation.DESCRIBE)}
    described = types.StreamsGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
    expected = bits(Operation.DESCRIBE, Operation.DELETE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
    assert broker.ask(described, 0).groups[0].authorized_operations == expected
    broker.principal = SUPER_USER
    everything = bits(
        *(Operation.READ, Operation.DESCRIBE, Operation.DELETE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
    )
    assert broker.ask(described, 0).groups[0].authorized_operations == everything
    unasked = types.StreamsGroupDescribeRequest(group_ids=["g"])
    assert broker.ask(unasked, 0).groups[0].authorized_operations == -(1 << 31)


def test_operations_on_the_cluster(broker: InProcessBroker) -> None:
    request = types.DescribeClusterRequest(include_cluster_authorized_operations=True)
    everything = bits(
        *(Operation.CREATE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
        *(Operation.IDEMPOTENT_WRITE, Operation.ALTER, Operation.DESCRIBE),
    )
    assert broker.ask(request).cluster_authorized_operations == everything
    broker.principal = ADA
    assert broker.ask(request).cluster_authorized_operations == 0
    broker.grant(acl(Operation.ALTER, "kafka-cluster", ResourceType.CLUSTER))
    assert broker.ask(request).cluster_authorized_operations == bits(Operation.ALTER, Operation.DESCRIBE)
    metadata = types.MetadataRequest(topics=[], include_cluster_authorized_operations=True)
    assert broker.ask(metadata, 8).cluster_authorized_operations == bits(Operation.ALTER, Operation.DESCRIBE)


# ---------------------------------------------------------------------------------------------------------------- groups


def consumer_beat(epoch: int = 0, **fields: Any) -> types.ConsumerGroupHeartbeatRequest:
    return types.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=epoch, rebalance_timeout_ms=1000, topic_partitions=[], **fields
    )


@pytest.mark.requirement("CG-028")
def test_a_regular_expression_means_what_may_be_described(broker: InProcessBroker) -> None:
    for name in ("orders", "orders-secret"):
        broker.create(name)
    broker.principal = ADA
    broker.grant(acl(Operation.READ, "g", ResourceType.GROUP), acl(Operation.READ, "orders"))
    answer = broker.ask(consumer_beat(subscribed_topic_regex="orders.*"), 1)
    assert {each.topic_id for each in answer.assignment.topic_partitions} == {broker.topic_id("orders")}
    broker.grant(acl(Operation.READ, "orders-secret"))
    answer = broker.ask(consumer_beat(answer.member_epoch), 1)
    ids = {each.topic_id for each in answer.assignment.topic_partitions}
    assert ids == {broker.topic_id("orders"), broker.topic_id("orders-secret")}


def streams_beat(**part: Any) -> types.StreamsGroupHeartbeatRequest:
    beat = heartbeat("g")
    assert beat.topology is not None
    kind = types.StreamsGroupHeartbeatRequest.Subtopology
    beat.topology.subtopologies = [kind(**{"subtopology_id": "0", "source_topics": ["t"], **part})]
    return beat


def test_a_pattern_of_a_topology_means_what_may_be_described(broker: InProcessBroker) -> None:
    for name in ("t", "t-secret"):
        broker.create(name)
    broker.principal = ADA
    broker.grant(acl(Operation.READ, "g", ResourceType.GROUP), acl(Operation.READ, "t"))
    answer = broker.ask(streams_beat(source_topics=[], source_topic_regex=["t.*"]), 0)
    assert answer.error_code == 0
    broker.principal = SUPER_USER
    group = broker.ask(types.StreamsGroupDescribeRequest(group_ids=["g"]), 0).groups[0]
    assert [part.source_topics for part in group.topology.subtopologies] == [["t"]]


@pytest.mark.requirement("SG-047", "SG-048", "SG-155")
def test_internal_topics_are_made_for_who_may_make_them(broker: InProcessBroker) -> None:
    broker.create("t", 2)
    broker.principal = ADA
    changelog = types.StreamsGroupHeartbeatRequest.TopicInfo(name="g-store-changelog", replication_factor=-1)
    broker.grant(
        acl(Operation.READ, "g", ResourceType.GROUP),
        acl(Operation.DESCRIBE, "g-", pattern=PatternType.PREFIXED),
        acl(Operation.READ, "t"),
    )
    answer = broker.ask(streams_beat(state_changelog_topics=[changelog]), 0)
    assert answer.error_code == 0
    [status] = answer.status
    assert "Unauthorized to CREATE on topics g-store-changelog." in status.status_detail
    assert broker.broker.topics.get("g-store-changelog") is None
    broker.grant(acl(Operation.CREATE, "g-", pattern=PatternType.PREFIXED))
    beat = types.StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=answer.member_epoch)
    broker.ask(beat, 0)
    made = broker.broker.topics.get("g-store-changelog")
    assert made is not None
    assert len(made.partitions) == 2


@pytest.mark.requirement("SG-049")
def test_internal_topics_are_made_when_a_member_asks_who_may(broker: InProcessBroker) -> None:
    broker.create("t", 2)
    changelog = types.StreamsGroupHeartbeatRequest.TopicInfo(name="g-store-changelog", replication_factor=-1)
    broker.grant(
        acl(Operation.READ, "g", ResourceType.GROUP),
        acl(Operation.DESCRIBE, "g-", pattern=PatternType.PREFIXED),
        acl(Operation.READ, "t"),
    )
    joining = streams_beat(state_changelog_topics=[changelog])
    for principal, exists in ((ADA, False), (SUPER_USER, True)):
        broker.principal = principal
        joining.member_id = principal
        assert broker.ask(joining, 0).error_code == 0
        assert (broker.broker.topics.get("g-store-changelog") is not None) == exists


def test_a_remembered_heartbeat_is_its_senders_and_ends_with_the_acls(broker: InProcessBroker) -> None:
    broker.create("t")
    broker.principal = ADA
    broker.grant(acl(Operation.READ, "g", ResourceType.GROUP), acl(Operation.READ, "t"))
    epoch = broker.ask(heartbeat("g"), 0).member_epoch
    beat = types.StreamsGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=epoch, endpoint_information_epoch=0
    )
    for _ in range(3):
        assert broker.ask(beat, 0).error_code == 0
    assert len(broker.dispatcher._repeats._known) == 1
    broker.principal = "User:bob"
    assert broker.ask(beat, 0).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    broker.principal = ADA
    assert broker.ask(beat, 0).error_code == 0
    broker.revoke_all()
    assert broker.ask(beat, 0).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.requirement("SG-046")
def test_every_topic_of_a_topology_must_be_visible(broker: InProcessBroker) -> None:
    broker.create("t")
    broker.principal = ADA
    info = types.StreamsGroupHeartbeatRequest.TopicInfo
    rest = {
        "repartition_sink_topics": ["g-out-repartition"],
        "repartition_source_topics": [info(name="g-in-repartition")],
        "state_changelog_topics": [info(name="g-changelog")],
    }
    names = ["t", "g-out-repartition", "g-in-repartition", "g-changelog"]
    for hidden in names:
        broker.revoke_all()
        broker.grant(acl(Operation.READ, "g", ResourceType.GROUP))
        broker.grant(*(acl(Operation.DESCRIBE, name) for name in names if name != hidden))
        answer = broker.ask(streams_beat(**rest), 0)
        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert hidden in answer.error_message


def test_a_streams_group_is_described_whole_or_not_at_all(broker: InProcessBroker) -> None:
    broker.create("t")
    broker.ask(heartbeat("g"), 0)
    broker.principal = ADA
    broker.grant(acl(Operation.DESCRIBE, "g", ResourceType.GROUP))
    request = types.StreamsGroupDescribeRequest(group_ids=["g"])
    group = broker.ask(request, 0).groups[0]
    assert (group.error_code, group.topology) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    broker.grant(acl(Operation.DESCRIBE, "t"))
    assert broker.ask(request, 0).groups[0].error_code == 0


def test_what_is_not_to_be_seen_is_not_told_by_deleting_it(broker: InProcessBroker) -> None:
    broker.create("t")
    broker.principal = ADA
    by_name = types.DeleteTopicsRequest(topic_names=["t", "nowhere"], timeout_ms=1000)
    assert {each.error_code for each in broker.ask(by_name, 5).responses} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    state = types.DeleteTopicsRequest.DeleteTopicState
    by_id = types.DeleteTopicsRequest(topics=[state(name=None, topic_id=broker.topic_id("t"))], timeout_ms=1000)
    [result] = broker.ask(by_id, 6).responses
    assert (result.error_code, result.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    broker.grant(acl(Operation.DESCRIBE, "*"))
    [result] = broker.ask(by_id, 6).responses
    assert (result.error_code, result.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t")
    codes = {each.name: each.error_code for each in broker.ask(by_name, 5).responses}
    assert codes == {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    broker.grant(acl(Operation.DELETE, "t"))
    assert [each.error_code for each in broker.ask(by_id, 6).responses] == [0]


def test_decisions_about_long_names_take_no_memory(broker: InProcessBroker) -> None:
    """A request may name whatever it likes: 32 kB for each of ten thousand decisions would be 300 MB for one client."""
    broker.principal = ADA

    def ask(count: int) -> None:
        for number in range(count):
            request = types.FindCoordinatorRequest(key_type=0, coordinator_keys=[f"{number}{'g' * 30_000}"])
            assert broker.ask(request).coordinators[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED

    ask(1)
    tracemalloc.start()
    try:
        ask(100)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 1 << 20
