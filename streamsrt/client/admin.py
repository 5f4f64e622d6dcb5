"""Administrative requests of an operator, or of an application that starts.

Each is one coroutine; retriable errors are retried until the deadline. The contract is
:class:`streamsrt.client.interface.Administering`, without its default timeouts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

from streamsrt.client.cluster import Cluster, Purpose, backoff_s, may_be_retried
from streamsrt.client.metadata import NO_LEADER, Metadata, TopicMetadata
from streamsrt.client.values import (
    ClusterInfo,
    GroupListing,
    NewTopic,
    OffsetAndTimestamp,
    RequestTimedOutError,
    TopicInfo,
    TopicPartition,
)
from streamsrt.errors import RequestFailedError, StreamsError, missing_acl
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode, error_message, error_name, is_retriable
from streamsrt.wire.schema import Message, Request

R = TypeVar("R", bound=Message)
T = TypeVar("T")

TOPIC_RESOURCE = 2
GROUP_RESOURCE = 32
SET_CONFIG, DELETE_CONFIG = 0, 1
NO_CONTROLLER = -1
_SET_FOR_THE_TOPIC = 1
"""The source of a config that was given to the topic itself."""
MAX_TIMESTAMP_VERSION = 9
ONLY_TYPE_BEFORE_FILTERS = "classic"


def _refused(what: str, code: int, message: str | None) -> RequestFailedError:
    return RequestFailedError(f"{what}: {message or error_message(code)} ({error_name(code)})", code)


def _result(what: str, code: int, message: str | None) -> RequestFailedError | None:
    return None if code == ErrorCode.NONE else _refused(what, code, message)


class Admin:
    """Implements the requests (see the module). Belongs to the network thread's loop."""

    def __init__(self, cluster: Cluster, metadata: Metadata) -> None:
        self._cluster = cluster
        self._metadata = metadata

    async def _described(self, names: Collection[str] | None) -> dict[str, TopicMetadata]:
        """Describes these topics, or all. Raises RequestFailedError for those that this client may not describe."""
        found = await self._metadata.fetch(names)
        hidden = sorted(set(names or ()) & self._metadata.hidden)
        if hidden:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            right = missing_acl("DESCRIBE", "topic", hidden, self._cluster.config.security.principal)
            raise RequestFailedError(f"Topics can't be described ({error_name(code)}). {right}", code)
        return found

    async def retrying(self, attempt: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """Repeats ``attempt`` until it succeeds, fails for good, or the time is up (RequestTimedOutError)."""
        loop = asyncio.get_running_loop()
        deadline, failures = loop.time() + timeout_s, 0
        while True:
            try:
                return await self._cluster.within(attempt(), deadline)
            except StreamsError as error:
                if not may_be_retried(error):
                    raise
                pause_s = backoff_s(self._cluster.config, failures)
                if loop.time() + pause_s >= deadline:
                    raise RequestTimedOutError(f"No success within {timeout_s:g} s: {error}") from error
                await asyncio.sleep(pause_s)
                failures += 1

    # -------------------------------------------------------------------------------------------------------- topics

    async def cluster(self) -> ClusterInfo:
        return await self._metadata.cluster_info()

    async def topics(self, names: Collection[str] | None) -> dict[str, TopicInfo]:
        found = await self._described(names)
        return {name: topic.info for name, topic in found.items()}

    async def create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool, timeout_s: float
    ) -> dict[str, StreamsError | None]:
        request = types.CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=max(1, int(timeout_s * 1000)),
            validate_only=validate_only,
        )
        response = await self._send_to_controller(request)
        results: dict[str, StreamsError | None] = {
            each.name: _result(f"Topic {each.name!r} was not created", each.error_code, each.error_message)
            for each in response.topics
        }
        self._retry_if_all(results)
        if not validate_only:
            await self._wait_for_leaders(results, {topic.name: 0 for topic in topics}, timeout_s)
        return results

    async def _wait_for_leaders(
        self, results: Mapping[str, StreamsError | None], counts: Mapping[str, int], timeout_s: float
    ) -> None:
        """Waits until the successfully changed topics have leaders. ``counts``: their minimum partition counts."""
        done = {name: counts[name] for name, error in results.items() if error is None}
        if done:
            await self.retrying(lambda: self._check_leaders(done), timeout_s)

    async def _check_leaders(self, counts: Mapping[str, int]) -> None:
        found = await self._described(counts)
        for name, least in counts.items():
            topic = found.get(name)
            leaders = {} if topic is None else topic.leaders
            if topic is None or len(leaders) < least or any(each.node_id == NO_LEADER for each in leaders.values()):
                raise RequestFailedError(f"Topic {name!r} has no leader yet.", ErrorCode.LEADER_NOT_AVAILABLE)

    async def create_partitions(self, counts: Mapping[str, int], timeout_s: float) -> dict[str, StreamsError | None]:
        wanted = types.CreatePartitionsRequest.CreatePartitionsTopic
        request = types.CreatePartitionsRequest(
            topics=[wanted(name=name, count=count, assignments=None) for name, count in counts.items()],
            timeout_ms=max(1, int(timeout_s * 1000)),
            validate_only=False,
        )
        response = await self._send_to_controller(request)
        results: dict[str, StreamsError | None] = {
            each.name: _result(f"Topic {each.name!r} did not get more partitions", each.error_code, each.error_message)
            for each in response.results
        }
        self._retry_if_all(results)
        await self._wait_for_leaders(results, counts, timeout_s)
        return results

    async def delete_topics(self, names: Collection[str], timeout_s: float) -> dict[str, StreamsError | None]:
        request = types.DeleteTopicsRequest(
            topics=[types.DeleteTopicsRequest.DeleteTopicState(name=name) for name in names],
            topic_names=list(names),
            timeout_ms=max(1, int(timeout_s * 1000)),
        )
        response = await self._send_to_controller(request)
        return {
            str(each.name): _result(
                f"Topic {each.name!r} was not deleted", each.error_code, getattr(each, "error_message", None)
            )
            for each in response.responses
        }

    def _retry_if_all(self, results: Mapping[str, StreamsError | None]) -> None:
        """Raises if every result is a temporary error, so that the request is repeated: there is no controller yet, or
        another one."""
        errors = list(results.values())
        if errors and all(isinstance(e, RequestFailedError) and is_retriable(e.error_code) for e in errors):
            self._cluster.controller_id = NO_CONTROLLER
            assert errors[0] is not None
            raise errors[0]

    async def _send_to_controller(self, request: Request[R]) -> R:
        if self._cluster.controller_id not in self._cluster.brokers:
            await self._metadata.cluster_info()
        known = self._cluster.controller_id in self._cluster.brokers
        return await self._cluster.send(request, node=self._cluster.controller_id if known else None)

    async def describe_topic_configs(
        self, names: Collection[str], *, only_set: bool = False
    ) -> dict[str, dict[str, str | None]]:
        return await self._described_configs(TOPIC_RESOURCE, "Topic", names, only_set=only_set)

    async def _described_configs(
        self, kind: int, what: str, names: Collection[str], *, only_set: bool = False
    ) -> dict[str, dict[str, str | None]]:
        resource = types.DescribeConfigsRequest.DescribeConfigsResource
        request = types.DescribeConfigsRequest(
            resources=[resource(resource_type=kind, resource_name=name, configuration_keys=None) for name in names]
        )
        response = await self._cluster.send(request)
        configs = {}
        for each in response.results:
            if each.error_code != ErrorCode.NONE:
                raise _refused(f"{what} {each.resource_name!r}", each.error_code, each.error_message)
            configs[each.resource_name] = {
                config.name: config.value
                for config in each.configs
                if not only_set or config.config_source == _SET_FOR_THE_TOPIC
            }
        return configs

    # ------------------------------------------------------------------------------------------------------- records

    async def list_offsets(
        self, partitions: Mapping[TopicPartition, int], read_committed: bool
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        request = types.ListOffsetsRequest
        for node, group in (await self._by_leader(partitions)).items():
            topics: dict[str, list[types.ListOffsetsRequest.ListOffsetsPartition]] = {}
            for topic, partition in group:
                each = request.ListOffsetsPartition(partition_index=partition, timestamp=partitions[topic, partition])
                topics.setdefault(topic, []).append(each)
            response = await self._cluster.send(
                request(
                    replica_id=-1,
                    isolation_level=1 if read_committed else 0,
                    topics=[request.ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
                ),
                node=node,
                version_max=MAX_TIMESTAMP_VERSION,
            )
            for answer in response.topics:
                for listed in answer.partitions:
                    if listed.error_code != ErrorCode.NONE:
                        self._metadata.request_update()
                        raise _refused(f"Offsets of {answer.name}-{listed.partition_index}", listed.error_code, None)
                    found[answer.name, listed.partition_index] = OffsetAndTimestamp(
                        listed.offset, listed.timestamp, listed.leader_epoch
                    )
        return found

    async def delete_records(self, before: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, int]:
        low: dict[TopicPartition, int] = {}
        request = types.DeleteRecordsRequest
        for node, group in (await self._by_leader(before)).items():
            topics: dict[str, list[types.DeleteRecordsRequest.DeleteRecordsPartition]] = {}
            for topic, partition in group:
                each = request.DeleteRecordsPartition(partition_index=partition, offset=before[topic, partition])
                topics.setdefault(topic, []).append(each)
            response = await self._cluster.send(
                request(
                    topics=[request.DeleteRecordsTopic(name=name, partitions=each) for name, each in topics.items()],
                    timeout_ms=max(1, int(timeout_s * 1000)),
                ),
                node=node,
            )
            for answer in response.topics:
                for deleted in answer.partitions:
                    if deleted.error_code != ErrorCode.NONE:
                        raise _refused(f"Records of {answer.name}-{deleted.partition_index}", deleted.error_code, None)
                    low[answer.name, deleted.partition_index] = deleted.low_watermark
        return low

    async def _by_leader(self, partitions: Collection[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Groups partitions by the broker that leads them; those of topics that do not exist are left out."""
        found: dict[str, TopicMetadata] = await self._described({topic for topic, _ in partitions})
        groups: dict[int, list[TopicPartition]] = {}
        for topic, partition in partitions:
            leader = found[topic].leaders.get(partition) if topic in found else None
            if leader is None:
                continue
            if leader.node_id == NO_LEADER:
                raise RequestFailedError(f"{topic}-{partition} has no leader.", ErrorCode.LEADER_NOT_AVAILABLE)
            groups.setdefault(leader.node_id, []).append((topic, partition))
        return groups

    # -------------------------------------------------------------------------------------------------------- groups

    async def describe_group_configs(self, group_id: str) -> dict[str, str | None]:
        return (await self._described_configs(GROUP_RESOURCE, "Configs of group", [group_id]))[group_id]

    async def alter_group_configs(self, group_id: str, configs: Mapping[str, str | None]) -> None:
        await self._alter_configs(GROUP_RESOURCE, "Configs of group", group_id, configs)

    async def alter_topic_configs(self, name: str, configs: Mapping[str, str | None]) -> None:
        await self._alter_configs(TOPIC_RESOURCE, "Configs of topic", name, configs)

    async def _alter_configs(self, kind: int, what: str, resource_name: str, configs: Mapping[str, str | None]) -> None:
        request = types.IncrementalAlterConfigsRequest
        entries = [
            request.AlterableConfig(
                name=name, config_operation=DELETE_CONFIG if value is None else SET_CONFIG, value=value
            )
            for name, value in configs.items()
        ]
        resource = request.AlterConfigsResource(resource_type=kind, resource_name=resource_name, configs=entries)
        response = await self._cluster.send(request(resources=[resource]))
        for each in response.responses:
            if each.error_code != ErrorCode.NONE:
                raise _refused(f"{what} {resource_name!r}", each.error_code, each.error_message)

    async def list_groups(self, group_types: Sequence[str]) -> list[GroupListing]:
        listed: list[GroupListing] = []
        await self._metadata.cluster_info()
        for node in sorted(self._cluster.brokers):
            request = types.ListGroupsRequest(types_filter=list(group_types))
            response = await self._cluster.send(request, node=node)
            if response.error_code != ErrorCode.NONE:
                raise _refused(f"Groups of broker {node}", response.error_code, None)
            listed += [
                GroupListing(g.group_id, g.group_type or ONLY_TYPE_BEFORE_FILTERS, g.protocol_type, g.group_state)
                for g in response.groups
            ]
        # Before version 5 (Kafka 3.8), brokers don't know the filter and don't report the type.
        wanted = {name.lower() for name in group_types}
        found = (group for group in listed if not wanted or group.group_type.lower() in wanted)
        return sorted(found, key=lambda group: group.group_id)

    async def describe_streams_groups(
        self, group_ids: Sequence[str]
    ) -> list[types.StreamsGroupDescribeResponse.DescribedGroup]:
        described = []
        for group_id in group_ids:
            request = types.StreamsGroupDescribeRequest(group_ids=[group_id])
            group = (await self._cluster.send_to_coordinator(group_id, request)).groups[0]
            self._check_coordinator(group_id, group.error_code)
            described.append(group)
        return described

    async def describe_classic_groups(
        self, group_ids: Sequence[str]
    ) -> list[types.DescribeGroupsResponse.DescribedGroup]:
        described = []
        for group_id in group_ids:
            request = types.DescribeGroupsRequest(groups=[group_id])
            group = (await self._cluster.send_to_coordinator(group_id, request)).groups[0]
            self._check_coordinator(group_id, group.error_code)
            described.append(group)
        return described

    async def delete_groups(self, group_ids: Sequence[str]) -> dict[str, StreamsError | None]:
        results: dict[str, StreamsError | None] = {}
        for group_id in group_ids:
            request = types.DeleteGroupsRequest(groups_names=[group_id])
            result = (await self._cluster.send_to_coordinator(group_id, request)).results[0]
            self._check_coordinator(group_id, result.error_code)
            results[group_id] = _result(f"Group {group_id!r} was not deleted", result.error_code, result.error_message)
        return results

    def _check_coordinator(self, group_id: str, code: int) -> None:
        if is_retriable(code):
            self._cluster.forget_coordinator(group_id)
            raise _refused(f"Group {group_id!r}", code, None)

    async def request(
        self,
        message: Request[R],
        node: int | None,
        coordinator_of: str | None,
        controller: bool,
        version_max: int | None,
    ) -> R:
        """Sends any request, once."""
        version = 1000 if version_max is None else version_max
        if coordinator_of is not None:
            return await self._cluster.send_to_coordinator(coordinator_of, message, version_max=version)
        if controller:
            return await self._send_to_controller(message)
        return await self._cluster.send(message, node=node, purpose=Purpose.ADMIN, version_max=version)


def _creatable(topic: NewTopic) -> types.CreateTopicsRequest.CreatableTopic:
    request = types.CreateTopicsRequest
    return request.CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=[request.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )
