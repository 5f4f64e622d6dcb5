from __future__ import annotations

import pytest

from streamsrt.errors import ConfigError
from streamsrt.operators.engine.handlers import ErrorContext, HandlerResponse, handler_of

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
    with pytest.raises(ConfigError, match="'fail', 'continue' or a callable"):
        handler_of("ignore")
