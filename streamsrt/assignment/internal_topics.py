"""What the topics that an application makes for itself are called; :mod:`topology.spec.names` has the same for programs."""

from __future__ import annotations

CHANGELOG_SUFFIX = "-changelog"


def is_changelog(topic: str) -> bool:
    """Whether a topic has the name of an application's changelog."""
    return topic.endswith(CHANGELOG_SUFFIX)
