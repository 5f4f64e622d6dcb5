"""The serdes under the names that a program uses: ``serdes.string``, ``serdes.json(Model)``,
``serdes.time_windowed(...)``.

They are defined in :mod:`topology.spec.codecs`, where a serde can't be called ``bytes`` or ``float``.
"""

from topology.spec.codecs import (
    CallableSerde,
    JsonSerde,
    Serde,
    SessionWindowedSerde,
    TimeWindowedSerde,
    boolean,
    double,
    integer,
    json,
    long,
    session_windowed,
    short,
    string,
    time_windowed,
    uuid,
    void,
)
from topology.spec.codecs import bytes_ as bytes  # noqa: A004
from topology.spec.codecs import float_ as float  # noqa: A004

__all__ = [
    "CallableSerde",
    "JsonSerde",
    "Serde",
    "SessionWindowedSerde",
    "TimeWindowedSerde",
    "boolean",
    "bytes",
    "double",
    "float",
    "integer",
    "json",
    "long",
    "session_windowed",
    "short",
    "string",
    "time_windowed",
    "uuid",
    "void",
]
