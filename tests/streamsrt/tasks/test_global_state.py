"""Global stores: read wholly before tasks start, followed from then on, kept over a restart."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from streamsrt.client.values import OffsetOutOfRangeError
from streamsrt.errors import (
    DeserializationError,
    MissingTopicError,
    ProcessingError,
    StoreCorruptedError,
    StreamsError,
    UserError,
)
from streamsrt.membership.values import Tasks
from streamsrt.operators.engine.handlers import (
    ErrorContext,
    ExceptionHandlers,
    HandlerResponse,
    dead_letter,
    deserialization_handler_of,
    log_and_continue,
)
from streamsrt.operators.engine.handlers import Response as HandlerAnswer
from streamsrt.runtime.lifecycle import Response
from streamsrt.tasks.global_state import WRITE_INTERVAL_MS
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import CHANGELOG, Rig
from tests.system.processes import wait_until
from topology import ProcessorContext, Record, Store, StreamsBuilder, TopologyError, serdes
from topology.graph.topology import Topology

TOPICS = {"in": 2, "countries": 3, "out": 2}


def enriched(*, in_memory: bool = False) -> Topology:
    """Joins ``in`` with the global table of ``countries``."""
    builder = StreamsBuilder()
    store = Store("countries", in_memory=in_memory)
    countries = builder.global_table("countries", key=serdes.string, value=serdes.string, store=store)
    (
        builder.stream("in", key=serdes.string, value=serdes.string)
        .left_join(countries, lambda value, country: f"{value}:{country}", on=lambda key, value: value)
        .to("out", key=serdes.string, value=serdes.string)
    )
    return builder.build()


def text(*pairs: tuple[str, str | None]) -> list[tuple[bytes, bytes | None]]:
    return [(key.encode(), None if value is None else value.encode()) for key, value in pairs]


def results(rig: Rig) -> list[str]:
    rig.commit()
    return sorted((value or b"").decode() for _, value in rig.network.read("out"))


def started(folder: Path, network: InProcessNetwork, *, in_memory: bool = False) -> Rig:
    rig = Rig(folder, enriched(in_memory=in_memory), network)
    rig.give(Tasks(active=rig.tasks(0, 1)))
    rig.iterate(6)
    return rig


def test_tasks_start_when_all_partitions_are_read(tmp_path: Path) -> None:
    network = InProcessNetwork(TOPICS)
    for partition, country in enumerate(("at", "de", "ch")):
        network.write(("countries", partition), text((country, country.upper())))
    network.write(("in", 0), text(("a", "de"), ("b", "nl")))
    network.write(("in", 1), text(("c", "ch")))
    rig = Rig(tmp_path, enriched(), network)
    rig.give(Tasks(active=rig.tasks(0, 1)))
    rig.iterate()
    assert set(rig.phases().values()) == {"active created"}
    rig.iterate(5)
    assert set(rig.phases().values()) == {"active running"}
    assert results(rig) == ["ch:CH", "de:DE", "nl:None"]
    rig.close()


def test_what_is_written_later_is_followed_and_deletions_delete(tmp_path: Path) -> None:
    network = InProcessNetwork(TOPICS)
    network.write(("countries", 0), text(("de", "old")))
    rig = started(tmp_path, network)
    network.write(("countries", 0), text(("de", "new"), ("at", "A")))
    network.write(("countries", 2), text(("at", None)))
    rig.iterate(2)
    network.write(("in", 0), text(("a", "de"), ("b", "at")))
    rig.iterate(3)
    assert results(rig) == ["at:None", "de:new"]
    rig.close()


@pytest.mark.parametrize("restores_apart", [False, True])
def test_the_changelog_of_a_store_is_followed_while_its_tasks_come_and_go(tmp_path: Path, restores_apart: bool) -> None:
    """A fetcher that reads for the tasks, too, would forget the partitions of those that are restored or leave."""
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string).group_by_key().count(store="counts")
    builder.global_table(CHANGELOG, key=serdes.string, value=serdes.string, store="all")
    network = InProcessNetwork({"in": 3, "out": 3, CHANGELOG: 3})
    rig = Rig(tmp_path, builder.build(), network, restores_apart=restores_apart)
    rig.give(Tasks(active=rig.tasks(0), standby=rig.tasks(1, 2)))
    rig.iterate(6)
    rig.give(Tasks(active=rig.tasks(0), standby=rig.tasks(2)))
    rig.iterate(6)
    for partition in (1, 2):
        network.write((CHANGELOG, partition), text((f"of {partition}", "another")))
    rows = rig.global_consumer.state.read_only("all") if rig.global_consumer is not None else None
    assert rows is not None

    def seen() -> list[object]:
        rig.iterate()
        return sorted(key for key, _ in rows.all())

    wait_until(lambda: seen() == ["of 1", "of 2"], "both have come")
    rig.close()


@pytest.mark.parametrize("in_memory", [False, True], ids=["on disk", "in memory"])
def test_a_restart_reads_only_what_is_missing(tmp_path: Path, in_memory: bool) -> None:
    network = InProcessNetwork(TOPICS)
    network.write(("countries", 0), text(("de", "DE")))
    network.write(("countries", 1), text(("at", "AT")))
    started(tmp_path, network, in_memory=in_memory).close()
    network.write(("countries", 1), text(("at", "AUT")))
    rig = Rig(tmp_path, enriched(in_memory=in_memory), network)
    assert rig.global_consumer is not None
    rig.global_consumer.begin()
    expected = {("countries", 0): 0, ("countries", 1): 0, ("countries", 2): 0}
    if not in_memory:
        expected = {("countries", 0): 1, ("countries", 1): 1, ("countries", 2): 0}
    assert {tp: network.restorer.positions[tp] for tp in expected} == expected
    network.write(("in", 0), text(("a", "de"), ("b", "at")))
    rig.give(Tasks(active=rig.tasks(0, 1)))
    rig.iterate(6)
    assert results(rig) == ["at:AUT", "de:DE"]
    rig.close()


def test_a_store_that_was_deleted_is_filled_from_the_start(tmp_path: Path) -> None:
    network = InProcessNetwork(TOPICS)
    network.write(("countries", 0), text(("de", "DE")))
    rig = started(tmp_path, network)
    rig.close()
    again = Rig(tmp_path, enriched(), network)
    again.directory.wipe("countries", 0)
    again.directory.close()
    network.write(("in", 0), text(("a", "de")))
    rig = started(tmp_path, network)
    assert results(rig) == ["de:DE"]
    rig.close()


def test_stores_are_written_now_and_then(tmp_path: Path) -> None:
    network = InProcessNetwork(TOPICS)
    network.write(("countries", 2), text(("de", "DE"), ("at", "AT")))
    rig = started(tmp_path, network)
    rig.clock_ms += WRITE_INTERVAL_MS
    rig.iterate()
    assert rig.directory.read_positions("countries", 0) == {0: 0, 1: 0, 2: 2}
    rig.close()


def test_a_large_global_store_is_written_before_it_fills_the_memory(tmp_path: Path) -> None:
    network = InProcessNetwork(TOPICS)
    rows = [(f"c{number:04}", f"C{number:04}") for number in range(2000)]
    for start in range(0, len(rows), 50):
        network.write(("countries", 0), text(*rows[start : start + 50]))
    network.write(("in", 0), text(("a", "c0000"), ("b", "c1999")))
    network.fetcher.batches_at_once = network.restorer.batches_at_once = 10
    rig = Rig(tmp_path, enriched(), network, cache_max_bytes=50_000)
    rig.give(Tasks(active=rig.tasks(0)))
    assert rig.global_consumer is not None
    for _ in range(8):
        rig.iterate()
        assert rig.global_consumer.state.size_bytes() <= 50_000
    assert results(rig) == ["c0000:C0000", "c1999:C1999"]
    rig.close()
    again = started(tmp_path, network)
    network.write(("in", 0), text(("c", "c1000")))
    again.iterate(2)
    assert results(again) == ["c0000:C0000", "c1000:C1000", "c1999:C1999"]
    again.close()


def ended_and_wiped(rig: Rig, match: str) -> None:
    """The thread ends, so that another one takes its place, and the store is gone. The application is not asked."""
    asked: list[StreamsError] = []

    def decide(error: StreamsError) -> Response:
        asked.append(error)
        return Response.SHUTDOWN_CLIENT

    rig.thread._on_failure = decide
    with pytest.raises(StoreCorruptedError, match=match):
        rig.thread.run()
    assert (rig.thread.response, asked) == (Response.REPLACE_THREAD, [])
    assert not rig.directory.store_path("countries", 0).exists()
    rig.directory.close()


def filled_anew(folder: Path, network: InProcessNetwork) -> None:
    """The thread that takes its place has all of the topic."""
    network.write(("in", 0), text(("a", "de")))
    rig = started(folder, network)
    assert results(rig) == ["de:DE"]
    rig.close()


def test_a_store_whose_topic_was_made_anew_is_filled_anew(tmp_path: Path) -> None:
    network = InProcessNetwork(TOPICS)
    network.write(("countries", 0), text(("de", "old"), ("at", "AT")))
    started(tmp_path, network).close()
    again = InProcessNetwork(TOPICS)
    again.write(("countries", 0), text(("de", "DE")))
    rig = Rig(tmp_path, enriched(), again)
    rig.give(Tasks(active=rig.tasks(0, 1)))
    ended_and_wiped(rig, "the topic was deleted and recreated. It is wiped, and filled from the start of its topic")
    filled_anew(tmp_path, again)


def test_a_store_whose_topic_has_fewer_partitions_now_is_filled_anew(tmp_path: Path) -> None:
    network = InProcessNetwork(TOPICS)
    network.write(("countries", 2), text(("at", "AT")))
    started(tmp_path, network).close()
    again = InProcessNetwork({**TOPICS, "countries": 2})
    again.write(("countries", 0), text(("de", "DE")))
    rig = Rig(tmp_path, enriched(), again)
    rig.give(Tasks(active=rig.tasks(0, 1)))
    ended_and_wiped(rig, "has read partitions that topic 'countries' does not have any more. It is wiped, and filled")
    again.write(("in", 0), text(("a", "at"), ("b", "de")))
    rig = started(tmp_path, again)
    assert results(rig) == ["at:None", "de:DE"]
    rig.close()


@pytest.mark.parametrize("content", [None, "", '{"positions": {"0": 9}}'], ids=["gone", "empty", "of another store"])
def test_a_store_without_valid_positions_is_filled_anew(
    tmp_path: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    network = InProcessNetwork(TOPICS)
    network.write(("countries", 0), text(("at", "AT"), ("de", "DE")))
    rig = started(tmp_path, network)
    (noted,) = (rig.directory.path / "global").iterdir()
    rig.close()
    if content is None:
        noted.unlink()
    else:
        noted.write_text(content)
    # What deleted the row is compacted away.
    compacted = InProcessNetwork(TOPICS)
    compacted.write(("countries", 0), text(("x", None), ("y", None), ("de", "DE")))
    compacted.write(("in", 0), text(("a", "at"), ("b", "de")))
    rig = started(tmp_path, compacted)
    assert results(rig) == ["at:None", "de:DE"]
    assert "no file says how far 'countries' was read; it is wiped" in caplog.text
    rig.close()


def test_positions_of_a_store_that_was_deleted_do_not_pass_for_those_of_the_next_one(tmp_path: Path) -> None:
    network = InProcessNetwork(TOPICS)
    network.write(("countries", 0), text(("at", "AT"), ("de", "DE")))
    rig = started(tmp_path, network)
    rig.close()
    shutil.rmtree(rig.directory.store_path("countries", 0))
    network.write(("countries", 1), text(*((f"c{number}", "C") for number in range(20))))
    network.write(("countries", 1), text(("ch", "CH")))
    # It ends when one partition is read and written, because the cache was full, and the other one is not.
    rig = Rig(tmp_path, enriched(), network, cache_max_bytes=0)
    consumer = rig.global_consumer
    assert consumer is not None
    consumer.begin()
    network.restorer.pause([("countries", 0)])
    assert all(consumer.take(fetched, network.restorer) for _ in range(2) for fetched in network.restorer.poll())
    ((_, store, _),) = consumer.open_stores()
    assert store.changelog_offset() == 20
    store.close()
    rig.directory.close()
    network.write(("in", 0), text(("a", "at"), ("b", "de")))
    rig = started(tmp_path, network)
    assert results(rig) == ["at:AT", "de:DE"]
    rig.close()


def test_a_store_whose_topic_does_not_go_back_as_far_is_filled_anew(tmp_path: Path) -> None:
    network = InProcessNetwork(TOPICS)
    network.write(("countries", 0), text(("de", "DE")))
    rig = started(tmp_path, network)
    rig.network.restorer.errors["countries", 0] = OffsetOutOfRangeError("offset 1 of countries-0 is not there any more")
    ended_and_wiped(rig, "can't continue from its offset: offset 1 of countries-0 is not there any more")
    filled_anew(tmp_path, network)


def test_a_store_that_has_missed_what_its_topic_has_deleted_is_filled_anew(tmp_path: Path) -> None:
    network = InProcessNetwork(TOPICS)
    network.write(("countries", 0), text(("at", "AT")))
    started(tmp_path, network).close()
    # The deletion of the row is not there any more, either.
    network.write(("countries", 0), text(("at", None), ("de", "DE")))
    network.admin.delete_records({("countries", 0): 2})
    rig = Rig(tmp_path, enriched(), network)
    rig.give(Tasks(active=rig.tasks(0, 1)))
    ended_and_wiped(
        rig, "has read less than topic 'countries' has deleted since. It is wiped, and filled from the start"
    )
    network.write(("in", 0), text(("a", "at"), ("b", "de")))
    rig = started(tmp_path, network)
    assert results(rig) == ["at:None", "de:DE"]
    rig.close()


def damage(path: Path) -> None:
    for file in path.glob("*.sst"):
        data = bytearray(file.read_bytes())
        for at in range(0, len(data), 64):
            data[at] ^= 0xFF
        file.write_bytes(data)


def test_a_store_that_is_damaged_when_it_is_opened_is_filled_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = InProcessNetwork(TOPICS)
    network.write(("countries", 0), text(("de", "DE")))
    rig = started(tmp_path, network)
    path = rig.directory.store_path("countries", 0)
    rig.close()
    damage(path)
    filled_anew(tmp_path, network)
    assert "it is wiped and filled again from its topic" in caplog.text


def test_a_store_that_is_damaged_while_it_is_read_is_filled_anew(tmp_path: Path) -> None:
    network = InProcessNetwork(TOPICS)
    names = [f"{index:05d}" for index in range(3_000)]
    network.write(("countries", 0), text(*((name, name * 3) for name in names), ("de", "DE")))
    rig = started(tmp_path, network)
    rig.iterate(20)
    assert rig.global_consumer is not None
    rig.global_consumer.write()
    store = rig.global_consumer._stores["countries"]
    file = max(Path(store.path).glob("*.sst"), key=lambda each: each.stat().st_size)
    data = bytearray(file.read_bytes())
    for at in range(len(data) // 4, len(data) // 2, 512):
        data[at] ^= 0xFF
    file.write_bytes(data)
    rig.global_consumer.state.evict(0)
    network.write(("in", 0), text(*((name, name) for name in names)))
    ended_and_wiped(rig, "state store 'countries' in .* can't be read: its files are damaged")
    again = started(tmp_path, network)
    again.iterate(20)
    assert results(again) == sorted(f"{name}:{name * 3}" for name in names)
    again.close()


def test_a_global_topic_that_is_deleted_while_its_reading_begins_is_waited_for(tmp_path: Path) -> None:
    network = InProcessNetwork(TOPICS)
    rig = Rig(tmp_path, enriched(), network)
    rig.give(Tasks(active=rig.tasks(0)))
    asked = 0

    def deleted_after_the_first_request() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            for tp in [tp for tp in network.logs if tp[0] == "countries"]:
                del network.logs[tp]

    network.admin.before_answer = deleted_after_the_first_request
    rig.iterate()
    assert set(rig.phases().values()) == {"active created"}
    network.make_topic("countries", 3)
    network.write(("countries", 0), text(("de", "DE")))
    network.write(("in", 0), text(("a", "de")))
    rig.clock_ms += 1_000
    rig.iterate(6)
    assert results(rig) == ["de:DE"]
    rig.close()


def test_a_global_topic_that_is_not_there_is_told(tmp_path: Path) -> None:
    rig = Rig(tmp_path, enriched(), InProcessNetwork({"in": 2, "out": 2}))
    rig.give(Tasks(active=rig.tasks(0)))
    with pytest.raises(MissingTopicError, match="countries"):
        rig.iterate(2)
    rig.directory.close()


class Uppercase:
    """Fills a global store with values in capitals."""

    def init(self, context: object) -> None:
        self.store = context.get_state_store("names")  # type: ignore[attr-defined]

    def process(self, record: Record[str, str]) -> None:
        self.store.put(record.key, record.value.upper())


class Writes:
    """Tries to write to a global store from a task."""

    def init(self, context: object) -> None:
        self.store = context.get_state_store("names")  # type: ignore[attr-defined]

    def process(self, record: Record[str, str]) -> None:
        self.store.put(record.key, record.value)


def test_tasks_can_only_read_a_global_store() -> None:
    builder = StreamsBuilder()
    store = Store("names", key=serdes.string, value=serdes.string)
    builder.add_global_store(store, "names", Uppercase, key=serdes.string, value=serdes.string)
    builder.stream("in", key=serdes.string, value=serdes.string).process(Writes)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("names", serdes.string, serdes.string).pipe_input("a", "x")
        assert driver.get_key_value_store("names").get("a") == "X"
        with pytest.raises(Exception, match="is read-only: its contents come from its topic"):
            driver.create_input_topic("in", serdes.string, serdes.string).pipe_input("a", "y")


class Strict:
    """Fills a global store, but for values that are no numbers."""

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        self.store = context.get_state_store("numbers")

    def process(self, record: Record[str, str]) -> None:
        self.store.put(record.key, int(record.value))


def strict() -> Topology:
    builder = StreamsBuilder()
    store = Store("numbers", key=serdes.string, value=serdes.long)
    builder.add_global_store(store, "numbers", Strict, key=serdes.string, value=serdes.string)
    builder.stream("in", key=serdes.string, value=serdes.string).to("out")
    return builder.build()


class Stamped:
    """Fills a global store with the time at which a value came."""

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        self.store, self.now_ms = context.get_state_store("times"), context.current_system_time_ms

    def process(self, record: Record[str, str]) -> None:
        self.store.put(record.key, self.now_ms())


def test_a_global_store_sees_the_clock_of_the_machine(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    store = Store("times", key=serdes.string, value=serdes.long)
    builder.add_global_store(store, "times", Stamped, key=serdes.string, value=serdes.string)
    builder.stream("in", key=serdes.string, value=serdes.string).to("out")
    network = InProcessNetwork({"in": 1, "times": 1, "out": 1})
    rig = Rig(tmp_path, builder.build(), network)
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(3)
    rig.clock_ahead_ms = -3_600_000
    network.write(("times", 0), text(("a", "x")))
    rig.iterate(3)
    assert rig.global_consumer is not None
    times = rig.global_consumer.state.read_only("times")
    assert times is not None
    assert dict(times.all()) == {"a": rig.clock_ms - 3_600_000}
    rig.close()


GLOBAL_HANDLER = "processing.exception.handler.global.enabled"


@pytest.mark.parametrize("settings", [{}, {GLOBAL_HANDLER: False}, {GLOBAL_HANDLER: "false"}])
def test_the_processing_handler_is_not_asked_for_global_stores(settings: dict[str, object]) -> None:
    def handler(context: object, error: BaseException) -> str:
        pytest.fail("it was asked")

    with TopologyTestDriver(strict(), {"processing.exception.handler": handler, **settings}) as driver:
        source = driver.create_input_topic("numbers", serdes.string, serdes.string)
        advice = "skip such records with processing.exception.handler=continue and processing.exception.handler.global"
        with pytest.raises(ProcessingError, match=f"ValueError.*numbers-0 offset 1.*{advice}.enabled=true"):
            source.pipe_key_values([("a", "1"), ("b", "x")])
        assert dict(driver.get_key_value_store("numbers").all()) == {"a": 1}


def test_the_processing_handler_decides_for_global_stores_where_that_is_enabled() -> None:
    asked = []

    def handler(context: ErrorContext, error: BaseException) -> str:
        asked.append(
            (context.topic, context.partition, context.offset, context.key, context.value, context.source_value)
        )
        return "fail" if context.value == "stop" else "continue"

    with TopologyTestDriver(strict(), {"processing.exception.handler": handler, GLOBAL_HANDLER: "true"}) as driver:
        source = driver.create_input_topic("numbers", serdes.string, serdes.string)
        source.pipe_key_values([("a", "1"), ("a", "x"), ("b", "3")])
        assert dict(driver.get_key_value_store("numbers").all()) == {"a": 1, "b": 3}
        assert driver.counters()["dropped"] == 1
        with pytest.raises(ProcessingError, match="offset 3"):
            source.pipe_input("b", "stop")
    assert asked == [("numbers", 0, 1, "a", "x", b"x"), ("numbers", 0, 3, "b", "stop", b"stop")]


def test_global_stores_send_no_dead_letters(caplog: pytest.LogCaptureFixture) -> None:
    settings = {GLOBAL_HANDLER: True, "errors.dead.letter.queue.topic.name": "dead"}
    with TopologyTestDriver(strict(), {"processing.exception.handler": "continue", **settings}) as driver:
        source = driver.create_input_topic("numbers", serdes.string, serdes.string)
        source.pipe_key_values([("a", "x"), ("b", "2")])
        driver.pipe_raw("numbers", b"c", b"\xff", 0, ())
        assert dict(driver.get_key_value_store("numbers").all()) == {"b": 2}
        assert driver.producer_history == ()
    assert "dead" not in caplog.text

    def handler(context: ErrorContext, error: BaseException) -> HandlerAnswer:
        return HandlerAnswer(HandlerResponse.CONTINUE, (dead_letter(context, error, "own"),))

    with TopologyTestDriver(strict(), {"processing.exception.handler": handler, GLOBAL_HANDLER: True}) as driver:
        driver.create_input_topic("numbers", serdes.string, serdes.string).pipe_key_values([("a", "x"), ("b", "2")])
        assert dict(driver.get_key_value_store("numbers").all()) == {"b": 2}
        assert driver.producer_history == ()
    assert "global stores send no dead letters: one for topic own is dropped" in caplog.text


@pytest.mark.parametrize("enabled", [True, False])
def test_a_global_processor_that_fails_ends_the_thread_unless_the_handler_skips(tmp_path: Path, enabled: bool) -> None:
    network = InProcessNetwork({"in": 1, "numbers": 1, "out": 1})
    network.write(("numbers", 0), text(("a", "x"), ("b", "2")))
    handlers = ExceptionHandlers(processing=log_and_continue, dead_letter_topic="dead")
    settings = TaskConfig(handlers=handlers, handles_global_processing=enabled)
    rig = Rig(tmp_path, strict(), network, global_config=settings)
    rig.give(Tasks(active=rig.tasks(0)))
    if enabled:
        rig.iterate(4)
        assert rig.global_consumer is not None
        assert rig.global_consumer.state.counters() == {"dropped": 1}
        store = rig.global_consumer.state.read_only("numbers")
        assert store is not None
        assert dict(store.all()) == {"b": 2}
        rig.close()
    else:
        with pytest.raises(ProcessingError, match=r"global\.enabled=true"):
            rig.iterate(4)
        rig.directory.close()


@pytest.mark.parametrize("topic", ["countries", "numbers"])
@pytest.mark.parametrize("generate", [True, False], ids=["generated", "nodes"])
def test_the_handler_strict_stops_at_what_a_global_store_can_not_read(
    tmp_path: Path, topic: str, generate: bool
) -> None:
    network = InProcessNetwork({"in": 1, topic: 1, "out": 1})
    network.write((topic, 0), [(b"a", b"1"), (b"b", b"\xff")])
    settings = TaskConfig(
        handlers=ExceptionHandlers(deserialization=deserialization_handler_of("strict")), generate=generate
    )
    rig = Rig(tmp_path, enriched() if topic == "countries" else strict(), network, global_config=settings)
    rig.give(Tasks(active=rig.tasks(0)))
    with pytest.raises(DeserializationError, match=f"{topic}-0 offset 1"):
        rig.iterate(6)
    rig.directory.close()


def test_a_global_store_is_not_connected() -> None:
    builder = StreamsBuilder()
    store = Store("names", key=serdes.string, value=serdes.string)
    builder.add_global_store(store, "names", Uppercase, key=serdes.string, value=serdes.string)
    builder.stream("in").process(Writes, stores=["names"])
    with pytest.raises(TopologyError, match="every processor may read it"):
        builder.build()


def test_a_global_store_is_a_key_value_store() -> None:
    builder = StreamsBuilder()
    store = Store("w", kind="window", retention=10, window_size=10, key=serdes.string, value=serdes.string)
    builder.add_global_store(store, "names", Uppercase, key=serdes.string, value=serdes.string)
    builder.stream("in").to("out")
    with pytest.raises(UserError, match="must be a key-value store"):
        TopologyTestDriver(builder.build())
