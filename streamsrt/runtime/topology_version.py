"""Checks which version of the topology ran last: with this state directory, and in the other members of the group.

1. The same topology epoch with another topology is refused: before the group is joined, so that the others do not
   notice, and again when it is joined and no task is open yet. Two versions that start at the same moment may each look
   before the other has joined, but not after both have. Apache Kafka compares topics and stores only; this check, and
   the bundled broker, compare the whole structure, by its digest. The broker also does while nobody runs that epoch.
2. With another epoch, everything may change except the format of a store: the contents of a store of the same name must
   be readable, and a generated name or a side of a join must stand for the same, in the other members, too
   (:mod:`streamsrt.runtime.store_origins`). The coordinator decides which of two versions is the newer one. With a state
   directory of a later version of values, only what that has really written counts (:mod:`streamsrt.runtime.later_values`).
3. In a classic group, an instance with a ``group.instance.id`` replaces the one that has it, before the group judges its
   version. So one whose epoch is too early does not join.
4. Without another member, the ends of the changelogs tell whether a later version has written values that this one can't
   read. What the windows of rows mean is not in them: a version with other windows is refused by the members and by its
   state directory alone.
5. The version is written down when the member runs and has had a task: a version that is refused, or waits for its
   source topics in vain, leaves no trace. So is the version of a backfill that installs the state of all stores.

The digest of a member is among its client tags, where the other members find it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from streamsrt.assignment.value_versions import ValueVersion, written_versions
from streamsrt.client.interface import Administering
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import OffsetAndMetadata, TopicPartition
from streamsrt.config import StreamsConfig
from streamsrt.errors import BrokerError, TopologyMismatchError
from streamsrt.membership.shared_endpoints import shared_endpoint_text
from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.membership.values import GroupMembership
from streamsrt.runtime.group_facts import settled_classic_group
from streamsrt.runtime.left_records import refuse_left_records
from streamsrt.runtime.store_origins import (
    RunningMember,
    check_origins,
    continues_generated,
    may_be_misread,
    warn_of_unknown,
)
from streamsrt.runtime.written_values import newer_values_written
from streamsrt.state.failures import storage_error
from streamsrt.state.private_files import write_private
from streamsrt.wire import types
from streamsrt.wire.client_tags import TOPOLOGY_DIGEST, VALUE_VERSIONS
from topology.graph.diff import diff
from topology.graph.nodes import internal_topic_name
from topology.graph.outline import StoreOutline, TopologyOutline, outline
from topology.graph.topology import Topology

logger = logging.getLogger(__name__)

FILE = "topology.json"
_TAG_DIGITS = 16
_LOOKED_AT_START = 50
"""Records of each partition of a changelog: few, as each start of a first instance reads them."""


def digest_tag(topology: Topology) -> dict[str, str]:
    """Returns the client tag with the version of a member."""
    return {TOPOLOGY_DIGEST: topology.digest[:_TAG_DIGITS]}


def versions_tag(topology: Topology, application_id: str) -> dict[str, str]:
    """Returns the client tag with the versions of the values in its stores; none if all have version 1."""
    versions = {
        internal_topic_name(application_id, spec.changelog_name): ValueVersion(
            spec.version, frozenset(version for version, _ in spec.upcasts)
        )
        for part in topology.subtopologies
        for spec in part.stores
        if spec.has_own_changelog
    }
    written = written_versions(versions)
    return {VALUE_VERSIONS: written} if written else {}


def check_joined(config: StreamsConfig, topology: Topology, admin: Administering, membership: GroupMembership) -> None:
    """Checks the group as :func:`check_group` does, for a member that has joined it."""
    check_group(config, topology, admin, own=membership)


def check_group(
    config: StreamsConfig,
    topology: Topology,
    admin: Administering,
    on_disk: LocalVersion | None = None,
    own: GroupMembership | None = None,
) -> bool:
    """Requests the group's members and checks them; whether there are none. Raises TopologyMismatchError as
    :func:`check_members` does, and BrokerError.

    ``on_disk``: of an instance that starts. ``own``: a member that has joined; in a streams group, it is warned of another
    instance with its endpoint (members of a classic group find out by themselves). Warns
    if nobody can tell what generated store names stand for.
    """
    name = config.application_id
    # A version without an epoch is the first one, or the running one.
    is_later = topology.epoch > 0
    if config.group_protocol != "classic":
        (group,) = admin.describe_streams_groups([name])
        check_members(name, topology, group)
        if own is not None:
            warn_of_shared_endpoint(group, own)
        is_alone = not group.members
    elif may_be_misread(topology) and (is_later or on_disk is not None):
        # The group's leader compares versions by their digests.
        if is_later and on_disk is not None and not on_disk.has_run:
            # Its members are described only between rebalances, and one that stops for an upgrade begins one.
            classic = settled_classic_group(admin, name)
        else:
            (classic,) = admin.describe_classic_groups([name])
        if is_later:
            check_origins(name, topology, _classic_members(classic))
        is_alone = not classic.members
    else:
        return False
    is_unknown = is_alone and config.topology_lock is None and on_disk is not None and on_disk.is_first
    if is_later and is_unknown and continues_generated(topology):
        warn_of_unknown(name, topology, admin)
    return is_alone


def check_start(
    config: StreamsConfig,
    topology: Topology,
    network: NetworkThread,
    on_disk: LocalVersion,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    """Checks the group as :func:`check_group` does, and the ends of changelogs if no other instance runs that could tell
    what it writes. ``committed``: the group's offsets. Raises TopologyMismatchError, BrokerError."""
    if config.group_protocol == "classic" and config.group_instance_id is not None:
        (classic,) = network.admin.describe_classic_groups([config.application_id])
        check_replaced(classic, config.group_instance_id, topology)
    if not check_group(config, topology, network.admin, on_disk):
        return
    if config.group_protocol != "classic":
        refuse_left_records(config, topology, network.admin, committed)
    try:
        stores = (spec for part in topology.subtopologies for spec in part.stores)
        found = list(
            newer_values_written(network, config.application_id, stores, records=_LOOKED_AT_START, at_start=True)
        )
    except BrokerError as error:
        logger.debug("it is not known whether a later version has written values of stores: %s", error)
        return
    newer = [
        f"the values of store {each.spec.name!r} in {each.topic} have version {each.version}, and it reads them up to "
        f"{each.spec.version}"
        for each in found
    ]
    if newer:
        raise TopologyMismatchError(
            f"Application {config.application_id!r}: this version can't read what a later one has written: "
            f"{'; '.join(newer)}. There is no way back: continue with the later version, or a corrected one"
        )


