from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.errors import ProductionError
from streamsrt.operators.engine.written_texts import TEXTS_MIN
from streamsrt.operators.kinds.stateless import gives_its_second_argument
from streamsrt.runtime.drop_log import DropLog, Drops
from streamsrt.tasks.task import Task
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.records.texts import Texts, Times
from tests.streamsrt.operators.programs import Piped, Written, columns_of, commit, new_task
from topology import KStream, StreamsBuilder, serdes


def generator(key: Any, value: Any) -> Iterator[Any]:
    yield value


async def coroutine(key: Any, value: Any) -> Any:
    return value


async def asynchronous(key: Any, value: Any) -> AsyncIterator[Any]:
    yield value


def inner(key: Any, value: Any) -> Any:
    return lambda: value


def demanding(key: Any, value: Any, *, other: Any) -> Any:
    return value


@pytest.mark.parametrize("fn", [lambda key, value: value, lambda _, word: word, lambda key, value, *rest: value])
def test_a_function_that_gives_its_second_argument_is_known(fn: Callable[..., Any]) -> None:
    assert gives_its_second_argument(fn)


@pytest.mark.parametrize(
    "fn",
    [
        lambda key, value: key, lambda value: value, lambda key, *value: value, lambda key, value: value + "x",
        lambda *values: values[1], lambda key, value: [value], partial(lambda key, value: value), max,
        generator, coroutine, asynchronous, inner, demanding,
    ],
)  # fmt: skip
def test_other_functions_are_not(fn: Callable[..., Any]) -> None:
    assert not gives_its_second_argument(fn)


@pytest.mark.parametrize("generate", [True, False])
def test_a_stream_that_is_keyed_by_its_value(generate: bool) -> None:
    builder = StreamsBuilder()
    lines: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.string)
    words = lines.flat_map_values(lambda line: [None, *line.split()])
    words.select_key(lambda _, word: word).to("out", key=serdes.string, value=serdes.string)
    lines.select_key(lambda _, line: line).filter(lambda key, line: key > "a").to("some", value=serdes.string)
    written = Written()
    task = new_task(builder.build(), written, generate=generate)
    task.add_batch("in", 0, columns_of([Piped("in", "k", "b c", 1, ()), Piped("in", None, "A", 2, ())], 0))
    task.process(100, 0)
    commit(task)
    rows = {topic: [row[:2] for row in rows] for topic, rows in written.topics.items()}
    assert rows["out"] == [(None, None), (b"b", b"b"), (b"c", b"c"), (None, None), (b"A", b"A")]
    assert rows["some"] == [(b"b c", b"b c")]


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("way", ["repartition", "group_by", "group_by_key"])
def test_who_has_no_key_before_a_repartition_topic_is_counted_apart(way: str, generate: bool) -> None:
    """Java drops such records in a filter of its own, and its metric of dropped records does not count them."""
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.string)
    if way == "repartition":
        stream.repartition(name="r", partitioner=lambda *_: 0).to("out")
    elif way == "group_by":
        stream.group_by(lambda key, value: key, key=serdes.string, value=serdes.string, name="g").count(store="s")
    else:
        stream.select_key(lambda key, value: key).group_by_key(key=serdes.string, name="g").count(store="s")
    written = Written()
    first = builder.build().subtopologies[0]
    config = TaskConfig(default_key_serde=serdes.string, default_value_serde=serdes.string, generate=generate)
    task = Task(
        first, 0, application_id="app", stores={}, collector=written, config=config, partitions_of_topic=lambda _: 1
    )
    rows = [Piped("in", key, "v", 1, ()) for key in ("a", None, "b", None, None)]
    task.add_batch("in", 0, columns_of(rows, 0))
    task.process(100, 0)
    commit(task)
    (topic,) = written.topics
    assert [row[0] for row in written.topics[topic]] == [b"a", b"b"]
    counters = task.counters()
    assert (counters["unkeyed"], counters["dropped"], counters["dropped_null"]) == (3, 0, 0)
    assert DropLog().lines([Drops("task 0_0", " of in-0", counters)], 0) == [
        "task 0_0: dropped 3 records of in-0: they have no key and precede a repartition topic (no metric counts "
        "them, as in Kafka Streams)"
    ]


def words_of(line: str | None) -> Any:
    words = [None if word == "-" else "" if word == "_" else word for word in (line or "").split()]
    return words if len(words) % 2 else iter(words)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.none() | st.text("ab-_ ", max_size=8), st.booleans()), max_size=6))
