"""Converts TypedDicts of :mod:`typing` for pydantic, which requires those of ``typing_extensions`` before Python 3.12.

Before 3.12, a TypedDict lacks information that pydantic needs (which of its base classes is total, PEP 655 with
postponed annotations), so each one in a type is created again. From 3.12 on, nothing is converted.
"""

from __future__ import annotations

import sys
import types
from typing import Annotated, Any, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

from topology.spec.errors import TopologyError, call_site


def for_pydantic(kind: Any) -> Any:
    """The type, with TypedDicts that pydantic takes. Raises TopologyError for one that contains itself."""
    return kind if sys.version_info >= (3, 12) else _converted(kind, ())


def _converted(kind: Any, inside: tuple[Any, ...]) -> Any:
    if is_typeddict(kind) and type(kind).__module__ == "typing":
        return _made_anew(kind, inside)
    arguments = get_args(kind)
    if not arguments or get_origin(kind) is None:
        return kind
    if get_origin(kind) is Annotated:
        return Annotated[(_converted(arguments[0], inside), *arguments[1:])]
    converted = tuple(_converted(each, inside) for each in arguments)
    if all(one is other for one, other in zip(converted, arguments, strict=True)):
        return kind
    if isinstance(kind, types.UnionType):
        return Union[converted]  # noqa: UP007  # the types are known at run time only
    return kind.copy_with(converted) if hasattr(kind, "copy_with") else get_origin(kind)[converted]


def _made_anew(kind: Any, inside: tuple[Any, ...]) -> Any:
    import typing_extensions  # comes with pydantic

    if kind in inside:
        raise TopologyError(
            f"{kind.__qualname__} contains itself: before Python 3.12, use TypedDict of typing_extensions",
            call_site(),
        )
    fields = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        marked = get_origin(hint) in (Required, NotRequired)
        marker = get_origin(hint) if marked else Required if name in kind.__required_keys__ else NotRequired
        fields[name] = marker[_converted(get_args(hint)[0] if marked else hint, (*inside, kind))]
    make: Any = typing_extensions.TypedDict
    made = make(kind.__name__, fields)
    if hasattr(kind, "__pydantic_config__"):
        made.__pydantic_config__ = kind.__pydantic_config__
    return made
