"""Every requirement has a test that carries its id, or stands with a reason in ``requirements_not_done.txt``."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.requirement_report import known_requirements, marked_requirements, reasons

pytestmark = pytest.mark.house


def test_each_requirement_has_a_test_or_a_reason() -> None:
    explained = {identifier for identifier, _ in reasons()}
    assert sorted(known_requirements().keys() - marked_requirements().keys() - explained) == []


def test_the_reasons_are_about_requirements_that_there_are() -> None:
    counts = Counter(identifier for identifier, _ in reasons())
    assert sorted(counts.keys() - known_requirements().keys()) == []
    assert [identifier for identifier, count in counts.items() if count > 1] == []
    assert [identifier for identifier, reason in reasons() if not reason.endswith(".")] == []
    assert sorted(counts.keys() & marked_requirements().keys()) == []
