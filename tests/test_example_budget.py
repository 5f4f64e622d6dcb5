"""Tests of hypothesis try half of their examples where a run has all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFTEST = """
import pytest
from tests.example_budget import halve

def pytest_collection_modifyitems(items):
    halve(items)
"""
MODULE = """
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

NUMBERS = st.integers(0, 1 << 60)
tried = Counter()


@pytest.mark.parametrize("case", ["a", "b"])
@settings(max_examples=60, database=None)
@given(number=NUMBERS)
def test_many(case, number):
    tried[case] += 1


@given(number=NUMBERS)
@settings(max_examples=12, database=None)
def test_a_dozen(number):
    tried["a dozen"] += 1


@settings(max_examples=4, database=None)
@given(number=NUMBERS)
def test_few(number):
    tried["few"] += 1


class TestMethod:
    @settings(max_examples=50, database=None)
    @given(number=NUMBERS)
    def test_it(self, number):
        tried["method"] += 1


class Machine(RuleBasedStateMachine):
    @rule()
    def go(self):
        pass


Machine.TestCase.settings = settings(max_examples=40, stateful_step_count=2, database=None)
TestMachine = Machine.TestCase


class TestOther(TestMachine):
    pass


def teardown_module():
    assert tried == {"a": 30, "b": 30, "a dozen": 10, "few": 4, "method": 25}
    # With a single rule, all runs of the machine are alike, and it may try fewer.
    assert TestMachine.settings.max_examples == TestOther.settings.max_examples == 20
    assert TestMachine.settings.stateful_step_count == 2
"""


def test_each_tries_half_of_what_it_says_and_ten_at_least(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_examples.py").write_text(MODULE)
    without = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:terminal", "--import-mode=importlib")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_ADDOPTS", raising=False)
        assert pytest.main([*without, "--rootdir", str(tmp_path), str(tmp_path)]) == pytest.ExitCode.OK
