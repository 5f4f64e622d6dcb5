"""Exactly once: whatever is killed, what is read committed holds every result once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cluster import Cluster
from tests.system.storm import flights_in_a_storm, word_counts_in_a_storm

BLOWS = 4


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_words_are_counted_once_in_a_storm(cluster: Cluster, tmp_path: Path, application_id: str) -> None:
    storm = word_counts_in_a_storm(6, BLOWS, cluster, tmp_path, application_id)
    assert storm.blows.total() == BLOWS


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_windows_are_counted_once_in_a_storm(cluster: Cluster, tmp_path: Path, application_id: str) -> None:
    storm = flights_in_a_storm(12, BLOWS, cluster, tmp_path, application_id)
    assert storm.blows.total() == BLOWS
