from __future__ import annotations

import pytest

from streamsrt.config import StreamsConfig
from streamsrt.errors import ConfigError, ProductionError
from streamsrt.operators.engine.handlers import ErrorContext, HandlerResponse, handler_of
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import StreamsBuilder, serdes

CONTEXT = ErrorContext(topic="in", partition=0, offset=7, node="map")


@pytest.mark.parametrize(
    ("setting", "response"),
    [
        ("fail", HandlerResponse.FAIL),
        ("continue", HandlerResponse.CONTINUE),
        (lambda context, error: HandlerResponse.CONTINUE, HandlerResponse.CONTINUE),
        (lambda context, error: "fail" if context.offset == 7 else "continue", HandlerResponse.FAIL),
    ],
)
def test_a_handler_is_a_word_or_a_callable(setting: object, response: HandlerResponse) -> None:
    assert handler_of(setting)(CONTEXT, ValueError("x")) is response


def test_anything_else_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'ignore'\. Give 'fail', 'continue' or a callable"):
        handler_of("ignore")


def test_the_setting_of_a_mistyped_handler_is_named_and_what_was_meant() -> None:
    said = r"^processing\.exception\.handler='contine': did you mean 'continue'\? Give 'fail', 'continue' or"
    with pytest.raises(ConfigError, match=said):
        TaskConfig.of(StreamsConfig.of({"processing.exception.handler": "contine"}, application_id="a"))
    said = (
        r"^deserialization\.exception\.handler='strikt': did you mean 'strict'\? Give 'fail', 'continue', 'strict' or"
    )
    with pytest.raises(ConfigError, match=said):
        TaskConfig.of(StreamsConfig.of({"deserialization.exception.handler": "strikt"}, application_id="a"))


def written(serde: serdes.Serde[object], values: list[object], *, dynamic: bool) -> tuple[list[object], int]:
    """What results become that are made of numbers: those that the sink's serde takes, and the number of dead letters."""
    builder = StreamsBuilder()
    made = builder.stream("in", key=serdes.string, value=serdes.integer).map_values(lambda at: values[at])
    made.to((lambda *_: "out") if dynamic else "out", key=serdes.string, value=serde)
    settings = {"production.exception.handler": "continue", "errors.dead.letter.queue.topic.name": "letters"}
    with TopologyTestDriver(builder.build(), settings) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.integer)
        for at in range(len(values)):
            topic.pipe_input("k", at)
        return [record.value for record in driver.output_queue("out")], len(driver.output_queue("letters"))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_value_that_is_no_json_is_skipped(dynamic: bool) -> None:
    """Any object may be JSON or not: that is in the data."""
    assert written(serdes.json, ["a", {1, 2}, "b", 1 << 70], dynamic=dynamic) == ([b'"a"', b'"b"'], 2)


def test_a_serde_of_another_type_is_a_mistake_that_no_handler_skips() -> None:
    with pytest.raises(ProductionError, match="an error in the program, and no handler can skip it"):
        written(serdes.string, ["a", 1, "b"], dynamic=False)
