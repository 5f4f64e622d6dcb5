"""Speed of the codecs, each message beside kio in the same run: python -m tests.bench.bench_wire"""

from __future__ import annotations

import io
import timeit
from collections.abc import Callable

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from streamsrt.wire import types
from streamsrt.wire.messages import decode, encode, encode_parts, warm
from streamsrt.wire.schema import Message

ROUNDS = 7


def best_us(call: Callable[[], object]) -> float:
    timer = timeit.Timer(call)
    count, _ = timer.autorange()
    count = max(1, count // 5)
    return min(timer.repeat(ROUNDS, count)) / count * 1e6


def steady_heartbeat() -> Message:
    return types.StreamsGroupHeartbeatRequest(
        group_id="word-count", member_id="M7aOLLvOT82W50k7Zyw_qg", member_epoch=7, endpoint_information_epoch=3
    )


def joining_heartbeat() -> Message:
    request = types.StreamsGroupHeartbeatRequest
    return request(
        group_id="word-count",
        member_id="M7aOLLvOT82W50k7Zyw_qg",
        rebalance_timeout_ms=300_000,
        process_id="efc89f62-ab13-48c3-bfd6-8fe639fdbbb3",
        topology=request.Topology(
            subtopologies=[
                request.Subtopology(
                    subtopology_id=str(i),
                    source_topics=[f"topic-{i}"],
                    state_changelog_topics=[request.TopicInfo(name=f"store-{i}-changelog", replication_factor=-1)],
                    repartition_sink_topics=[f"repartition-{i}"],
                )
                for i in range(5)
            ]
        ),
        active_tasks=[request.TaskIds(subtopology_id=str(i), partitions=list(range(10))) for i in range(5)],
        standby_tasks=[],
        warmup_tasks=[],
        client_tags=[],
    )


def heartbeat_answer() -> Message:
    response = types.StreamsGroupHeartbeatResponse
    return response(
        member_id="M7aOLLvOT82W50k7Zyw_qg",
        member_epoch=7,
        heartbeat_interval_ms=5000,
        status=[],
        active_tasks=[response.TaskIds(subtopology_id=str(i), partitions=list(range(10))) for i in range(5)],
        standby_tasks=[],
        warmup_tasks=[],
    )


def fetch_request() -> Message:
    request = types.FetchRequest
    return request(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=[
            request.FetchTopic(
                topic_id=bytes(range(16)),
                partitions=[
                    request.FetchPartition(partition=i, fetch_offset=1000 * i, partition_max_bytes=1 << 20)
                    for i in range(10)
                ],
            )
        ],
    )


def fetch_response(records: bytes) -> Message:
    response = types.FetchResponse
    return response(
        responses=[
            response.FetchableTopicResponse(
                topic_id=bytes(range(16)),
                partitions=[
                    response.PartitionData(
                        partition_index=i,
                        high_watermark=5000,
                        last_stable_offset=5000,
                        log_start_offset=0,
                        aborted_transactions=None,
                        records=records,
                    )
                    for i in range(10)
                ],
            )
        ]
    )


def metadata_response() -> Message:
    response = types.MetadataResponse
    return response(
        brokers=[response.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092)],
        cluster_id="5L6g3nShT-eMCtK--X86sw",
        topics=[
            response.MetadataResponseTopic(
                name="words",
                topic_id=bytes(range(16)),
                partitions=[
                    response.MetadataResponsePartition(partition_index=i, leader_id=1, replica_nodes=[1], isr_nodes=[1])
                    for i in range(100)
                ],
            )
        ],
    )


def offset_commit() -> Message:
    request = types.OffsetCommitRequest
    return request(
        group_id="word-count",
        member_id="M7aOLLvOT82W50k7Zyw_qg",
        generation_id_or_member_epoch=7,
        topics=[
            request.OffsetCommitRequestTopic(
                name="words",
                partitions=[
                    request.OffsetCommitRequestPartition(partition_index=i, committed_offset=i) for i in range(10)
                ],
            )
        ],
    )


def produce_request() -> Message:
    request = types.ProduceRequest
    data = request.PartitionProduceData(index=0, records=bytes(16 << 10))
    return request(
        acks=-1, timeout_ms=30_000, topic_data=[request.TopicProduceData(name="words", partition_data=[data])]
    )


CASES = [
    ("StreamsGroupHeartbeat request, steady", steady_heartbeat, 88, True, 0),
    ("the same, joining: 5 subtopologies, 50 tasks", joining_heartbeat, 88, True, 0),
    ("StreamsGroupHeartbeat response, 50 tasks", heartbeat_answer, 88, False, 0),
    ("Fetch request, 10 partitions", fetch_request, 1, True, 17),
    ("Fetch response, 10 empty partitions", lambda: fetch_response(b""), 1, False, 17),
    ("Fetch response, 10 x 100 KiB", lambda: fetch_response(bytes(100 << 10)), 1, False, 17),
    ("Metadata response, 100 partitions", metadata_response, 3, False, 12),
    ("OffsetCommit request, 10 partitions", offset_commit, 8, True, 9),
    ("Produce request, 16 KiB", produce_request, 0, True, 9),
]


def main() -> None:
    warm({case[2] for case in CASES})
    print(f"{'us':46} {'bytes':>8} {'encode':>8} {'parts':>8} {'decode':>8} {'kio enc':>8} {'kio dec':>8}")
    for name, make, key, is_request, version in CASES:
        message = make()
        cls = type(message)
        data = encode(message, version)
        entity = (load_request_schema if is_request else load_response_schema)(key, version)
        read, write = entity_reader(entity), entity_writer(entity)
        theirs = read(data, 0)[0]
        times = (
            best_us(lambda message=message, version=version: encode(message, version)),
            best_us(lambda message=message, version=version: encode_parts(message, version)),
            best_us(lambda cls=cls, version=version, data=data: decode(cls, version, data)),
            best_us(lambda write=write, theirs=theirs: write(io.BytesIO(), theirs)),
            best_us(lambda read=read, data=data: read(data, 0)),
        )
        print(f"{name:46} {len(data):8} " + " ".join(f"{t:8.2f}" for t in times))


if __name__ == "__main__":
    main()
