"""How many examples the tests of hypothesis try: half of what each says, but ten at least.

In CI the seed of the order decides which ones they are (``--hypothesis-seed``), so that runs differ and each of them can be
repeated. With ``--full``, and where a test is named by its id, each tries all that it says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

LEAST = 10
_OF_FUNCTION = "_hypothesis_internal_use_settings"
_OF_CLASS = "settings"


def halve(items: Iterable[pytest.Item]) -> None:
    """Cases of one test share its function, and are halved together; so does a state machine its class."""
    found: dict[tuple[Any, str], settings] = {}
    for item in items:
        test = getattr(item, "obj", None)
        if getattr(test, "is_hypothesis_test", False):
            machine = getattr(item, "cls", None)
            if isinstance(getattr(machine, _OF_CLASS, None), settings):
                found[machine, _OF_CLASS] = getattr(machine, _OF_CLASS)
            else:
                function = getattr(test, "__func__", test)
                found[function, _OF_FUNCTION] = getattr(function, _OF_FUNCTION)
    for (of, name), said in found.items():
        setattr(of, name, settings(said, max_examples=max(min(LEAST, said.max_examples), said.max_examples // 2)))
