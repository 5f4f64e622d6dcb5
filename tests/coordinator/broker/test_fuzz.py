"""Whatever a client sends, its connection is answered or closed, and the broker answers the next one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.broker.api_versions import SERVED
from coordinator.server.tcp import ProtocolViolationError
from streamsrt.wire import types
from streamsrt.wire.messages import REQUEST_VERSIONS, decode_response, encode_request
from streamsrt.wire.schema import message_class
from tests.coordinator.broker.in_process import InProcessBroker, batch, production
from tests.streamsrt.wire.samples import Sampler

CONTROL = "not-among-the-samples"
SERVED_VERSIONS = [
    (key, version)
    for key, (low, high) in SERVED.items()
    for version in range(max(low, REQUEST_VERSIONS[key][0]), high + 1)
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    made = InProcessBroker(tmp_path_factory.mktemp("fuzz") / "data")
    for name in (CONTROL, "a", "word-count"):
        made.create(name, 2)
        made.produce(name, b"v")
    yield made
    made.close()


def serve(broker: InProcessBroker, frame: bytes) -> bytes | None:
    """The answer; None without one, and where the connection would be closed."""

    async def scenario() -> Any:
        try:
            answer = broker.dispatcher.handle(frame, "127.0.0.1")
            if isawaitable(answer):
                answer = await asyncio.wait_for(answer, 30)
        except ProtocolViolationError:
            return None
        return None if answer is None else b"".join(answer)

    data: bytes | None = asyncio.run(scenario())
    return data


def is_alive(broker: InProcessBroker) -> bool:
    offset = broker.produce(CONTROL, b"alive")
    return broker.values(CONTROL, offset=offset) == [b"alive"]


def tamed(message: Any) -> Any:
    """Keeps a random request from waiting long, and from asking for what is slow by right."""
    if isinstance(message, types.FetchRequest):
        message.max_wait_ms = min(message.max_wait_ms, 1)
        message.session_epoch = min(message.session_epoch, 0)
    for topic in getattr(message, "topics", None) or ():
        if isinstance(
            topic, types.CreateTopicsRequest.CreatableTopic | types.CreatePartitionsRequest.CreatePartitionsTopic
        ):
            count = "num_partitions" if hasattr(topic, "num_partitions") else "count"
            if 20 < getattr(topic, count) <= 10_000:
                setattr(topic, count, 20)
    return message


@pytest.mark.parametrize(("key", "version"), SERVED_VERSIONS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 32))
def test_random_requests_of_every_served_version_are_answered(
    broker: InProcessBroker, key: int, version: int, seed: int
) -> None:
    message = tamed(Sampler(message_class(key, True), version, seed).message())
    data = serve(broker, encode_request(message, version, 5, "fuzz")[4:])
    if isinstance(message, types.ProduceRequest) and message.acks == 0:
        assert data is None
    else:
        assert data is not None
        assert decode_response(data[4:], key, version)[0] == 5
    assert is_alive(broker)


@pytest.mark.parametrize("key", sorted(SERVED))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 32))
def test_damaged_requests(broker: InProcessBroker, key: int, seed: int) -> None:
    generator = random.Random(seed)
    version = generator.choice([version for served, version in SERVED_VERSIONS if served == key])
    message = tamed(Sampler(message_class(key, True), version, seed).message())
    frame = bytearray(encode_request(message, version, 5, "fuzz")[4:])
    if isinstance(message, types.FetchRequest):
        # The wait stays what it is, else the test could wait as long as a damaged number says.
        safe = 14 + len("fuzz") + 16
    else:
        safe = 8
    for _ in range(generator.randint(1, 4)):
        if len(frame) <= safe:
            break
        at = generator.randrange(safe, len(frame))
        match generator.randrange(4):
            case 0:
                frame[at] = generator.randrange(256)
            case 1:
                frame[at] ^= 1 << generator.randrange(8)
            case 2:
                del frame[at : at + generator.randint(1, 9)]
            case _:
                frame[at:at] = generator.randbytes(generator.randint(1, 9))
    serve(broker, bytes(frame))
    assert is_alive(broker)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frame=st.binary(min_size=8, max_size=200))
def test_arbitrary_bytes(broker: InProcessBroker, frame: bytes) -> None:
    serve(broker, frame)
    assert is_alive(broker)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_batches_are_refused_whole(broker: InProcessBroker, data: st.DataObject) -> None:
    records = bytearray(batch(b"one", b"two", producer_id=900, producer_epoch=0, base_sequence=0))
    at = data.draw(st.integers(16, len(records) - 1))
    records[at] ^= data.draw(st.integers(1, 255))
    before = broker.values(CONTROL)
    result = broker.ask(production(CONTROL, {0: bytes(records)}), 12).responses[0].partition_responses[0]
    assert result.error_code in {2, 43, 48, 53, 87}
    assert broker.values(CONTROL) == before


def test_everything_above_survives_a_restart(tmp_path: Path) -> None:
    """What was accepted from random requests can be read back at the next start."""
    broker = InProcessBroker(tmp_path / "data")
    broker.create(CONTROL)
    for seed in range(6):
        for key, version in SERVED_VERSIONS:
            message = tamed(Sampler(message_class(key, True), version, seed).message())
            serve(broker, encode_request(message, version, 5, "fuzz")[4:])
    names = [topic.name for topic in broker.broker.topics]
    broker.restart()
    assert [topic.name for topic in broker.broker.topics] == names
    assert is_alive(broker)
    broker.close()
