"""Records that the brokers refuse: the production handler decides, and exactly the refused ones are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.client.values import NewTopic
from streamsrt.errors import ProductionError
from streamsrt.operators.engine.handlers import ErrorContext, HandlerResponse
from streamsrt.wire.error_codes import ErrorCode
from tests.system.cluster import Cluster, Row
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology

PATIENCE_S = 60.0
LIMIT_BYTES = 2_000
LONG = b"x" * 3 * LIMIT_BYTES
GUARANTEES = ["at_least_once", "exactly_once_v2"]


class Scene:
    """Lines go to a topic that takes none above the limit, and, with a null key if they say so, to a compacted one."""

    def __init__(self, cluster: Cluster, application_id: str, folder: Path) -> None:
        self.cluster = cluster
        self.application_id = application_id
        self.folder = folder
        self.lines, self.small, self.compacted, self.letters = (
            f"{application_id}-{name}" for name in ("lines", "small", "compacted", "letters")
        )
        limits = {"max.message.bytes": str(LIMIT_BYTES)}
        topics = [
            NewTopic(name=self.lines, partitions=1),
            NewTopic(name=self.small, partitions=1, configs=limits),
            NewTopic(name=self.compacted, partitions=1, configs={"cleanup.policy": "compact"}),
            NewTopic(name=self.letters, partitions=1),
        ]
        assert set(cluster.network.admin.create_topics(topics).values()) == {None}

    def topology(self, sink: str | None = None) -> Topology:
        builder = StreamsBuilder()
        lines = builder.stream(self.lines, key=serdes.string, value=serdes.string)
        lines.to(self.small if sink is None else lambda _key, _value, _context: sink)
        lines.select_key(lambda _, line: None if line.startswith("null") else "k").to(self.compacted)
        return builder.build()

    def run(self, guarantee: str, topology: Topology | None = None, **configs: Any) -> dict[str, int]:
        config = {
            "application.id": self.application_id,
            "bootstrap.servers": self.cluster.address,
            "state.dir": self.folder,
            "commit.interval.ms": 100,
            "processing.guarantee": guarantee,
            "default.key.serde": serdes.string,
            "default.value.serde": serdes.string,
            **{key.replace("_", "."): value for key, value in configs.items()},
        }
        streams = KafkaStreams(topology or self.topology(), config)
        done = streams.run(until="quiet", timeout_s=PATIENCE_S, signals=False)
        return done.counters

    def write(self, *values: bytes) -> None:
        self.cluster.write(self.lines, [Row(b"k", value, 1_000) for value in values], 1)

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.cluster.read(topic)]


@pytest.fixture
def scene(cluster: Cluster, application_id: str, tmp_path: Path) -> Scene:
    return Scene(cluster, application_id, tmp_path)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_continue_leaves_out_exactly_what_is_refused(scene: Scene, guarantee: str) -> None:
    values = [b"%d" % number for number in range(60)]
    values[7] = values[40] = LONG
    values[20] = values[21] = b"null"
    scene.write(*values)
    asked: list[tuple[ErrorContext, BaseException]] = []

    def go_on(context: ErrorContext, error: BaseException) -> HandlerResponse:
        asked.append((context, error))
        return HandlerResponse.CONTINUE

    counters = scene.run(guarantee, production_exception_handler=go_on)
    assert scene.values(scene.small) == [value for value in values if value != LONG]
    assert scene.values(scene.compacted) == [value for value in values if value != b"null"]
    assert counters["failed_production"] == 4
    refused = {(each.output_topic, each.output_partition, each.key, each.value) for each, _ in asked}
    assert refused == {(scene.small, 0, b"k", LONG), (scene.compacted, 0, None, b"null")}
    codes = [getattr(error, "error_code", None) for _, error in asked]
    assert sorted(map(str, codes)) == sorted(
        map(str, 2 * [ErrorCode.MESSAGE_TOO_LARGE] + 2 * [ErrorCode.INVALID_RECORD])
    )


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_dead_letters_of_refused_records(scene: Scene, guarantee: str) -> None:
    scene.write(b"a", LONG, b"b")
    dead_letters = {"errors_dead_letter_queue_topic_name": scene.letters}
    scene.run(guarantee, production_exception_handler="continue", **dead_letters)
    assert scene.values(scene.small) == [b"a", b"b"]
    assert scene.values(scene.letters) == [LONG]


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("fails", ["a result", "an input record"])
def test_a_dead_letter_fits_its_topic(scene: Scene, guarantee: str, fails: str) -> None:
    """The topic of the letters takes no more than that of the results: what is too large for the one is for the other."""
    scene.write(b"a", LONG, b"b")
    letters = NewTopic(name=f"{scene.letters}-small", partitions=1, configs={"max.message.bytes": str(LIMIT_BYTES)})
    scene.cluster.network.admin.create_topics([letters])
    settings: dict[str, Any] = {"errors_dead_letter_queue_topic_name": letters.name}
    if fails == "a result":
        counters = scene.run(guarantee, production_exception_handler="continue", **settings)
    else:
        counters = scene.run(guarantee, _refusing_long(scene), processing_exception_handler="continue", **settings)
    assert scene.values(scene.small) == [b"a", b"b"]
    (letter,) = scene.cluster.read(letters.name)
    assert (letter.key, letter.value) == (b"k", None)
    assert counters["shortened_letters"] == 1


def test_the_dead_letter_of_what_ends_the_application_fits_its_topic(scene: Scene) -> None:
    scene.write(b"a", LONG, b"b")
    letters = NewTopic(name=f"{scene.letters}-small", partitions=1, configs={"max.message.bytes": str(LIMIT_BYTES)})
    scene.cluster.network.admin.create_topics([letters])
    with pytest.raises(ProductionError, match="MESSAGE_TOO_LARGE"):
        scene.run("at_least_once", errors_dead_letter_queue_topic_name=letters.name)
    assert [(letter.key, letter.value) for letter in scene.cluster.read(letters.name)] == [(b"k", None)]


def _refusing_long(scene: Scene) -> Topology:
    def short(line: str) -> str:
        if len(line) > LIMIT_BYTES:
            raise ValueError("too long")
        return line

    builder = StreamsBuilder()
    builder.stream(scene.lines, key=serdes.string, value=serdes.string).map_values(short).to(scene.small)
    return builder.build()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_fail_ends_the_application_before_anything_is_committed(scene: Scene, guarantee: str) -> None:
    scene.write(b"a", LONG, b"b")
    dead_letters = {"errors_dead_letter_queue_topic_name": scene.letters}
    with pytest.raises(ProductionError, match=r"MESSAGE_TOO_LARGE.*Raise max\.message\.bytes of the topic"):
        scene.run(guarantee, **dead_letters)
    assert scene.cluster.committed(scene.application_id) == {}
    at_least_once = guarantee == "at_least_once"
    assert scene.values(scene.letters) == ([LONG] if at_least_once else [])


def test_a_topic_that_does_not_exist(scene: Scene) -> None:
    """Chosen record by record: those that are always written to are looked for before anything is done."""
    scene.write(b"a", b"b")
    nowhere = f"{scene.application_id}-nowhere"
    with pytest.raises(ProductionError, match=f"MissingTopicError: topic '{nowhere}'.*create it"):
        scene.run("at_least_once", scene.topology(nowhere))
    counters = scene.run("at_least_once", scene.topology(nowhere), production_exception_handler="continue")
    assert counters["failed_production"] == 2
    assert scene.values(scene.compacted)[-2:] == [b"a", b"b"]
