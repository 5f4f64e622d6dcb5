"""A broker in a thread, for what a real one can't be made to do on command: errors, lost answers, garbage, old versions.

It speaks real frames over a real socket. Its log keeps an idempotent producer to the rules of KIP-98, strictly: a batch that
neither continues the sequence nor repeats one of the last five is refused.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import decode_request, encode_response
from streamsrt.wire.records import patch_base_offset, read_header
from streamsrt.wire.schema import ApiKey
from tests.streams_server import StreamsServer

DROP = object()
"""As an answer: close the connection instead."""

TopicPartition = tuple[str, int]
Hook = Callable[[Any], Any]

VERSIONS: dict[int, tuple[int, int]] = {
    ApiKey.PRODUCE: (3, 12),
    ApiKey.FETCH: (4, 12),
    ApiKey.METADATA: (4, 12),
    ApiKey.FIND_COORDINATOR: (1, 4),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_FETCH: (8, 9),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 1),
}


class PartitionLog:
    """Whole batches, and the last sequences of each producer."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.start_offset = 0
        self.recent: dict[int, deque[tuple[int, int, int]]] = {}

    def append(self, batch: bytes) -> tuple[int, int]:
        """``(error code, base offset)``."""
        header = read_header(batch)
        recent = self.recent.setdefault(header.producer_id, deque(maxlen=5))
        first, last = header.base_sequence, header.last_sequence
        for known_first, known_last, base_offset in recent:
            if (known_first, known_last) == (first, last):
                return ErrorCode.NONE, base_offset
        if first != (recent[-1][1] + 1 if recent else 0):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        base_offset = self.end_offset
        recent.append((first, last, base_offset))
        self.batches.append(patch_base_offset(batch, base_offset, 0) + batch[16:])
        self.end_offset += header.records_count
        return ErrorCode.NONE, base_offset

    def read(self, offset: int) -> bytes:
        return b"".join(batch for batch in self.batches if read_header(batch).last_offset >= offset)


