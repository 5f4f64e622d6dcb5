"""Serdes: values to bytes and back, with the bytes of the Java client's serdes."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class Serde(Protocol[T]):
    """Turns values of one type into bytes and back.

    ``name`` is part of the topology's digest. Neither method is ever given None: a null key or value stays null.
    """

    name: str

    def serialize(self, value: T) -> bytes: ...

    def deserialize(self, data: bytes) -> T: ...