def check_replaced(
    described: types.DescribeGroupsResponse.DescribedGroup, instance_id: str, topology: Topology
) -> None:
    """Raises TopologyMismatchError if a static member of a classic group would be replaced by an instance that is refused
    afterwards: then nobody would be left under that id.

    The broker gives the instance what the replaced one has been assigned, which tells the epoch of the group.
    """
    from streamsrt.membership.classic.stream_layout import decode_own_assignment  # not needed in streams groups

    for each in described.members:
        told = decode_own_assignment(described.protocol_data, each.member_assignment)
        if each.group_instance_id == instance_id and told is not None and told.group_epoch > topology.epoch:
            raise TopologyMismatchError(
                f"Application {described.group_id!r} runs topology epoch {told.group_epoch}, and this version has epoch "
                f"{topology.epoch}: the group would refuse it. An instance with group.instance.id {instance_id} is in the "
                f"group ({_member_name(each.member_id, each.client_host)}) and would be ended by this one, so this one does "
                f"not join. Start the version that the group runs. To go back, run `streamsrt upgrade abort OLD --group "
                f"{described.group_id}`"
            )


def check_members(
    application_id: str, topology: Topology, described: types.StreamsGroupDescribeResponse.DescribedGroup
) -> None:
    """Raises TopologyMismatchError if a member of the group runs another topology with the same epoch, or if one of its
    stores has other contents. Warns of a later version that has nothing in common with what they run.

    ``described``: the group's entry in the answer to StreamsGroupDescribe; one with an error has no members.
    """
    mine = digest_tag(topology)[TOPOLOGY_DIGEST]
    is_other = is_other_application(application_id, topology, described)
    for member in described.members:
        theirs = {tag.key: tag.value for tag in member.client_tags}.get(TOPOLOGY_DIGEST, mine)
        if member.topology_epoch == topology.epoch and theirs != mine:
            what = (
                f"another application: {_NOTHING_SHARED}. Both have" if is_other else "another topology under the same"
            )
            raise TopologyMismatchError(
                f"Application {application_id!r}: {_member_name(member.member_id, member.client_host)} runs "
                f"{what} topology epoch {topology.epoch}. {_advice(topology.epoch + 1)}"
            )
    if is_other and described.topology is not None and described.topology.epoch < topology.epoch:
        logger.warning(
            "application %r: this version takes all tasks of the members of the group, as its topology epoch, %d, is later, "
            "but seems to be another application: %s. If it is, stop it, and give it another application.id",
            application_id,
            topology.epoch,
            _NOTHING_SHARED,
        )
    check_origins(application_id, topology, _streams_members(described))


