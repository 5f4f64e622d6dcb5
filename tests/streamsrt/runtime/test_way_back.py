"""What keeps a group from going back, where not everything can be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator.security.acls import Acl
from streamsrt.assignment.value_versions import ValueVersion
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic, SecurityConfig
from streamsrt.runtime.group_facts import GroupFacts, MemberFacts
from streamsrt.runtime.way_back import WayBack
from streamsrt.wire.records import encode_batch
from tests.interop.guarded import PASSWORD, GuardedBroker, creations
from topology.spec.row_versions import MAGIC

LOG = "back-rows-changelog"
TAGGED = MAGIC + (2).to_bytes(2, "big") + b"value"
WAIT_S = 30.0
TOPIC, LITERAL, DESCRIBE, READ, ALLOW = 2, 3, 8, 3, 3


@contextmanager
def connected(broker: GuardedBroker, user: str) -> Iterator[NetworkThread]:
    security = SecurityConfig(protocol="SASL_PLAINTEXT", sasl_username=user, sasl_password=PASSWORD)
    network = NetworkThread(ClientConfig(bootstrap_servers=broker.servers, security=security))
    network.start()
    yield network
    network.stop()


def member(epoch: int) -> MemberFacts:
    return MemberFacts(
        member_id=f"m{epoch}",
        instance_id=None,
        process_id="",
        client_id="back",
        host="there",
        epoch=epoch,
        digest=f"d{epoch}",
        value_versions={LOG: ValueVersion(2)} if epoch else {},
    )


@pytest.mark.parametrize("operation", [READ, DESCRIBE])
def test_who_may_not_read_changelogs_sees_the_group_nevertheless(tmp_path: Path, operation: int) -> None:
    facts = GroupFacts(name="back", kind="streams", state="Stable", epoch=1, members=(member(0), member(1)))
    with GuardedBroker("bundled", tmp_path, ["watcher"]) as broker:
        with connected(broker, "admin") as admin:
            admin.admin.create_topics([NewTopic(name=LOG, partitions=1)])
            admin.producer.send(LOG, 0, encode_batch([b"k"], [TAGGED], [0]), 1)
            admin.producer.flush(WAIT_S)
            right = Acl(TOPIC, LITERAL, LOG, "User:watcher", "*", operation, ALLOW)
            admin.request(creations([right])).result(WAIT_S)
        with connected(broker, "watcher") as network:
            found = WayBack(network).look(facts, {}).later_values
            assert found == ({LOG: 2} if operation == READ else {})
