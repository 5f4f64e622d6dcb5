"""Dead letters under each guarantee, of everything that can fail (the list is that of ``test_letters_of_every_operation``).

What ``continue`` skips is committed together with its letter. Where ``fail`` stops the task, nothing of the record that
failed is committed: at least once its letter is written nevertheless, exactly once it is undone with the transaction.
The loop, its tasks, stores and commits are the real ones; the cluster is in this process.

Each run proves that every place has its letter (``test_letters_of_every_operation``). What a commit does with it is the same
at each place: a run has half of the places here, another half each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamsrt.errors import ProcessingError
from streamsrt.membership.values import Tasks
from streamsrt.operators.engine.handlers import ExceptionHandlers, fail, log_and_continue
from streamsrt.runtime.loop.thread import StreamThread
from streamsrt.wire.records import decode_batches, encode_batch
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.operators.test_letters_of_every_operation import DLQ, PLACES, SURE, Place, broken
from tests.streamsrt.rig import APPLICATION_ID, Rig
from tests.streamsrt.runtime.test_exactly_once import ExactlyOnceRig
from topology.graph.nodes import SinkNode
from topology.graph.topology import Topology

pytestmark = [pytest.mark.matrix, pytest.mark.share(2)]

TURNS = 4
ROUNDS = 4
"""What goes through a topic of the application's own is seen behind it when it is committed."""
GUARANTEES = ("at_least_once", "exactly_once_v2")
Letter = tuple[bytes | None, bytes | None, int, bytes | None, int]
"""Key, value, timestamp, and the topic and offset that it names."""


def topics_of(topology: Topology) -> set[str]:
    """Every topic that a program may want, internal ones with the application's name before them."""
    found = {"left", "right", "out"}
    for part in (*topology.subtopologies, *topology.global_subtopologies):
        found |= set(part.source_topics) | {store.changelog_name for store in part.stores}
        found |= {node.topic for node in part.nodes if isinstance(node, SinkNode) and isinstance(node.topic, str)}
    return {DLQ} | found | {f"{APPLICATION_ID}-{name}" for name in found}


class Scene:
    """One member that runs every task of a program."""

    def __init__(self, folder: Path, place: Place, guarantee: str, response: str) -> None:
        topology = broken(place)
        handlers = ExceptionHandlers(
            processing=log_and_continue if response == "continue" else fail, dead_letter_topic=DLQ
        )
        self.network = InProcessNetwork(dict.fromkeys(topics_of(topology), 1))
        self.rig = Rig(folder, topology, self.network, cache_max_bytes=0, handlers=handlers)
        self.exactly_once = ExactlyOnceRig(self.rig) if guarantee == "exactly_once_v2" else None
        self.committed_before: dict[str, int] = {}
        self.rig.give(Tasks(active=frozenset((part.id, 0) for part in self.rig.topology.subtopologies)))
        self.rig.iterate(4)

    def write(self, topic: str, key: str, value: str | None, timestamp: int) -> None:
        raw = None if value is None else value.encode()
        self.network.logs[topic, 0].append(encode_batch([key.encode()], [raw], [timestamp]), 1)

    def pipe(self, topic: str, key: str, value: str | None, timestamp: int) -> None:
        self.write(topic, key, value, timestamp)
        self.rig.iterate(TURNS)

    def run(self) -> None:
        """The loop, with a commit in each turn, until something fails."""
        rows, turns = iter(SURE), 0

        def next_row(_: StreamThread) -> bool:
            nonlocal turns
            turns += 1
            self.committed_before = {topic: at.offset for (topic, _), at in self.network.admin.offsets.items()}
            self.rig.clock_ms += 1_000_000
            if turns % TURNS == 0:
                row = next(rows, None)
                if row is not None:
                    self.write(*row)
            assert turns < 2 * TURNS * len(SURE), "nothing has failed"
            return False

        self.rig.thread.run(next_row)

    def commit(self) -> None:
        self.rig.clock_ms += 1_000_000
        self.rig.iterate(3)

    def committed(self, topic: str) -> int:
        at = self.network.admin.offsets.get((topic, 0))
        return 0 if at is None else at.offset

    def letters(self) -> list[Letter]:
        """Those that lie in their topic: with exactly once, those that are committed."""
        return [
            (*row, told["__streams.errors.topic"], int(told["__streams.errors.offset"] or b""))
            for _, batch, _ in self.network.logs[DLQ, 0].batches
            for columns in decode_batches(batch)
            for *row, told in zip(
                columns.keys, columns.values, columns.timestamps, map(dict, columns.headers or ()), strict=True
            )
        ]


@contextmanager
def scene_of(folder: Path, place: Place, guarantee: str, response: str) -> Iterator[Scene]:
    scene = Scene(folder, place, guarantee, response)
    try:
        yield scene
    finally:
        scene.rig.close()


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_what_is_skipped_is_committed_with_its_letter(place: Place, tmp_path: Path) -> None:
    letters = {}
    for guarantee in GUARANTEES:
        with scene_of(tmp_path / guarantee, place, guarantee, "continue") as scene:
            for row in SURE:
                scene.pipe(*row)
                if guarantee == "exactly_once_v2":
                    assert not scene.letters(), "nobody sees it before its transaction is committed"
            for _ in range(ROUNDS):
                scene.commit()
            letters[guarantee] = sorted(scene.letters(), key=repr)
            for *_, topic, offset in scene.letters():
                if topic is not None:
                    assert offset < scene.committed(topic.decode())
    assert letters["at_least_once"]
    assert letters["at_least_once"] == letters["exactly_once_v2"]


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_nothing_of_what_fails_is_committed(place: Place, guarantee: str, tmp_path: Path) -> None:
    with scene_of(tmp_path, place, guarantee, "fail") as scene:
        with pytest.raises(ProcessingError) as failed:
            scene.run()
        where = failed.value
        if where.offset >= 0:
            # What had waited, in a buffer or for a match, was committed as waiting.
            assert scene.committed(where.topic) <= max(where.offset, scene.committed_before.get(where.topic, 0))
        assert len(scene.letters()) == (1 if guarantee == "at_least_once" else 0)
