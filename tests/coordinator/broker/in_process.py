"""A broker without sockets: frames in, answers out, by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any

from coordinator.broker.api_versions import SERVED
from coordinator.broker.broker import Broker, Surroundings
from coordinator.log import FileRecords, LogDirectory
from coordinator.security.acls import ANONYMOUS, Acl, Operation, PatternType, Permission, ResourceType
from coordinator.server.dispatch import Dispatcher
from coordinator.server.settings import read_configs
from coordinator.server.tcp import Parts
from streamsrt.wire import types
from streamsrt.wire.messages import decode_response, encode_request
from streamsrt.wire.records import decode_batches, encode_batch

START_MS = 1_700_000_000_000
SUPER_USER = "User:admin"
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": SUPER_USER,
}
"""Settings of a broker with ACLs."""


class InProcessBroker:
    """Requests are encoded and answers decoded, so that what a handler says must also fit its version."""

    def __init__(self, path: Path, configs: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.now_ms = START_MS
        self.set_ms = 0
        """By how much the clock was set meanwhile."""
        self._given = dict(configs or {})
        self._ids = 0
        self.principal = ANONYMOUS
        self._open()

    def _open(self) -> None:
        configs, group_config = read_configs(None, [f"{key}={value}" for key, value in self._given.items()])
        directory = LogDirectory(self.path)
        try:
            clocks = (lambda: self.now_ms + self.set_ms), (lambda: self.now_ms)
            surroundings = Surroundings(clocks[0], self._random_bytes, clocks[1])
            self.broker = Broker(directory, configs, group_config, surroundings)
            self.broker.port = 9092
            self.broker.load()
        except BaseException:
            directory.abandon()  # As the end of the process would.
            raise
        self.dispatcher = Dispatcher(self.broker)

    def _random_bytes(self, count: int) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(count, "big")

    def restart(self) -> None:
        self.broker.close()
        self._open()

    def close(self) -> None:
        self.broker.close()

    # ------------------------------------------------------------------------------------------------------- requests

    def ask(self, message: types.Message, version: int | None = None) -> Any:
        """The answer to a request that is answered at once; None if there is none."""
        answer = self.send(message, version)
        assert not isawaitable(answer), "the request waits"
        return answer

    def send(self, message: types.Message, version: int | None = None) -> Any:
        """The answer, or something to await it."""
        assert message.API_KEY is not None
        version = SERVED[message.API_KEY][1] if version is None else version
        frame = encode_request(message, version, 7, "test")[4:]
        answer = self.dispatcher.handle(frame, "127.0.0.1", self.principal)
        if isawaitable(answer):
            return self._later(answer, message.API_KEY, version)
        return self.decoded(answer, message.API_KEY, version)

    async def _later(self, answer: Any, api_key: int, version: int) -> Any:
        return self.decoded(await answer, api_key, version)

    @staticmethod
    def decoded(parts: Parts | None, api_key: int, version: int) -> Any:
        if parts is None:
            return None
        data = b"".join([part.read() if isinstance(part, FileRecords) else part for part in parts])
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        correlation_id, message = decode_response(data[4:], api_key, version)
        assert correlation_id == 7
        return message

    # ------------------------------------------------------------------------------------------------------------ ACLs

    def grant(self, *acls: Acl) -> None:
        """Makes ACLs, whoever asks at the moment."""
        creation = types.CreateAclsRequest.AclCreation
        answer = self.broker.acls.create(
            types.CreateAclsRequest(
                creations=[
                    creation(
                        resource_type=acl.resource_type,
                        resource_pattern_type=acl.pattern_type,
                        resource_name=acl.name,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls
                ]
            )
        )
        assert not any(result.error_code for result in answer.results), answer

    def revoke_all(self) -> None:
        """Removes all ACLs."""
        anything = types.DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=ResourceType.ANY,
            pattern_type_filter=PatternType.ANY,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
        )
        self.broker.acls.delete(types.DeleteAclsRequest(filters=[anything]))

    # ------------------------------------------------------------------------------------------------------ shorthands

    def create(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Creates a topic (``retention_ms="5"`` for ``retention.ms``); its id."""
        answer = self.ask(creation(name, partitions, {key.replace("_", "."): text for key, text in configs.items()}))
        assert answer.topics[0].error_code == 0, answer
        topic_id: bytes = answer.topics[0].topic_id
        return topic_id

    def topic_id(self, name: str) -> bytes:
        topic = self.broker.topics.get(name)
        assert topic is not None
        return topic.id

    def produce(self, name: str, *values: bytes, partition: int = 0, timestamp_ms: int = START_MS) -> int:
        """Appends one batch; its base offset."""
        answer = self.ask(production(name, {partition: batch(*values, timestamp_ms=timestamp_ms)}), 12)
        result = answer.responses[0].partition_responses[0]
        assert result.error_code == 0, result
        base_offset: int = result.base_offset
        return base_offset

    def values(self, name: str, partition: int = 0, offset: int = 0) -> list[bytes | None]:
        """Every value of a partition from ``offset`` on, as one fetch gives them."""
        data = self.ask(fetching(name, {partition: offset}), 12).responses[0].partitions[0]
        assert data.error_code == 0, data
        return values_of(data.records, offset)


def values_of(records: bytes | memoryview, offset: int = 0) -> list[bytes | None]:
    return [value for columns in decode_batches(bytes(records), from_offset=offset) for value in columns.values]


def batch(*values: bytes, timestamp_ms: int = START_MS, **fields: Any) -> bytes:
    """A batch as a producer sends it; the timestamps of its records go up by one."""
    timestamps = [timestamp_ms + i for i in range(len(values))]
    return encode_batch([None] * len(values), list(values), timestamps, **fields)


def creation(
    name: str, partitions: int = 1, configs: Mapping[str, str | None] | None = None, **fields: Any
) -> types.CreateTopicsRequest:
    topic = types.CreateTopicsRequest.CreatableTopic
    config = types.CreateTopicsRequest.CreatableTopicConfig
    return types.CreateTopicsRequest(
        topics=[
            topic(
                name=name,
                num_partitions=partitions,
                replication_factor=-1,
                configs=[config(name=key, value=text) for key, text in (configs or {}).items()],
            )
        ],
        timeout_ms=1000,
        **fields,
    )


def production(
    topic: str | bytes, batches: Mapping[int, bytes | None], *, acks: int = -1, transactional_id: str | None = None
) -> types.ProduceRequest:
    """A Produce request by topic name, or by id."""
    named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
    return types.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            types.ProduceRequest.TopicProduceData(
                partition_data=[
                    types.ProduceRequest.PartitionProduceData(index=index, records=records)
                    for index, records in batches.items()
                ],
                **named,  # type: ignore[arg-type]
            )
        ],
    )


def fetching(
    topic: str | bytes,
    offsets: Mapping[int, int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    **fields: Any,
) -> types.FetchRequest:
    """A Fetch request by topic name, or by id; ``fields`` are those of a partition, or of the request if it has them."""
    named = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    own = {key: fields.pop(key) for key in ("isolation_level", "session_id", "session_epoch") if key in fields}
    own.setdefault("session_epoch", -1)
    return types.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[
            types.FetchRequest.FetchTopic(
                partitions=[
                    types.FetchRequest.FetchPartition(
                        partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes, **fields
                    )
                    for partition, offset in offsets.items()
                ],
                **named,  # type: ignore[arg-type]
            )
        ],
        **own,
    )