def is_other_application(
    application_id: str, topology: Topology, described: types.StreamsGroupDescribeResponse.DescribedGroup
) -> bool:
    """Whether members run what has no topic in common with this topology, of sources, repartition steps or stores. A
    pattern may mean any topic."""
    theirs = [] if described.topology is None else described.topology.subtopologies or []
    mine = topology_metadata(topology, application_id).subtopologies
    has_patterns = any(part.source_topic_regex for part in mine) or any(not _inputs(part) for part in theirs)
    if not described.members or not theirs or has_patterns:
        return False
    return _topics(mine).isdisjoint(_topics(theirs))


_Part: TypeAlias = types.StreamsGroupDescribeResponse.Subtopology | types.StreamsGroupHeartbeatRequest.Subtopology


def _inputs(part: _Part) -> set[str]:
    return {*part.source_topics, *(topic.name for topic in part.repartition_source_topics)}


def _topics(parts: Iterable[_Part]) -> set[str]:
    found: set[str] = set()
    for part in parts:
        found |= _inputs(part) | {topic.name for topic in part.state_changelog_topics}
    return found


def warn_of_shared_endpoint(described: types.StreamsGroupDescribeResponse.DescribedGroup, own: GroupMembership) -> None:
    """Logs a warning if a member of another process has the member's endpoint."""
    endpoint = own.endpoint
    if endpoint is None:
        return
    others = [
        _member_name(each.member_id, each.client_host)
        for each in described.members
        if each.process_id != own.process_id
        and each.user_endpoint is not None
        and (each.user_endpoint.host, each.user_endpoint.port) == (endpoint.host, endpoint.port)
    ]
    if others:
        logger.warning("%s", shared_endpoint_text(endpoint, f"member {own.member_id}", others))


def _streams_members(described: types.StreamsGroupDescribeResponse.DescribedGroup) -> Iterator[RunningMember]:
    for each in described.members:
        tags = {tag.key: tag.value for tag in each.client_tags}
        yield RunningMember(_member_name(each.member_id, each.client_host), each.topology_epoch, tags)


def _classic_members(described: types.DescribeGroupsResponse.DescribedGroup) -> Iterator[RunningMember]:
    """Yields our own members. During a rebalance the group does not report their subscriptions."""
    from streamsrt.membership.classic.stream_layout import decode_own_subscription  # not needed in streams groups

    for each in described.members:
        said = decode_own_subscription(described.protocol_data, each.member_metadata)
        if said is not None:
            yield RunningMember(_member_name(each.member_id, each.client_host), said.topology_epoch, said.client_tags)


def _member_name(member_id: str, host: str) -> str:
    return f"member {member_id} on {host.lstrip('/')}"


