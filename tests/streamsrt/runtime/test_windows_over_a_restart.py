"""Sessions and suppressions through the whole of a member: stores on disk, changelogs, standbys, offsets' metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamsrt.membership.values import Tasks
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import Rig, number
from topology import EmitStrategy, SessionWindows, StreamsBuilder, Suppressed, TimeWindows, serdes
from topology.graph.topology import Topology

CHANGELOGS = ("app-sessions-changelog", "app-windows-changelog", "app-sup-store-changelog")
TOPICS = dict.fromkeys(("in", "final", "held", *CHANGELOGS), 1)


def windowed() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.integer).group_by_key()
    sessions = grouped.windowed_by(SessionWindows(100)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    sessions.count(store="sessions").to_stream().to("final")
    windows = grouped.windowed_by(TimeWindows(50)).count(store="windows")
    windows.suppress(Suppressed.until_window_closes(), name="sup").to_stream().to("held")
    return builder.build()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Rig]]:
    """Starts members over one log, each in a folder of its own."""
    network = InProcessNetwork(dict(TOPICS))
    rigs: list[Rig] = []

    def make(folder: str) -> Rig:
        rigs.append(Rig(tmp_path / folder, windowed(), network))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


def write(rig: Rig, key: bytes, timestamp: int) -> None:
    rig.network.write(("in", 0), [(key, number(1))], timestamp)


def results(rig: Rig, topic: str) -> list[tuple[str, int, int]]:
    """Key, first time in the key's bytes, and count of what was written to a topic."""
    found = []
    for key, value in rig.network.read(topic):
        assert key is not None
        found.append((key[:1].decode(), int.from_bytes(key[1:9], "big"), int.from_bytes(value or b"", "big")))
    return found


@pytest.mark.parametrize("folder", ["same", "other"])
def test_a_member_goes_on_where_the_one_before_committed(start: Callable[[str], Rig], folder: str) -> None:
    one = start("same")
    one.start(Tasks(active=one.tasks(0)))
    for key, timestamp in ((b"a", 0), (b"a", 40), (b"b", 70)):
        write(one, key, timestamp)
    one.move()
    one.commit()
    assert results(one, "final") == []
    assert results(one, "held") == [("a", 0, 2)]
    one.close()
    two = start(folder)
    two.start(Tasks(active=two.tasks(0)))
    two.move()
    write(two, b"c", 145)
    two.move()
    two.commit()
    assert results(two, "final") == [("a", 40, 2)]
    assert results(two, "held") == [("a", 0, 2), ("b", 50, 1)]
    # What closed before the restart is late, though the member has seen one record only since.
    write(two, b"a", 30)
    write(two, b"b", 10_000)
    two.move()
    two.commit()
    assert results(two, "final") == [("a", 40, 2), ("b", 70, 1), ("c", 145, 1)]
    assert results(two, "held") == [("a", 0, 2), ("b", 50, 1), ("c", 100, 1)]


def test_a_standby_takes_over_with_what_is_held_back(start: Callable[[str], Rig]) -> None:
    one, two = start("one"), start("two")
    one.start(Tasks(active=one.tasks(0)))
    two.start(Tasks(standby=two.tasks(0)))
    write(one, b"a", 0)
    write(one, b"a", 30)
    one.move()
    one.commit()
    two.move()
    one.close()
    two.start(Tasks(active=two.tasks(0)))
    two.move()
    write(two, b"b", 500)
    two.move()
    two.commit()
    assert results(two, "final") == [("a", 30, 2)]
    assert results(two, "held") == [("a", 0, 2)]
