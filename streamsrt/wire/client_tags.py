"""Client tags of streams groups (KIP-1071) that our members and the bundled broker interpret."""

from collections.abc import Mapping

TOPOLOGY_DIGEST = "topology.digest"
"""The start of the topology's digest. Versions with the same topics and stores have the same metadata; the digest
distinguishes them."""

STORE_MARKS = "store.marks"
"""Marks of what a member keeps in stores and repartition topics (:mod:`streamsrt.membership.state_marks`)."""

STORE_SETTINGS = "store.settings"
"""What its stores are set to, and what reads earlier values (:mod:`streamsrt.membership.state_settings`)."""

TOPOLOGY_PARTS = "topology.parts"
"""The subtopologies of a member of a classic group (:mod:`streamsrt.membership.told_parts`)."""

LOSE_IN_FLIGHT = "upgrade.lose"
"""``true``: records in flight that only an older version of the topology could read may be lost."""

VALUE_VERSIONS = "store.versions"
"""Versions of the values in stores (:mod:`streamsrt.assignment.value_versions`)."""


def may_lose_in_flight(client_tags: Mapping[str, str]) -> bool:
    """Whether a member with these tags runs with ``--lose-in-flight``."""
    return client_tags.get(LOSE_IN_FLIGHT) == "true"
