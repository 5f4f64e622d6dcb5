"""The texts that refuse an update: each says where it happened and what to do next."""

from __future__ import annotations

import pytest

from streamsrt.assignment.configuration import TopicProblem
from streamsrt.assignment.refused_update import (
    could_not_run,
    creation_problem,
    epoch_behind,
    epoch_too_far_ahead,
    same_epoch,
    topics_problem,
)
from streamsrt.assignment.status_code import StatusCode
from streamsrt.wire.error_codes import ErrorCode


@pytest.mark.parametrize(
    ("refusal", "code", "parts"),
    [
        (same_epoch("app", 4), ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, ["of group app", "Set topology.epoch to 5"]),
        (epoch_behind("app", 3, 4), ErrorCode.STREAMS_TOPOLOGY_FENCED, ["epoch 3 is behind", "epoch 4 of group app"]),
        (epoch_too_far_ahead("app", 6, 4), ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, ["epoch 6", "next one is 5."]),
        (could_not_run("app", 5, 4, "No room."), ErrorCode.STREAMS_INVALID_TOPOLOGY, ["epoch 5 can't", "No room."]),
    ],
)
def test_each_refusal_names_epochs_and_what_comes_next(refusal, code, parts):
    assert refusal.code == code
    assert [part for part in parts if part not in refusal.text] == []


def test_a_refusal_says_whether_another_version_would_be_a_remedy():
    assert epoch_behind("app", 3, 4, is_same=True).is_same_topology
    assert not epoch_behind("app", 3, 4).is_same_topology


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (StatusCode.MISSING_SOURCE_TOPICS, "Create them,"),
        (StatusCode.INCORRECTLY_PARTITIONED_TOPICS, "Correct the numbers of partitions"),
    ],
)
def test_topics_that_stop_an_update_come_with_what_mends_them(code, remedy):
    text = topics_problem(TopicProblem(code, "Something is wrong."))
    assert text.startswith("Something is wrong. ")
    assert remedy in text


def test_a_topic_that_cant_be_made_is_told_with_its_reason_once_punctuated():
    text = creation_problem({"a": "no room.", "b": "bad name"})
    assert text.startswith("Internal topics can't be created: a: no room; b: bad name. Correct")
