"""ACLs on the bundled broker and on Apache Kafka: every API asks for the same rights, and Kafka's tools set them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from coordinator.security.acls import Acl, PatternType, Permission
from streamsrt.wire import types
from tests.coordinator.broker.authorization.requests import CASES, LISTINGS, Case, Need, denials, setup_requests
from tests.fixtures_brokers import require_kafka
from tests.interop.admin_tools import AdminTools
from tests.interop.guarded import PASSWORD, GuardedBroker, creations
from tests.system.processes import AppProcess, run_command

PATIENCE_S = 60.0
BROKER_REFUSES, FENCED = 3, 6
pytestmark = [pytest.mark.system, pytest.mark.kafka]


class Step(NamedTuple):
    """A case asked by a user who has all rights but these, or none at all."""

    case: Case
    user: str
    granted: tuple[Need, ...]
    expected: set[int]


def steps() -> Iterator[Step]:
    for number, case in enumerate(CASES):
        yield Step(case, f"u{number}n", (), {case.needs[0].code})
        for place, missing in enumerate(case.needs):
            left = tuple(need for need in case.needs if need is not missing)
            if left:
                yield Step(case, f"u{number}p{place}", left, {missing.code})
        yield Step(case, f"u{number}a", case.needs, set())


STEPS = tuple(steps())
USERS = [*(step.user for step in STEPS), *(f"l{number}{kind}" for number in range(len(LISTINGS)) for kind in "na")]
OTHERS = ["ada", "bob"]


@pytest.fixture(scope="module", params=["bundled", "kafka"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    require_kafka()
    with GuardedBroker(request.param, tmp_path_factory.mktemp("guarded"), [*USERS, *OTHERS]) as made:
        yield made


def eventually(look: Callable[[], Any], expected: Any) -> None:
    """Looks until the expected is seen: Apache Kafka's broker hears of a change some time after the client."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) != expected:
        assert time.monotonic() < deadline, found


def error_codes(message: object) -> set[int]:
    if isinstance(message, list):
        return {code for each in message for code in error_codes(each)}
    names = [name for name in getattr(message, "__slots__", ()) if name != "unknown_tags"]
    own = {getattr(message, name) for name in names if name.endswith("error_code")}
    return own.union(*(error_codes(getattr(message, name)) for name in names if not name.endswith("error_code")))


@pytest.mark.requirement("CG-028", "CG-189", "CG-198", "CG-204", "CG-208", "GA-016", "GA-055", "SG-045")
def test_every_api_asks_for_the_same_rights(broker: GuardedBroker) -> None:
    acls = [need.granted_to(f"User:{step.user}") for step in STEPS for need in step.granted]
    for number, listing in enumerate(LISTINGS):
        acls += [
            Acl(kind, PatternType.LITERAL, name, f"User:l{number}a", "*", operation, Permission.ALLOW)
            for operation, kind, name in listing.rights
        ]
    with broker.wire("admin") as admin:
        for request, version in setup_requests():
            eventually(lambda request=request, version=version: error_codes(admin.ask(request, version)) - {36}, {0})
        assert error_codes(admin.ask(creations(acls), 3)) == {0}
        eventually(lambda: count_of_acls(admin), len(set(acls)))
    found = {step.user: asked(broker, step.user, step.case) for step in STEPS}
    wrong = {(step.case.name, step.granted): found[step.user] for step in STEPS if found[step.user] != step.expected}
    assert wrong == {}
    for number, listing in enumerate(LISTINGS):
        for kind, expected in (("n", set()), ("a", {listing.expected})):
            with broker.wire(f"l{number}{kind}") as wire:
                seen = listing.seen(wire.ask(listing.make(), listing.version))
            assert seen & {listing.expected} == expected, listing.name


def asked(broker: GuardedBroker, user: str, case: Case) -> set[int]:
    with broker.wire(user) as wire:
        return denials(wire.ask(case.make(user), case.version))


def count_of_acls(admin: Any) -> int:
    anything = types.DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    others = {f"User:{user}" for user in (*OTHERS, "nobody")}
    found = (acl for resource in admin.ask(anything, 3).resources for acl in resource.acls)
    return sum(acl.principal not in others for acl in found)


