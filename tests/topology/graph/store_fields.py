"""Which fields of an operation name a store that holds rows of its own."""

from __future__ import annotations

from dataclasses import fields

STORE_FIELDS = frozenset({"store", "buffer", "closed", "shared", "waiting"})
"""``test_every_operator`` finds a field that is missing here, by what the operations of its programs name."""


def store_fields(operation: type) -> set[str]:
    """The fields of an operation that name such a store."""
    return {field.name for field in fields(operation)} & STORE_FIELDS
