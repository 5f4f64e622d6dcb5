"""Client tags of streams groups (KIP-1071) that mean something to our members and to the bundled broker."""

from collections.abc import Mapping

TOPOLOGY_DIGEST = "topology.digest"
"""The start of the topology's digest. Equal topics and stores make equal metadata; this tells what is between them."""

STORE_ORIGIN = "origin."
"""Begins the key of a tag that tells what a generated store name stands for."""

STORE_SIDES = "sides."
"""Begins the key of a tag that tells what the two sides of a join are, of which a store keeps one."""

LOSE_IN_FLIGHT = "upgrade.lose"
"""``true``: records in flight that only an older version of the topology could read may be lost."""

VALUE_VERSIONS = "store.versions"
"""Versions of the values in stores (:mod:`streamsrt.assignment.value_versions`)."""


def may_lose_in_flight(client_tags: Mapping[str, str]) -> bool:
    """Whether who runs a member with these tags has said that records in flight may be lost."""
    return client_tags.get(LOSE_IN_FLIGHT) == "true"
