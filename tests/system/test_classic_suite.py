"""The table of what classic groups leave out of the system tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.classic_suite import NOT_IN_CLASSIC_GROUPS, not_in_classic_groups

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(NOT_IN_CLASSIC_GROUPS))
def test_each_row_names_tests_that_there_are(name: str) -> None:
    module, _, test = name.partition("::")
    text = (HERE / f"{module}.py").read_text(encoding="utf-8")
    assert f"def {test}(" in text if test else "def test_" in text


def test_a_row_is_for_a_test_or_for_its_module() -> None:
    table = NOT_IN_CLASSIC_GROUPS
    assert not_in_classic_groups("test_demo", "test_anything[bundled]") == table["test_demo"]
    name = "test_a_broker_that_is_too_old"
    assert not_in_classic_groups("test_bad_input", f"{name}[x]") == table[f"test_bad_input::{name}"]
    assert not_in_classic_groups("test_bad_input", "test_a_sink_topic_is_missing") is None