def test_kafka_acls_grants_and_revokes(broker: GuardedBroker) -> None:
    tools = AdminTools(broker.servers)
    config = ("--command-config", str(broker.properties("admin")))
    rule = ("--allow-principal", "User:ada", "--producer", "--topic", "tool-", "--resource-pattern-type", "prefixed")
    assert tools.tool("AclCommand", *config, "--list", "--topic", "tool-1").output.strip() == ""
    assert tools.tool("AclCommand", *config, "--add", *rule).code == 0
    match = ("--list", "--topic", "tool-1", "--resource-pattern-type", "match")

    def listed() -> list[str]:
        lines = tools.tool("AclCommand", *config, *match).output.splitlines()
        return sorted(line.strip() for line in lines if "principal=User:ada" in line)

    expected = [
        f"(principal=User:ada, host=*, operation={operation}, permissionType=ALLOW)"
        for operation in ("CREATE", "DESCRIBE", "WRITE")
    ]
    eventually(listed, expected)
    eventually(lambda: produced(broker, "ada", "tool-1"), None)
    assert tools.tool("AclCommand", *config, "--remove", "--force", *rule).code == 0
    eventually(listed, [])
    eventually(lambda: produced(broker, "ada", "tool-1"), KafkaError.TOPIC_AUTHORIZATION_FAILED)
    denied = tools.tool("AclCommand", "--command-config", str(broker.properties("bob")), "--list")
    assert "Cluster authorization failed" in denied.text or "ClusterAuthorizationException" in denied.text
    tools.close()


def produced(broker: GuardedBroker, user: str, topic: str) -> int | None:
    """The error of producing one record, None if it is there."""
    found: list[int | None] = []
    producer = Producer({**broker.client(user), "message.timeout.ms": 30_000})
    producer.produce(topic, b"v", on_delivery=lambda error, _: found.append(error.code() if error else None))
    assert producer.flush(PATIENCE_S) == 0
    return found[0]


APPLICATION = """
from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
names = builder.stream("names", key=serdes.string, value=serdes.string)
counts = names.group_by_key().count(store="counts")
counts.to_stream().to("counted", key=serdes.string, value=serdes.integer)
topology = builder.build()
"""


def test_an_application_says_which_acl_is_missing(broker: GuardedBroker, tmp_path: Path) -> None:
    """It is given what its messages ask for, one after the other; each command is the one that the message says."""
    (tmp_path / "counting.py").write_text(APPLICATION, encoding="utf-8")
    admin = AdminClient(broker.client("admin"))
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in ("names", "counted")]).values():
        future.result(PATIENCE_S)
    assert produced(broker, "admin", "names") is None
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": PASSWORD,
    }
    changelog, group = "counting-counts-changelog", "counting"
    app = AppProcess(tmp_path / "app", "counting:topology", group, broker.servers, login, cwd=tmp_path)
    grant(admin, ResourceType.TOPIC, AclOperation.DESCRIBE, "counted")
    with app:
        assert app.wait_end() == BROKER_REFUSES
        assert f"User:ada lacks READ on group '{group}'." in app.last_words
        assert f"--allow-principal User:ada --operation READ --group {group}" in app.last_words
    grant(admin, ResourceType.GROUP, AclOperation.READ, group)
    with app:
        assert app.wait_end() == FENCED
        command = f"--allow-principal User:ada --operation DESCRIBE --topic {changelog} --topic names"
        assert command in app.last_words
    grant(admin, ResourceType.TOPIC, AclOperation.DESCRIBE, changelog, "names")
    with app:
        command = f"--allow-principal User:ada --operation CREATE --topic {changelog}"
        app.wait_for(lambda line: command in str(line), "it says what it needs for its internal topic")
        grant(admin, ResourceType.TOPIC, AclOperation.CREATE, changelog)
        assert app.wait_end() != 0
        assert "--allow-principal User:ada --operation READ --topic" in app.last_words


