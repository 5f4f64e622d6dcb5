from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from streamsrt.operators.stateless import gives_its_second_argument
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