def misread_stores(before: TopologyOutline, after: TopologyOutline) -> str:
    """The stores whose state ``after`` would misread, and why; empty if there are none."""
    misread = (change for change in diff(before, after).state if change.fate == "incompatible")
    return "; ".join(f"store {change.name!r}: {change.reason}" for change in misread if change.kind == "store")


def remember_version(path: Path, outline: Mapping[str, object]) -> None:
    """Writes down which version the state in ``path``, the directory of an application, is of. ``outline``: as
    :meth:`~topology.graph.outline.TopologyOutline.to_json` gives it. Raises StateError."""
    made = (path / FILE).with_suffix(f".{os.getpid()}.tmp")
    try:
        write_private(made, json.dumps(outline, indent=1) + "\n", durably=True)
        os.replace(made, path / FILE)
    except OSError as error:
        raise storage_error(str(error), f"the version of the topology in {path / FILE}", "written") from error


class LocalVersion:
    """The version that ran last with a state directory. ``path`` is the directory of the application."""

    def __init__(self, path: Path, topology: Topology) -> None:
        self._file = path / FILE
        self._outline = outline(topology)
        self._remembered = False

    @property
    def is_first(self) -> bool:
        """Whether no version has run with this state directory."""
        return self._last() is None

    @property
    def has_run(self) -> bool:
        """Whether it was this version that ran last with this state directory."""
        last = self._last()
        return last is not None and last.digest == self._outline.digest

    def check(self) -> None:
        """Raises TopologyMismatchError if this version may not follow the one that ran last, whatever that has written into
        :meth:`later_stores`."""
        last = self._last()
        if last is None:
            return
        if last.epoch == self._outline.epoch and last.digest != self._outline.digest:
            raise TopologyMismatchError(
                f"The topology is not the one that ran last with the state in {self._file.parent}, and both have topology "
                f"epoch {last.epoch}. {_advice(last.epoch + 1, self._file)}"
            )
        listed = misread_stores(_as_before_writing(last, self._outline), self._outline)
        if listed:
            raise TopologyMismatchError(
                f"The state in {self._file.parent} would be misread by this version: {listed}. `streamsrt topology diff "
                f"{self._file} NEW` shows all changes."
            )

    def later_stores(self) -> set[str]:
        """The stores into which the version that ran last writes values that this one can't read, by the names that their
        state was begun with."""
        last = self._last()
        mine = {store.kept_as: store.version for store in self._outline.stores}
        stores = () if last is None else last.stores
        return {store.kept_as for store in stores if store.version > mine.get(store.kept_as, store.version)}

    def remember(self) -> None:
        """Writes this version down. Raises StateError."""
        if self._remembered:
            return
        remember_version(self._file.parent, self._outline.to_json())
        self._remembered = True

    def _last(self) -> TopologyOutline | None:
        try:
            return TopologyOutline.from_json(json.loads(self._file.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError):
            # The file is missing or has another format: the coordinator's comparison remains.
            return None


def _as_before_writing(last: TopologyOutline, mine: TopologyOutline) -> TopologyOutline:
    """The last version without the later versions of its values: with what it took over."""
    stores = {store.kept_as: store for store in mine.stores}
    return replace(last, stores=tuple(_taken_over(each, stores.get(each.kept_as)) for each in last.stores))


def _taken_over(last: StoreOutline, mine: StoreOutline | None) -> StoreOutline:
    if mine is None or last.version <= mine.version:
        return last
    serde = last.upcasts.get(str(mine.version)) or mine.value_serde
    return replace(last, version=mine.version, value_serde=serde, upcasts={})


_NOTHING_SHARED = "the two have no source topic, repartition topic and store in common"


def _advice(epoch: int, last: Path | None = None) -> str:
    return (
        "If this is another application, give it another application.id. If it is a new version: "
        f"`streamsrt topology diff {last or 'OLD'} NEW` shows what happens to the running state; then run the new version "
        f"with topology.epoch={epoch}, or the unchanged old one."
    )
