"""Generated store names that stand for something else than in the members of the group: how they are told, and refused."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import LATEST, ClientConfig, NewTopic
from streamsrt.config import StreamsConfig
from streamsrt.errors import TopologyMismatchError
from streamsrt.membership.state_marks import MOST_STORES, OriginMark, marks_of, marks_text, read_marks
from streamsrt.membership.state_settings import told_state
from streamsrt.runtime.store_origins import RunningMember, check_origins, marks_tag
from streamsrt.runtime.topology_version import LocalVersion, check_group
from streamsrt.runtime.values import State
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.wire.client_tags import STORE_MARKS
from tests.fixtures_brokers import BundledBroker
from topology import (
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    TimeWindows,
    UnlimitedWindows,
    Upcast,
    serdes,
)
from topology.graph.diff import Verdict, diff
from topology.graph.misread import kept_by
from topology.graph.origins import Origin
from topology.graph.outline import outline
from topology.graph.topology import Topology

PATIENCE_S = 60.0
FIRST, SECOND = "KSTREAM-REDUCE-STATE-STORE-0000000001", "KSTREAM-REDUCE-STATE-STORE-0000000005"
Step: TypeAlias = tuple[str, Callable[[int, int], int], str | Store | None]
"""Where it writes to, its function, and the name of its store where it has one of its own."""
SUMS: Step = ("sums", lambda last, number: last + number, None)
MAXIMA: Step = ("maxima", max, None)
_NUMBERS = itertools.count()


Versions: TypeAlias = tuple[Topology, Topology, Topology, str]
"""The old one, one that is refused, one that is accepted, and what the refusal says."""


def called(step: Step, store: str | Store) -> Step:
    return step[0], step[1], store


def reduced(*steps: Step, topic: str = "in", epoch: int = 0) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream(topic, key=serdes.string, value=serdes.long).group_by_key()
    for sink, function, store in steps:
        grouped.reduce(function, store=store).to_stream().to(f"{topic}-{sink}", key=serdes.string, value=serdes.long)
    return builder.build(epoch=epoch).with_default_serdes()


def joined(*, swapped: bool = False, store: str | None = "st", topic: str = "in", epoch: int = 0) -> Topology:
    """What is read of ``topic`` is in ``{topic}-sums``, too."""
    builder = StreamsBuilder()
    text = {"key": serdes.string, "value": serdes.string}
    first, second = (builder.stream(each, **text) for each in (topic, f"{topic}-maxima"))
    first.to(f"{topic}-sums", **text)
    one, other = (second, first) if swapped else (first, second)
    one.outer_join(other, lambda a, b: f"{a}{b}", JoinWindows(1_000), store=store).foreach(lambda _k, _v: None)
    return builder.build(epoch=epoch).with_default_serdes()


def windowed(windows: Any, *, topic: str = "in", epoch: int = 0, store: str = "w") -> Topology:
    """What is read of ``topic`` is in ``{topic}-sums``, too."""
    builder = StreamsBuilder()
    numbers = builder.stream(topic, key=serdes.string, value=serdes.long)
    numbers.to(f"{topic}-sums")
    numbers.group_by_key().windowed_by(windows).count(store=store)
    return builder.build(epoch=epoch).with_default_serdes()


def running(topology: Topology, **tags: str) -> RunningMember:
    return RunningMember("member m on h", topology.epoch, {**marks_tag(topology), **tags})


def refusal(topology: Topology, *members: RunningMember) -> str:
    with pytest.raises(TopologyMismatchError) as raised:
        check_origins("app", topology, members)
    assert raised.value.exit_code == 2
    return str(raised.value)


def test_swapped_names_are_refused_with_what_helps() -> None:
    told = refusal(reduced(MAXIMA, SUMS, epoch=1), running(reduced(SUMS, MAXIMA)))
    for name, other in ((FIRST, SECOND), (SECOND, FIRST)):
        assert f"store '{name}': a generated name that means something else: it was what is {other} now" in told
        assert f'Name both: the table that had this name keeps its state as store="{name}"' in told
    assert "member m on h, which runs topology epoch 0" in told


def test_what_the_advice_says_is_accepted() -> None:
    old = running(reduced(SUMS, MAXIMA))
    check_origins("app", reduced(called(MAXIMA, SECOND), called(SUMS, FIRST), epoch=1), [old])
    renamed = called(MAXIMA, Store("greatest", renamed_from=SECOND)), called(SUMS, Store("total", renamed_from=FIRST))
    check_origins("app", reduced(*renamed, epoch=1), [old])
    wrongly = called(MAXIMA, Store("greatest", renamed_from=FIRST)), called(SUMS, Store("total", renamed_from=SECOND))
    told = refusal(reduced(*wrongly, epoch=1), old)
    assert f"store 'greatest': renamed_from={FIRST} was what is total now" in told


def test_another_kind_of_table_under_the_same_name_is_refused() -> None:
    def with_table(*, keyed: bool) -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream("in", key=serdes.string, value=serdes.long)
        if keyed:
            stream = stream.select_key(lambda key, _value: key)
        else:
            stream = stream.filter(lambda _key, _value: True)
        stream.group_by_key().reduce(MAXIMA[1]).to_stream().to("out")
        return builder.build(epoch=1).with_default_serdes()

    keyed, plain = with_table(keyed=True), with_table(keyed=False)
    marks = [read_marks(marks_tag(each)[STORE_MARKS]) for each in (keyed, plain)]
    assert marks[0].keys() > marks[1].keys(), "with a repartition topic beside the same store"
    assert "it was another table, and is Aggregate of in, keyed by" in refusal(keyed, running(plain))


def test_the_same_meaning_stays_accepted() -> None:
    old = running(reduced(SUMS, MAXIMA))
    edited: Step = ("sums", lambda last, number: number + last, None)
    for epoch in (0, 1):
        check_origins("app", reduced(SUMS, MAXIMA, epoch=epoch), [old])
        # An edited function is no exchange.
        check_origins("app", reduced(edited, MAXIMA, epoch=epoch), [old])
    check_origins("app", reduced(SUMS, MAXIMA, ("more", min, None), epoch=1), [old])


@pytest.mark.parametrize("store", ["st", None])
def test_swapped_sides_of_a_join_are_refused_with_what_helps(store: str | None) -> None:
    old = running(joined(store=store))
    told = refusal(joined(store=store, swapped=True, epoch=1), old)
    assert told.count("the sides of the join have changed places") == 3
    assert (
        "it would get records of in-maxima now, joined with in. Keep the order of the sides, or give the join another store="
        in told
    )
    for accepted in (joined(store=store, epoch=1), joined(store="other", swapped=True, epoch=1)):
        check_origins("app", accepted, [old])
    silent = RunningMember("of a version without marks", 0, {key: "" for key in old.client_tags})
    check_origins("app", joined(store=store, swapped=True, epoch=1), [silent])


def test_a_stream_that_is_renamed_is_no_swap_for_the_members() -> None:
    old = running(joined())
    check_origins("app", joined(topic="out", epoch=1), [old])


WINDOWS: list[Any] = [
    TimeWindows(1_000),
    TimeWindows(1_000, 500),
    TimeWindows(2_000),
    UnlimitedWindows(),
    SlidingWindows(1_000),
    SessionWindows(1_000),
    SessionWindows(2_000),
]


@pytest.mark.parametrize(("before", "after"), [*itertools.product(WINDOWS, WINDOWS)])
def test_windows_that_would_be_misread_are_refused_as_diff_refuses_them(before: Any, after: Any) -> None:
    old, new = running(windowed(before)), windowed(after, epoch=1)
    if diff(outline(windowed(before)), outline(new)).verdict is Verdict.INCOMPATIBLE:
        told = refusal(new, old)
        assert "store 'w': " in told
        assert "give the new store another name" in told
    else:
        check_origins("app", new, [old])
    check_origins("app", windowed(after, epoch=1, store="other"), [old])
    check_origins("app", new, [RunningMember("of a version without marks", 0, {})])


def test_who_has_no_mark_or_runs_a_later_epoch_is_not_compared() -> None:
    swapped = reduced(MAXIMA, SUMS, epoch=1)
    others = ("a tag of the user's own", "ä", "1*", "1abc", "2" + marks_tag(reduced(SUMS, MAXIMA))[STORE_MARKS][1:])
    silent = [RunningMember("Java", 0, {"zone": "a", STORE_MARKS: text}) for text in others]
    earlier = RunningMember("of a release without marks", 0, {"topology.digest": "0"})
    check_origins("app", swapped, [*silent, earlier, running(replace(reduced(SUMS, MAXIMA), epoch=2))])


def counted_and_summed(
    count: str, total: str, *, topic: str = "in", epoch: int = 0, kind: Any = serdes.long
) -> Topology:
    """What is read of ``topic`` is in ``{topic}-sums``, too."""
    builder = StreamsBuilder()
    numbers = builder.stream(topic, key=serdes.string, value=serdes.long)
    numbers.to(f"{topic}-sums")
    grouped = numbers.group_by_key()
    grouped.aggregate(int, lambda _key, _value, last: last + 1, store=count, value=kind)
    grouped.aggregate(int, lambda _key, value, last: last + value, store=total, value=kind)
    return builder.build(epoch=epoch).with_default_serdes()


def tables(one: str, other: str, epoch: int = 0) -> Topology:
    """Two tables of topics ``a`` and ``b``."""
    builder = StreamsBuilder()
    for topic, store in (("a", one), ("b", other)):
        builder.stream(topic, key=serdes.string, value=serdes.long).group_by_key().count(store=store)
    return builder.build(epoch=epoch).with_default_serdes()


@pytest.mark.parametrize("build", [counted_and_summed, tables])
def test_two_given_names_that_were_swapped_are_refused_with_what_helps(build: Callable[..., Topology]) -> None:
    told = refusal(build("B", "A", epoch=1), running(build("A", "B")))
    for name, other in (("A", "B"), ("B", "A")):
        assert f"store '{name}': it is Aggregate of " in told
        assert f"and was what is {other} now: exchange the names again, or give the new ones other names" in told
    check_origins("app", build("A", "B", epoch=1), [running(build("A", "B"))])
    check_origins("app", build("C", "D", epoch=1), [running(build("A", "B"))])


def test_another_format_is_refused() -> None:
    told = refusal(counted_and_summed("A", "B", epoch=1, kind=serdes.integer), running(counted_and_summed("A", "B")))
    for name in "AB":
        assert (
            f"store '{name}': value_serde is integer now, and was another one: give the new store another name" in told
        )


def test_values_of_a_later_version_are_accepted_with_the_serde_that_reads_the_earlier_ones() -> None:
    def kept(store: Store, value: Any, epoch: int) -> Topology:
        builder = StreamsBuilder()
        grouped = builder.stream("in", key=serdes.string, value=serdes.long).group_by_key()
        grouped.aggregate(int, lambda _key, _value, last: last, store=store, value=value)
        return builder.build(epoch=epoch).with_default_serdes()

    old = running(kept(Store("A"), serdes.long, 0))
    check_origins("app", kept(Store("A", version=2, upcast={1: Upcast(str, serde=serdes.long)}), serdes.json, 1), [old])
    wrong = kept(Store("A", version=2, upcast={1: Upcast(str, serde=serdes.integer)}), serdes.json, 1)
    assert "store 'A': value_serde is integer now" in refusal(wrong, old)
    second = running(kept(Store("A", version=2, upcast={1: Upcast(str, serde=serdes.long)}), serdes.json, 0))
    fourth = kept(Store("A", version=4, upcast={3: str}), serdes.json, 1)
    assert "its values have version 2, and there is no upcast={2: ...}: add it" in refusal(fourth, second)


def test_a_generated_repartition_topic_that_stands_for_something_else_is_refused() -> None:
    def through(*topics: str, epoch: int = 0) -> Topology:
        builder = StreamsBuilder()
        for topic in topics:
            builder.stream(topic, key=serdes.string, value=serdes.string).repartition().to(f"{topic}-out")
        return builder.build(epoch=epoch).with_default_serdes()

    told = refusal(through("b", "a", epoch=1), running(through("a", "b")))
    assert "repartition topic 'KSTREAM-REPARTITION-" in told
    assert "-repartition now, and is repartition of b: name it (name=)" in told


def placed(partitioner: Any = None, *, epoch: int = 0) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.repartition(name="by", partitioner=partitioner).group_by_key().count(store="kept")
    return builder.build(epoch=epoch).with_default_serdes()


def test_a_partitioner_that_comes_or_goes_in_front_of_rows_is_refused() -> None:
    def to_first(_topic: str, _key: str, _value: str, _partitions: int) -> int:
        return 0

    told = refusal(placed(to_first, epoch=1), running(placed()))
    assert (
        "'by-repartition': partitioner is one of the program now, and was another one: keys would go to other" in told
    )
    assert "partitioner is the default one now" in refusal(placed(epoch=1), running(placed(to_first)))
    check_origins("app", placed(to_first, epoch=1), [running(placed(to_first))])


def repartitioned(value: Any = serdes.string, *, name: str = "by", topic: str = "in", epoch: int = 0) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(topic, key=serdes.string, value=serdes.string).select_key(lambda _key, value: value)
    stream.repartition(name=name, value=value).foreach(lambda _k, _v: None)
    return builder.build(epoch=epoch).with_default_serdes(key=serdes.string)


def test_another_serde_of_a_repartition_topic_is_refused_with_what_helps() -> None:
    old = running(repartitioned())
    told = refusal(repartitioned(serdes.bytes, epoch=1), old)
    assert (
        "repartition topic 'by-repartition': value_serde is bytes now, and was another one: records in flight" in told
    )
    assert "Give the step that writes it another name (name=)" in told
    check_origins("app", repartitioned(epoch=1), [old])
    check_origins("app", repartitioned(serdes.bytes, name="by-2", epoch=1), [old])


def test_a_member_that_does_not_tell_serdes_of_repartition_topics_is_not_compared() -> None:
    kept = kept_by(outline(repartitioned()))
    # As a release tells it that knows no serdes of topics.
    earlier = marks_text({name: replace(each, format={}) for name, each in kept.items()})
    silent = RunningMember("of an earlier release", 0, {STORE_MARKS: earlier})
    check_origins("app", repartitioned(serdes.bytes, epoch=1), [silent])


def test_a_member_tells_few_bytes_of_a_bounded_number_of_stores() -> None:
    steps = [(f"{number}", MAXIMA[1], f"store-{number:03}") for number in range(MOST_STORES)]
    tags = marks_tag(reduced(*steps, MAXIMA))
    marks = read_marks(tags[STORE_MARKS])
    assert len(marks) == MOST_STORES
    assert sum(mark.is_generated for mark in marks.values()) == 1, "generated names come first"
    assert len(tags[STORE_MARKS]) <= 42 * MOST_STORES
    stateless = StreamsBuilder()
    stateless.stream("in").to("out")
    assert marks_tag(stateless.build()) == {}


@pytest.mark.parametrize(
    "topology",
    [reduced(SUMS, MAXIMA), joined(), windowed(TimeWindows(1_000)), tables("A", "B"), repartitioned(), placed()],
)
def test_marks_are_read_as_they_were_written(topology: Topology) -> None:
    kept = kept_by(outline(topology))
    assert kept
    marks = marks_of(kept)
    assert told_state(marks_tag(topology)) == marks
    without = {name: replace(each, settings=None, upcasts={}) for name, each in marks.items()}
    assert read_marks(marks_text(kept)) == without, "as a release without settings tells them"


def test_a_mark_is_compared_as_the_origin_is() -> None:
    origin = Origin(topics=("a", "b"), keyed_by=("Map",), filled_by=("Aggregate",), functions="3.11:0123")
    mark = OriginMark.of(origin)
    for other in (
        replace(origin, topics=("a",), functions="3.12:4567"),
        replace(origin, topics=("a", "c")),
        replace(origin, keyed_by=()),
        replace(origin, functions="3.11:4567"),
    ):
        its = OriginMark.of(other)
        assert (mark == its) == (origin == other)
        assert mark.is_same_as(its) == origin.is_same_as(other)
        assert mark.has_equal_structure(its) == origin.has_equal_structure(other)
        assert mark.has_other_functions(its) == origin.has_other_functions(other)


# ------------------------------------------------------------------------------------------------- over the bundled broker


@pytest.fixture
def network(bundled_broker: BundledBroker) -> Iterator[NetworkThread]:
    network = NetworkThread(ClientConfig(bootstrap_servers=bundled_broker.bootstrap_servers))
    network.start()
    yield network
    network.stop()


def swapped_names(topic: str) -> Versions:
    named = called(MAXIMA, SECOND), called(SUMS, FIRST)
    return (
        reduced(SUMS, MAXIMA, topic=topic),
        reduced(MAXIMA, SUMS, topic=topic, epoch=1),
        reduced(*named, topic=topic, epoch=1),
        "a generated name that means something else",
    )


def swapped_sides(topic: str) -> Versions:
    return (
        joined(topic=topic),
        joined(topic=topic, swapped=True, epoch=1),
        joined(topic=topic, swapped=True, store="other", epoch=1),
        "the sides of the join have changed places",
    )


def other_windows(topic: str) -> Versions:
    return (
        windowed(TimeWindows(1_000), topic=topic),
        windowed(SlidingWindows(1_000), topic=topic, epoch=1),
        windowed(SlidingWindows(1_000), topic=topic, epoch=1, store="other"),
        "rows of tumbling or hopping windows would be taken for rows of sliding windows",
    )


def earlier_values(topic: str) -> Versions:
    """The version that is refused is one before the running one, with a later epoch."""

    def kept(version: int, epoch: int) -> Topology:
        upcasts = {each: (lambda number: number) for each in range(1, version)}
        store = Store("last", version=version, upcast=upcasts)
        return reduced(called(SUMS, store), topic=topic, epoch=epoch)

    return kept(3, 0), kept(2, 1), kept(4, 1), "the values of store 'last' have version 3, and it reads them up to 2"


def swapped_given_names(topic: str) -> Versions:
    return (
        counted_and_summed("A", "B", topic=topic),
        counted_and_summed("B", "A", topic=topic, epoch=1),
        counted_and_summed("C", "D", topic=topic, epoch=1),
        "and was what is B now: exchange the names again",
    )


def other_values(topic: str) -> Versions:
    return (
        counted_and_summed("A", "B", topic=topic),
        counted_and_summed("A", "B", topic=topic, epoch=1, kind=serdes.integer),
        counted_and_summed("C", "D", topic=topic, epoch=1, kind=serdes.integer),
        "value_serde is integer now, and was another one",
    )


@pytest.mark.parametrize(
    "versions", [swapped_names, swapped_given_names, swapped_sides, other_windows, other_values, earlier_values]
)
@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_beside_a_running_instance_with_another_state_directory_it_is_refused_and_that_one_goes_on(
    bundled_broker: BundledBroker,
    network: NetworkThread,
    tmp_path: Path,
    protocol: str,
    versions: Callable[[str], Versions],
) -> None:
    topic = f"numbers-{next(_NUMBERS)}"
    first, swapped, right, said = versions(topic)
    network.admin.create_topics(
        [NewTopic(name=name, partitions=1) for name in (topic, f"{topic}-sums", f"{topic}-maxima")]
    )
    up, pause = threading.Event(), threading.Event()

    def instance(topology: Topology, folder: str, began: threading.Event) -> KafkaStreams:
        config = {
            "application.id": f"{topic}-app",
            "bootstrap.servers": bundled_broker.bootstrap_servers,
            "state.dir": tmp_path / folder,
            "commit.interval.ms": 50,
            "group.protocol": protocol,
            "client.tag.zone": "a",
            "topology.epoch": topology.epoch,
        }

        def listen(new: State, _: State) -> None:
            if new is State.RUNNING:
                began.set()

        return KafkaStreams(topology, config, state_listener=listen)

    def wait_written(records: int) -> None:
        for _ in range(int(PATIENCE_S / 0.05)):
            if network.admin.list_offsets({(f"{topic}-sums", 0): LATEST})[f"{topic}-sums", 0].offset == records:
                return
            pause.wait(0.05)
        raise AssertionError("the running instance has written nothing more")

    def write(number: int) -> None:
        collector = RecordCollector(network.producer.send, lambda _topic: 1)
        collector.add(topic, [b"k"], [number.to_bytes(8, "big")], [1_000])
        collector.flush()
        network.producer.flush(PATIENCE_S)

    with instance(first, "old", up) as old:
        assert up.wait(PATIENCE_S)
        write(1)
        wait_written(1)
        refused = instance(swapped, "new", threading.Event())
        with pytest.raises(TopologyMismatchError, match=said):
            refused.run(until="quiet", timeout_s=PATIENCE_S)
        write(2)
        wait_written(2)
        assert old.state is State.RUNNING
        # It left no trace in the group: the old version may start again, and so may a newer one that means the same.
        again = threading.Event()
        with instance(first, "more", again):
            assert again.wait(PATIENCE_S)
        named = threading.Event()
        with instance(right, "new", named):
            assert named.wait(PATIENCE_S)


def test_a_classic_group_that_rebalances_is_waited_for_before_it_is_compared_with(
    bundled_broker: BundledBroker, network: NetworkThread, tmp_path: Path
) -> None:
    """The instance that stops for the upgrade begins a rebalance, in which the group does not report its members."""
    topic = f"numbers-{next(_NUMBERS)}"
    first, swapped, _, said = swapped_given_names(topic)
    network.admin.create_topics([NewTopic(name=name, partitions=2) for name in (topic, f"{topic}-sums")])

    def instance(topology: Topology, folder: str, began: threading.Event | None = None) -> KafkaStreams:
        config = {
            "application.id": f"{topic}-app",
            "bootstrap.servers": bundled_broker.bootstrap_servers,
            "state.dir": tmp_path / folder,
            "group.protocol": "classic",
            "heartbeat.interval.ms": 3_000,
            "topology.epoch": topology.epoch,
        }

        def listen(new: State, _: State) -> None:
            if began is not None and new is State.RUNNING:
                began.set()

        return KafkaStreams(topology, config, state_listener=listen)

    one, other = threading.Event(), threading.Event()
    with instance(first, "old", one) as stays:
        assert one.wait(PATIENCE_S)
        with instance(first, "other", other):
            assert other.wait(PATIENCE_S)
        (described,) = network.admin.describe_classic_groups([f"{topic}-app"])
        assert described.group_state == "PreparingRebalance"
        with pytest.raises(TopologyMismatchError, match=said):
            instance(swapped, "new").run(until="quiet", timeout_s=PATIENCE_S)
        assert stays.state is not State.ERROR


@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_where_nobody_can_tell_what_the_names_stood_for_it_warns(
    network: NetworkThread, tmp_path: Path, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"alone-{next(_NUMBERS)}"
    changelog = f"{name}-{FIRST}-changelog"
    config = StreamsConfig.of({"application.id": name, "group.protocol": protocol})

    def warnings(epoch: int = 1, *, on_disk: LocalVersion | None = None, **settings: object) -> list[str]:
        caplog.clear()
        topology = reduced(SUMS, MAXIMA, epoch=epoch)
        local = on_disk or LocalVersion(tmp_path, topology)
        check_group(StreamsConfig.of(config, **settings), topology, network.admin, local)
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    assert not warnings(), "there is no changelog"
    network.admin.create_topics([NewTopic(name=changelog, partitions=1)])
    assert not warnings(), "it is empty"
    collector = RecordCollector(network.producer.send, lambda _topic: 1)
    collector.add(changelog, [b"k"], [b"v"], [1_000])
    collector.flush()
    network.producer.flush(PATIENCE_S)
    (told,) = warnings()
    assert f"the stores {FIRST} have generated names, and their changelogs have records" in told
    assert not warnings(0), "no version came before"
    assert not warnings(topology_lock=tmp_path / "topology.lock")
    known = LocalVersion(tmp_path, reduced(SUMS, MAXIMA))
    known.remember()
    assert not warnings(on_disk=known)
