"""Rolls an upgrade back from outside, without any action by the application's processes.

1. A member without tasks joins with the former topology under the next epoch, and leaves. From then on, the group
   refuses members with the version that is rolled back.
2. The members of that version are removed from the group. Each gives up its tasks, joins again, is refused and ends.
   Their uncommitted work is discarded: other members have their tasks.
3. Members with the former topology are not touched. Their tasks remain the same tasks under the next epoch.
4. The next epoch is taken even if the group already has the former topology: a version that is about to join has a plan for
   that epoch, which counts no more.
5. Whoever joins with the next epoch first has it. If that is another version, the rollback begins again.

It uses the members' own protocols: it works on any broker whose groups accept a new topology.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from streamsrt.assignment.digest import topology_digest
from streamsrt.client.interface import GroupMember
from streamsrt.client.network import NetworkThread
from streamsrt.config import StreamsConfig
from streamsrt.errors import RequestFailedError, StreamsError
from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.membership.values import NOTHING, Leave, MembershipFailed, ReportOwned, SetTaskOffsets
from streamsrt.runtime.assembly import Surroundings, joined, membership_of
from streamsrt.runtime.group_facts import GroupFacts, MemberFacts, look, part_topics
from streamsrt.runtime.topology_version import digest_tag
from streamsrt.wire.error_codes import ErrorCode
from topology.graph.topology import Topology

_POLL_S = 0.1


def runs(member: MemberFacts, topology: Topology) -> bool:
    """Whether a member reports that it runs this topology."""
    return member.digest is not None and topology.digest.startswith(member.digest)


def members_to_remove(facts: GroupFacts, former: Topology) -> list[MemberFacts]:
    """Members with a later epoch than those that run the former topology; if nobody runs it, all with another version.

    A member with an earlier epoch is kept: it is older still, or the former topology is itself being rolled out.
    """
    epochs = [each.epoch for each in facts.members if runs(each, former) and each.epoch is not None]
    lowest = min(epochs, default=-1)
    others = [each for each in facts.members if not runs(each, former)]
    return [each for each in others if each.epoch is not None and each.epoch > lowest]


def has_epoch_of(facts: GroupFacts, former: Topology) -> bool:
    """Whether the group's epoch already belongs to the former topology, as far as the group reports it.

    A streams group of Apache Kafka, or of an earlier broker, reports topics only. The same topics with other steps between
    them count as the former topology there if the epoch was raised twice since: by the version that is rolled back, and by
    this rollback.
    """
    if facts.epoch is None:
        return False
    newest = facts.with_epoch(facts.epoch)
    if newest:
        return any(runs(each, former) for each in newest)
    if facts.known_digest:
        return former.digest.startswith(facts.known_digest)
    metadata = topology_metadata(replace(former, epoch=facts.epoch), facts.name)
    if facts.topics is None:
        return facts.digest == topology_digest(metadata, digest_tag(former))
    epochs = [each.epoch for each in facts.members if runs(each, former) and each.epoch is not None]
    return facts.topics == frozenset(map(part_topics, metadata.subtopologies)) and facts.epoch >= 2 + max(
        epochs, default=-1
    )


def raise_epoch(network: NetworkThread, config: StreamsConfig, former: Topology, timeout_s: float) -> bool:
    """Makes ``former``, with its epoch, the topology of the group. ``config`` has the group's protocol.

    Returns false if another version has taken that epoch, or a later one, in the meantime. Raises what the group refuses a
    member with, and RequestFailedError where it takes too long.
    """
    # It runs no tasks and answers no queries, and must not be confused with an instance that has an id.
    config = StreamsConfig.of(config, group_instance_id=None, application_server=None)
    surroundings = Surroundings.of_this_machine()
    membership = membership_of(config, former, str(uuid.uuid4()), uuid.uuid4())
    visitor = joined(config, membership, SetTaskOffsets({}, {}), network, surroundings)
    try:
        _wait(visitor, lambda: _is_taken(network, config.application_id, former), timeout_s, former.epoch)
    except StreamsError:
        epoch = look(network.admin, config.application_id).epoch
        if epoch is None or epoch < former.epoch:
            raise
        return False
    finally:
        visitor.send(Leave())
        _wait(visitor, lambda: visitor.join(0), timeout_s, former.epoch)
    return True


def _is_taken(network: NetworkThread, group: str, former: Topology) -> bool:
    facts = look(network.admin, group)
    newest = facts.with_epoch(former.epoch)
    return facts.epoch == former.epoch and bool(newest) and all(runs(each, former) for each in newest)


def _wait(visitor: GroupMember, holds: Callable[[], bool], timeout_s: float, epoch: int) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        visitor.polled()
        failures = [each.error for each in visitor.events() if isinstance(each, MembershipFailed)]
        if failures:
            failure: StreamsError = failures[0]
            raise failure
        visitor.send(ReportOwned(NOTHING))
        if time.monotonic() > deadline:
            raise RequestFailedError(
                f"the group did not accept topology epoch {epoch} within {timeout_s:g} s: see streamsrt upgrade "
                "status, and try again",
                ErrorCode.REQUEST_TIMED_OUT,
            )
        time.sleep(_POLL_S)