@pytest.mark.parametrize("counts", [True, False], ids=["repartitioned", "stateless"])
def test_nothing_is_committed_without_what_may_not_be_written(
    broker: GuardedBroker, tmp_path: Path, counts: bool
) -> None:
    """Exactly once, with each batch sent at once: the refusal comes between two commits."""
    group, source, target = (f"{name}-{'counts' if counts else 'maps'}" for name in ("unwritable", "given", "taken"))
    written = "group_by(lambda k, v: v).count(store='counts').to_stream()" if counts else "map_values(str.upper)"
    value = "integer" if counts else "string"
    (tmp_path / "unwritable.py").write_text(
        "from topology import StreamsBuilder, serdes\n"
        "builder = StreamsBuilder()\n"
        f"given = builder.stream('{source}', key=serdes.string, value=serdes.string)\n"
        f"given.{written}.to('{target}', key=serdes.string, value=serdes.{value})\n"
        "topology = builder.build()\n",
        encoding="utf-8",
    )
    admin = AdminClient(broker.client("admin"))
    for future in admin.create_topics([NewTopic(name, 2, 1) for name in (source, target)]).values():
        future.result(PATIENCE_S)
    producer = Producer(broker.client("admin"))
    for number in range(100):
        producer.produce(source, f"v{number}".encode(), f"k{number}".encode())
    assert producer.flush(PATIENCE_S) == 0
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": PASSWORD,
        "processing.guarantee": "exactly_once_v2",
        "linger.ms": 0,
    }
    internal = [f"{group}-counts-{kind}" for kind in ("repartition", "changelog")] if counts else []
    grant(admin, ResourceType.GROUP, AclOperation.READ, group)
    prefixed = ResourcePatternType.PREFIXED
    grant(admin, ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE, group, pattern=prefixed)
    for operation in (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.CREATE):
        grant(admin, ResourceType.TOPIC, operation, source, target, *internal)
    first = internal[0] if counts else target
    options = [word for name, each in settings.items() for word in ("--config", f"{name}={each}")]
    for _ in range(3):
        done = run_command(
            *("run", "unwritable:topology", "-a", group, "-b", broker.servers, "--state-dir", tmp_path / "state"),
            *("--until", "quiet", *options),
            cwd=tmp_path,
        )
        assert done.returncode == 3, done.stderr
        assert f"lacks WRITE on topic '{first}'" in done.stderr
        assert f"--operation WRITE --topic {first}" in done.stderr
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    offsets = [each.offset for each in found.result(PATIENCE_S).topic_partitions if each.topic == source]
    assert max(offsets, default=0) <= 0


def test_a_leader_that_may_not_make_topics_says_which_acl_is_missing(broker: GuardedBroker, tmp_path: Path) -> None:
    """With ``group.protocol=classic`` the instances make the internal topics; the application waits, and then runs."""
    program = APPLICATION.replace('"names"', '"called"').replace('"counted"', '"called-counts"')
    (tmp_path / "calling.py").write_text(program, encoding="utf-8")
    admin = AdminClient(broker.client("admin"))
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in ("called", "called-counts")]).values():
        future.result(PATIENCE_S)
    assert produced(broker, "admin", "called") is None
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": PASSWORD,
        "group.protocol": "classic",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
    }
    changelog, group = "calling-counts-changelog", "calling"
    grant(admin, ResourceType.GROUP, AclOperation.READ, group)
    for operation in (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE):
        grant(admin, ResourceType.TOPIC, operation, "called", "called-counts", changelog)
    with AppProcess(tmp_path / "app", "calling:topology", group, broker.servers, settings, cwd=tmp_path) as app:
        command = f"--allow-principal User:ada --operation CREATE --topic {changelog}"
        app.wait_for(lambda line: command in str(line), "it says what it needs for its internal topic")
        grant(admin, ResourceType.TOPIC, AclOperation.CREATE, changelog)
        app.wait_running(tasks=1)
        assert app.terminate() == 0


def grant(
    admin: AdminClient,
    kind: ResourceType,
    operation: AclOperation,
    *names: str,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> None:
    """Grants ada something, and waits until the broker knows."""
    rule = (pattern, "User:ada", "*", operation, AclPermissionType.ALLOW)
    for future in admin.create_acls([AclBinding(kind, name, *rule) for name in names]).values():
        future.result(PATIENCE_S)
    for name in names:
        wanted = AclBindingFilter(kind, name, *rule)
        eventually(lambda wanted=wanted: len(admin.describe_acls(wanted).result(PATIENCE_S)), 1)


def test_librdkafka_manages_acls(broker: GuardedBroker) -> None:
    admin = AdminClient(broker.client("admin"))
    rule = ("lib", ResourcePatternType.LITERAL, "User:bob", "127.0.0.1", AclOperation.READ, AclPermissionType.ALLOW)
    binding = AclBinding(ResourceType.TOPIC, *rule)
    for future in admin.create_acls([binding]).values():
        future.result(PATIENCE_S)
    wanted = AclBindingFilter(ResourceType.TOPIC, "lib", *rule[1:])
    eventually(lambda: admin.describe_acls(wanted).result(PATIENCE_S), [binding])
    [deleted] = admin.delete_acls([wanted]).values()
    assert deleted.result(PATIENCE_S) == [binding]
    eventually(lambda: admin.describe_acls(wanted).result(PATIENCE_S), [])
