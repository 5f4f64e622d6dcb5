"""What is no Exception (``sys.exit``, a KeyboardInterrupt that nobody pressed) fails as mistakes do, and is not skipped."""

from __future__ import annotations

import re
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from streamsrt.errors import ProcessingError
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import Processor, StreamsBuilder, serdes

CONTINUE = {f"{kind}.exception.handler": "continue" for kind in ("deserialization", "processing", "production")}
Fail = Callable[..., Any]
Program = Callable[[StreamsBuilder, Fail], None]


class Failing(serdes.Serde[str]):
    """A serde whose one half or the other fails."""

    def __init__(self, fail: Fail, half: str) -> None:
        self._fail, self._half = fail, half

    @property
    def name(self) -> str:
        return "failing"

    def serialize(self, value: str) -> bytes:
        return self._fail(value) if self._half == "serialize" else value.encode()

    def deserialize(self, raw: bytes) -> str:
        return self._fail(raw) if self._half == "deserialize" else raw.decode()


def processor(fail: Fail, method: str) -> type[Processor[Any, Any, Any, Any]]:
    class Made(Processor[Any, Any, Any, Any]):
        def init(self, context: Any) -> None:
            if method == "init":
                fail()

        def process(self, record: Any) -> None:
            if method == "process":
                fail()

    return Made


def stream(builder: StreamsBuilder, **options: Any) -> Any:
    return builder.stream("in", key=serdes.string, **({"value": serdes.string} | options))


def calling(fail: Fail) -> Callable[[str], Awaitable[str]]:
    async def call(value: str) -> str:
        return str(fail(value))

    return call


PROGRAMS: dict[str, Program] = {
    "straight": lambda builder, fail: stream(builder).map_values(fail).to("out"),
    "siblings": lambda builder, fail: [stream(builder).map_values(fail).to(topic) for topic in ("a", "b")] and None,
    "deserializer": lambda builder, fail: stream(builder, value=Failing(fail, "deserialize")).to("out"),
    "serializer": lambda builder, fail: stream(builder).to("out", value=Failing(fail, "serialize")),
    "timestamp": lambda builder, fail: stream(builder, timestamp_extractor=fail).to("out"),
    "topic": lambda builder, fail: stream(builder).to(fail),
    "process": lambda builder, fail: stream(builder).process(processor(fail, "process")),
    "init": lambda builder, fail: stream(builder).process(processor(fail, "init")),
    "aggregate": lambda builder, fail: stream(builder).group_by_key().reduce(fail).to_stream().to("out"),
    "map_batches": lambda builder, fail: stream(builder).map_batches(fail).to("out"),
    "join_lookup": lambda builder, fail: (
        stream(builder).join_lookup(fail, lambda *_: "x", on=lambda k, v: k).to("out", value=serdes.string)
    ),
    "map_async": lambda builder, fail: stream(builder).map_async(calling(fail)).to("out", value=serdes.string),
}


@pytest.fixture
def handled_interrupts() -> Iterator[None]:
    """As while an application runs: a signal handler takes Ctrl-C."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def default_interrupts() -> Iterator[None]:
    """As in a program that takes no signals; what ran before in this process, Spark's session for one, may take them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def raising_handler() -> Iterator[None]:
    """As beside Spark, whose signal handler raises what Ctrl-C raises."""

    def on_signal(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_signal)
    yield
    signal.signal(signal.SIGINT, before)


def run(name: str, error: BaseException) -> None:
    def fail(*_: Any) -> Any:
        raise error

    builder = StreamsBuilder()
    PROGRAMS[name](builder, fail)
    with TopologyTestDriver(builder.build(), CONTINUE) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        topic.pipe_input("k", "v")
        topic.pipe_input("k", "w")


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit("gone"), KeyboardInterrupt("mine")], ids=repr)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("handled_interrupts")
def test_it_is_told_with_its_step_and_no_handler_skips_it(name: str, error: BaseException) -> None:
    with pytest.raises(ProcessingError, match=rf"raised {type(error).__name__}: ") as raised:
        run(name, error)
    assert re.search(r"test_exits.py:\d+\)", str(raised.value))
    assert raised.value.__cause__ is error
    if name not in ("init", "timestamp"):
        assert "with exit code 5" in str(raised.value)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("default_interrupts")
def test_ctrl_c_stays_what_it_is(name: str) -> None:
    if name == "map_async":
        pytest.skip("its calls run on another thread, where no Ctrl-C arrives")
    with pytest.raises(KeyboardInterrupt):
        run(name, KeyboardInterrupt())


@pytest.mark.usefixtures("raising_handler")
def test_ctrl_c_that_a_signal_handler_raises_stays_what_it_is() -> None:
    builder = StreamsBuilder()
    stream(builder).map_values(lambda value: signal.raise_signal(signal.SIGINT)).to("out")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(KeyboardInterrupt):
        driver.create_input_topic("in", serdes.string, serdes.string).pipe_input("k", "v")


@pytest.mark.usefixtures("raising_handler")
def test_beside_such_a_handler_what_a_function_raises_is_its_own() -> None:
    with pytest.raises(ProcessingError, match="raised KeyboardInterrupt: "):
        run("straight", KeyboardInterrupt())