def test_words_that_become_keys_are_written_as_those_are_that_go_one_by_one(
    lines: list[tuple[str | None, bool]],
) -> None:
    outcomes = []
    for generate, keyed in ((True, lambda _, word: word), (True, lambda _, word: word or word), (False, None)):
        builder = StreamsBuilder()
        stream: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.string)
        stream.flat_map_values(words_of).select_key(keyed or (lambda _, word: word)).repartition(
            name="words", key=serdes.string, value=serdes.string
        ).to("out", key=serdes.string, value=serdes.string)
        written = Written()
        first = builder.build().subtopologies[0]
        config = TaskConfig(default_key_serde=serdes.string, default_value_serde=serdes.string, generate=generate)
        task = Task(
            first, 0, application_id="app", stores={}, collector=written, config=config, partitions_of_topic=lambda _: 1
        )
        rows = [
            Piped("in", "k", line, at, (("h", b"%d" % at),) if has_headers else ())
            for at, (line, has_headers) in enumerate(lines)
        ]
        task.add_batch("in", 0, columns_of(rows, 0))
        task.process(100, 0)
        commit(task)
        outcomes.append((written.topics, task.counters()["unkeyed"], task.counters()["dropped"]))
    assert outcomes[0] == outcomes[1] == outcomes[2]


class Counted(Written):
    """Knows how many texts came as such."""

    texts = 0

    def add_texts(self, topic: str, texts: Texts, times: Times) -> None:
        self.texts += len(texts)
        super().add_texts(topic, texts, times)


def grouped(stream: KStream[Any, Any]) -> KStream[Any, Any]:
    """Nothing else goes to its topic than words."""
    return stream.flat_map_values(words_of)


def beside_lines(stream: KStream[Any, Any]) -> KStream[Any, Any]:
    """Lines and words take turns in one topic."""
    return stream.merge(stream.flat_map_values(words_of))


def word_task(
    words: Callable[[KStream[Any, Any]], KStream[Any, Any]], collector: Written, *, generate: bool = True
) -> Task:
    """The task that writes the words of lines to their repartition topic."""
    builder = StreamsBuilder()
    lines: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.string)
    words(lines).group_by(lambda _, word: word, key=serdes.string, value=serdes.string).count(store="s")
    return Task(
        builder.build().subtopologies[0],
        0,
        application_id="app",
        stores={},
        collector=collector,
        config=TaskConfig(default_key_serde=serdes.string, default_value_serde=serdes.string, generate=generate),
        partitions_of_topic=lambda _: 1,
    )


@pytest.mark.parametrize("special", ["", "a\0b", "x" * 40, "- _"])
@pytest.mark.parametrize("words", [grouped, beside_lines])
def test_many_words_are_written_together(words: Callable[[KStream[Any, Any]], KStream[Any, Any]], special: str) -> None:
    written = []
    for generate in (True, False):
        collector = Counted()
        task = word_task(words, collector, generate=generate)
        rows = [Piped("in", "k", f"a b{at} ccccccccccc", at, ()) for at in range(TEXTS_MIN // 2)]
        task.add_batch("in", 0, columns_of([*rows, Piped("in", "k", f"a {special} b", 500, ())], 0))
        task.process(1000, 0)
        commit(task)
        written.append(collector)
    assert written[0].topics == written[1].topics
    assert (written[0].texts > 0) is (words is grouped and special == "")


def test_words_before_one_that_can_not_be_written_are_written() -> None:
    written = Counted()
    task = word_task(
        lambda lines: lines.flat_map_values(lambda line: ["\ud800"] if line == "bad" else line.split()), written
    )
    rows = [Piped("in", "k", "bad" if at == TEXTS_MIN else "a b", at, ()) for at in range(2 * TEXTS_MIN)]
    task.add_batch("in", 0, columns_of(rows, 0))
    with pytest.raises(ProductionError, match=f"offset {TEXTS_MIN + columns_of(rows, 0).base_offset}"):
        task.process(1000, 0)
    assert written.texts == 2 * TEXTS_MIN
    assert task.buffered_records == TEXTS_MIN


def test_a_word_that_can_not_be_written_fails_at_the_sink() -> None:
    builder = StreamsBuilder()
    lines: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.string)
    words = lines.flat_map_values(lambda line: [line, "\ud800"])
    words.group_by(lambda _, word: word).count(store="s")
    (first, _) = builder.build().subtopologies
    config = TaskConfig(default_key_serde=serdes.string, default_value_serde=serdes.string)
    task = Task(
        first, 0, application_id="app", stores={}, collector=Written(), config=config, partitions_of_topic=lambda _: 1
    )
    task.add_batch("in", 0, columns_of([Piped("in", "k", "word", 1, ())], 0))
    with pytest.raises(ProductionError, match="s-repartition-sink"):
        task.process(100, 0)
