"""What a broker sends is cut into frames, however it arrives."""

from __future__ import annotations

import asyncio

from hypothesis import example, given
from hypothesis import strategies as st

from streamsrt.client.frames import BUFFER_BYTES, Frames
from streamsrt.wire.primitives import Buffer

LIMIT_BYTES = 4 * BUFFER_BYTES


class Owner:
    """Keeps what it gets, and is closed after so many frames."""

    def __init__(self, frames_max: int = 1_000) -> None:
        self.frames: list[bytearray] = []
        self.reasons: list[str] = []
        self._frames_max = frames_max

    @property
    def closed(self) -> bool:
        return len(self.frames) >= self._frames_max

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...

    def buffer_of(self, size_bytes: int) -> Buffer:
        return bytearray(size_bytes)

    def frame_received(self, frame: Buffer) -> None:
        self.frames.append(bytearray(frame))

    def not_kafka(self, reason: str) -> None:
        self.reasons.append(reason)


def sent(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def arrive(frames: Frames, data: bytes, pieces: list[int]) -> int:
    """The data comes in pieces of these sizes, in turn, as far as there is room for them. Returns the number of reads."""
    at = reads = 0
    while at < len(data):
        view = frames.get_buffer(-1)
        size = min(len(view), pieces[reads % len(pieces)], len(data) - at)
        view[:size] = data[at : at + size]
        frames.buffer_updated(size)
        at, reads = at + size, reads + 1
    return reads


SIZES = st.integers(4, 40) | st.sampled_from([BUFFER_BYTES - 5, BUFFER_BYTES - 4, BUFFER_BYTES - 3, LIMIT_BYTES])


@example([40, 40], [1])
@example([LIMIT_BYTES, 4, LIMIT_BYTES], [1 << 20])
@given(st.lists(SIZES, max_size=6), st.lists(st.integers(1, 50) | st.just(1 << 20), min_size=1, max_size=6))
def test_frames_are_the_same_however_they_arrive(sizes: list[int], pieces: list[int]) -> None:
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    owner = Owner()
    arrive(Frames(owner, LIMIT_BYTES), sent(*bodies), pieces)
    assert owner.frames == bodies
    assert not owner.reasons


def test_a_small_frame_takes_one_look_at_the_socket_and_is_not_overwritten_by_the_next() -> None:
    owner = Owner()
    frames = Frames(owner, LIMIT_BYTES)
    assert arrive(frames, sent(b"first"), [1 << 20]) == 1
    assert arrive(frames, sent(b"other", b"third"), [1 << 20]) == 1
    assert owner.frames == [b"first", b"other", b"third"]


def test_nothing_is_read_behind_a_size_that_can_not_be_right() -> None:
    owner = Owner()
    arrive(Frames(owner, 50), sent(b"good", b"x" * 51, b"lost"), [1 << 20])
    assert owner.frames == [b"good"]
    assert owner.reasons == [r"it announces a frame of 51 bytes (b'\x00\x00\x003')"]


def test_what_comes_behind_the_frame_that_ends_a_connection_is_not_read() -> None:
    owner = Owner(frames_max=1)
    arrive(Frames(owner, 50), sent(b"last", b"lost"), [1 << 20])
    assert owner.frames == [b"last"]
