"""What is told of the statuses of a group."""

from __future__ import annotations

import pytest

from streamsrt.assignment.status_code import StatusCode
from streamsrt.membership.statuses import passes_by_itself, status_text
from streamsrt.membership.values import Status


@pytest.mark.parametrize(
    ("code", "detail", "passes"),
    [
        (StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: a, b", True),
        (StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: a; Creation failed: a (no disk).", False),
        (
            StatusCode.MISSING_INTERNAL_TOPICS,
            "Internal topics are missing: a, b; Creation failed: a (Topic 'a' already exists.), "
            "b (Topic 'b' already exists.).",
            True,
        ),
        (
            StatusCode.MISSING_INTERNAL_TOPICS,
            "Internal topics are missing: a, b; Creation failed: a (Topic 'a' already exists.), b (no disk).",
            False,
        ),
        (StatusCode.ASSIGNMENT_DELAYED, "The initial assignment waits", True),
        (StatusCode.MISSING_SOURCE_TOPICS, "Source topics are missing: lines", False),
    ],
)
def test_what_passes_by_itself_is_no_warning(code: StatusCode, detail: str, passes: bool) -> None:
    assert passes_by_itself(Status(code, detail)) is passes


@pytest.mark.parametrize("is_classic", [False, True])
def test_counts_that_do_not_fit_name_the_command_that_moves_the_state(is_classic: bool) -> None:
    status = Status(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, "Existing topic c has different number of partitions")
    assert "streamsrt state repartition MODULE:TOPOLOGY" in status_text(status, is_classic=is_classic)
