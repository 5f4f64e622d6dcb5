"""Why tasks come, go and change their role."""

from __future__ import annotations

import logging

import pytest

from streamsrt.membership.values import Role
from streamsrt.tasks.manager.assignment_changes import KEPT_CHANGES, AssignmentChange, AssignmentChanges


def test_the_first_tasks_come_since_the_member_joined() -> None:
    changes = AssignmentChanges()
    with changes.assigned(2):
        pass
    with changes.assigned(3):
        changes.opened("a_0", "active")
    with changes.assigned(4):
        changes.opened("a_1", "standby")
    changes.lost()
    with changes.assigned(7):
        changes.opened("a_0", "active")
    given = "the group gave it to this member"
    assert changes.latest() == (
        AssignmentChange("a_0", "opened as active", f"{given} after it joined (member epoch 2 -> 3)"),
        AssignmentChange("a_1", "opened as standby", f"{given} (member epoch 3 -> 4)"),
        AssignmentChange("a_0", "opened as active", f"{given} after it joined (member epoch 7)"),
    )


@pytest.mark.parametrize(
    ("role", "becomes", "why"),
    [
        ("active", None, "the group no longer assigns it to this member"),
        ("active", "standby", "the group runs it elsewhere and wants it here as standby"),
        ("warmup", None, "the group no longer wants a warmup of it here"),
    ],
)
def test_why_a_task_goes(role: Role, becomes: Role | None, why: str) -> None:
    changes = AssignmentChanges()
    with changes.assigned(5):
        changes.closed("a_0", role, becomes)
    assert changes.latest() == (AssignmentChange("a_0", "closed", f"{why} (member epoch 5)"),)


@pytest.mark.parametrize(
    ("before", "role", "change", "why"),
    [
        ("warmup", "active", "promoted from warmup", "its state has caught up, and its former owner gave it up"),
        ("standby", "active", "promoted from standby", "the member that ran it left, failed or gave it up"),
        ("warmup", "standby", "from warmup to standby", "the group wants it here as standby"),
    ],
)
def test_why_a_task_changes_its_role(before: Role, role: Role, change: str, why: str) -> None:
    changes = AssignmentChanges()
    with changes.assigned(5):
        changes.changed_role("a_0", before, role)
    assert changes.latest() == (AssignmentChange("a_0", change, f"{why} (member epoch 5)"),)


def test_what_a_member_does_by_itself_has_its_own_cause(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "streamsrt.tasks.manager.assignment_changes")
    changes = AssignmentChanges()
    with changes.assigned(5):
        with changes.because("results could not be written"):
            changes.closed("a_0", "active", "active")
        changes.opened("a_1", "active")
    changes.closed("a_1", "active", None)
    assert [change.why for change in changes.latest()] == [
        "results could not be written",
        "the group gave it to this member after it joined (member epoch 5)",
        "this member ends",
    ]
    assert caplog.messages[0] == "task a_0: closed: results could not be written"


def test_the_latest_changes_are_kept() -> None:
    changes = AssignmentChanges()
    for number in range(KEPT_CHANGES + 1):
        changes.opened(f"a_{number}", "active")
    kept = changes.latest()
    assert (len(kept), kept[0].task_id, kept[-1].task_id) == (KEPT_CHANGES, "a_1", f"a_{KEPT_CHANGES}")


def test_what_the_coordinator_says_is_told_with_the_epochs() -> None:
    changes = AssignmentChanges()
    with changes.assigned(2):
        changes.opened("a_0", "active", has_state=True)
    with changes.assigned(4, "member b (10.0.0.2) joined"):
        changes.closed("a_0", "active", None)
    with changes.assigned(4):
        changes.opened("a_1", "standby")
    assert [change.why for change in changes.latest()] == [
        "the group gave it to this member after it joined, which has state of it on disk (member epoch 2)",
        "the group no longer assigns it to this member: member b (10.0.0.2) joined (member epoch 2 -> 4)",
        "the group gave it to this member (member epoch 4)",
    ]