class ScriptedBroker:
    """``hooks[api key]`` may answer a request itself (or DROP), or return None to let the broker answer. ``raw``: bytes that
    are sent to whoever connects instead of anything else. ``after``: called with each request that was carried out; DROP
    keeps its answer back and closes the connection."""

    def __init__(self, topics: dict[str, int] | None = None) -> None:
        self.topics = dict(topics or {})
        self.versions = dict(VERSIONS)
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.hooks: dict[int, Hook] = {}
        self.after: dict[int, Hook] = {}
        self.raw: bytes | None = None
        self.refuse: Callable[[bytes], tuple[int, list[int]] | None] = lambda _: None
        self.requests: list[Any] = []
        self.connections = 0
        self.committed: dict[TopicPartition, tuple[int, str]] = {}
        self.port = 0
        self._next_producer_id = 1000
        self._loop = asyncio.new_event_loop()
        self._server = StreamsServer(self._serve)
        self._tls: ssl.SSLContext | None = None
        self._appended = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    # --------------------------------------------------------------------------------------------------- from the test

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, tls: ssl.SSLContext | None = None) -> ScriptedBroker:
        self._tls = tls or self._tls
        if not self._thread.is_alive():
            self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def go_down(self) -> None:
        """Refuse connections, and break those that are open."""
        asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result(10)

    def stop(self) -> None:
        self.go_down()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def log(self, topic: str, partition: int) -> PartitionLog:
        return self.logs.setdefault((topic, partition), PartitionLog())

    def count(self, kind: type) -> int:
        return sum(isinstance(request, kind) for request in self.requests)

    # ----------------------------------------------------------------------------------------------------- on its loop

    async def _listen(self) -> None:
        self.port = await self._server.listen("127.0.0.1", self.port, tls=self._tls)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            if self.raw is not None:
                writer.write(self.raw)
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                if self.raw is None:
                    answer = await self._answer(frame)
                    if answer is None:
                        break
                    writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass

    async def _answer(self, frame: bytes) -> bytes | None:
        header, request = decode_request(frame)
        self.requests.append(request)
        response = self.hooks.get(header.api_key, lambda _: None)(request)
        if response is None:
            response = await self._carry_out(header, request)
            if self.after.get(header.api_key, lambda _: None)(request) is DROP:
                response = DROP
        if response is DROP:
            return None
        # KIP-511: who does not know the version of ApiVersions answers in version 0.
        refused = header.api_key == ApiKey.API_VERSIONS and response.error_code == ErrorCode.UNSUPPORTED_VERSION
        version = 0 if refused else header.api_version
        return encode_response(response, header.api_key, version, header.correlation_id)

    async def _carry_out(self, header: Any, request: Any) -> Any:
        if isinstance(request, types.FetchRequest):
            return await self._fetch(request)
        handler = getattr(self, "_on_" + ApiKey(header.api_key).name.lower())
        return handler(request)

    def _on_api_versions(self, _: Any) -> Any:
        keys = [
            types.ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        return types.ApiVersionsResponse(api_keys=keys)

    def _on_metadata(self, request: Any) -> Any:
        response = types.MetadataResponse
        names = list(self.topics) if request.topics is None else [topic.name for topic in request.topics]
        topics = []
        for name in names:
            if name not in self.topics:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topics.append(response.MetadataResponseTopic(error_code=error, name=name, topic_id=bytes(16)))
                continue
            partitions = [
                response.MetadataResponsePartition(partition_index=n, leader_id=1, leader_epoch=0, replica_nodes=[1])
                for n in range(self.topics[name])
            ]
            topics.append(response.MetadataResponseTopic(name=name, topic_id=bytes(16), partitions=partitions))
        broker = response.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
        return response(brokers=[broker], cluster_id="scripted", controller_id=1, topics=topics)

    def _on_find_coordinator(self, request: Any) -> Any:
        response = types.FindCoordinatorResponse
        found = [
            response.Coordinator(key=key, node_id=1, host="127.0.0.1", port=self.port)
            for key in request.coordinator_keys
        ]
        return response(coordinators=found, node_id=1, host="127.0.0.1", port=self.port)

    def _on_init_producer_id(self, _: Any) -> Any:
        self._next_producer_id += 1
        return types.InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=0)

    def _on_produce(self, request: Any) -> Any:
        response = types.ProduceResponse
        topics = []
        for topic in request.topic_data:
            results = []
            for data in topic.partition_data:
                refused = self.refuse(bytes(data.records))
                if refused is not None:
                    blamed = [response.BatchIndexAndErrorMessage(batch_index=index) for index in refused[1]]
                    results.append(
                        response.PartitionProduceResponse(
                            index=data.index, error_code=refused[0], base_offset=-1, record_errors=blamed
                        )
                    )
                    continue
                code, offset = self.log(topic.name, data.index).append(bytes(data.records))
                results.append(response.PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset))
            topics.append(response.TopicProduceResponse(name=topic.name, partition_responses=results))
        self._appended.set()
        self._appended.clear()
        return response(responses=topics)

    async def _fetch(self, request: Any) -> Any:
        answer, size = self._fetched(request)
        if size == 0:
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await self._appended.wait()
            except TimeoutError:
                pass
            answer, size = self._fetched(request)
        return answer

    def _fetched(self, request: Any) -> tuple[Any, int]:
        response, size, topics = types.FetchResponse, 0, []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                log = self.log(topic.topic, asked.partition)
                data = response.PartitionData(
                    partition_index=asked.partition,
                    high_watermark=log.end_offset,
                    last_stable_offset=log.end_offset,
                    log_start_offset=log.start_offset,
                    aborted_transactions=None,
                    records=None,
                )
                if not log.start_offset <= asked.fetch_offset <= log.end_offset:
                    data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                    size += 1
                else:
                    data.records = log.read(asked.fetch_offset)[: asked.partition_max_bytes]
                    size += len(data.records)
                partitions.append(data)
            topics.append(response.FetchableTopicResponse(topic=topic.topic, partitions=partitions))
        return response(responses=topics), size

    def _on_offset_commit(self, request: Any) -> Any:
        response = types.OffsetCommitResponse
        topics = []
        for topic in request.topics:
            for each in topic.partitions:
                self.committed[topic.name, each.partition_index] = (each.committed_offset, each.committed_metadata)
            results = [
                response.OffsetCommitResponsePartition(partition_index=p.partition_index) for p in topic.partitions
            ]
            topics.append(response.OffsetCommitResponseTopic(name=topic.name, partitions=results))
        return response(topics=topics)

    def _on_streams_group_heartbeat(self, request: Any) -> Any:
        tasks: list[Any] | None = [] if request.member_epoch == 0 else None
        return types.StreamsGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=request.member_epoch if request.member_epoch < 0 else 1,
            heartbeat_interval_ms=50,
            task_offset_interval_ms=60_000,
            status=None,
            active_tasks=tasks,
            standby_tasks=tasks,
            warmup_tasks=tasks,
        )


def failing(times: int, answer: Hook) -> Hook:
    """A hook that answers the first ``times`` requests."""
    left = [times]

    def hook(request: Any) -> Any:
        if left[0] == 0:
            return None
        left[0] -= 1
        return answer(request)

    return hook


def produce_error(code: int) -> Hook:
    """Refuse every partition of a Produce request."""
    response = types.ProduceResponse

    def hook(request: Any) -> Any:
        return response(
            responses=[
                response.TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        response.PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
                        for data in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    return hook


def fetch_error(code: int) -> Hook:
    """Refuse every partition of a Fetch request."""
    response = types.FetchResponse

    def hook(request: Any) -> Any:
        return response(
            responses=[
                response.FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[
                        response.PartitionData(partition_index=p.partition, error_code=code, records=None)
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return hook
