"""Creates ``faust.Record`` objects from decoded data.

1. Where all that faust does is to take the fields as they are, the object is made without its ``__init__``, which asks a
   descriptor for each field. That is known of the class: no coercion, no validation, no ``__post_init__``, fields of plain
   types, nothing overridden.
2. All other classes, and data with missing or additional fields, are left to Faust.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from faust.models import fields
from faust.models.base import Model
from faust.models.record import Record

if TYPE_CHECKING:
    from faust.types.models import ModelT

Data = dict[str, object]
_TAKES_AS_IT_IS = {
    each.prepare_value
    for each in (
        fields.BooleanField,
        fields.IntegerField,
        fields.FloatField,
        fields.StringField,
        fields.FieldDescriptor,
    )
}


def maker(kind: type[ModelT]) -> Callable[[object], object]:
    """What makes an object of that model of its data."""
    from_data = kind.from_data

    def make(data: object) -> object:
        return from_data(data, preferred_type=kind)

    if not _is_of_faust(kind):
        return make
    return _taking(kind, make) if _takes_fields(kind) else _calling(kind, make)


def _is_of_faust(kind: type[ModelT]) -> bool:
    """Whether faust's own code makes the object."""
    return (
        issubclass(kind, Record)
        and kind.from_data.__func__ is Record.from_data.__func__
        and kind._maybe_namespace.__func__ is Model._maybe_namespace.__func__
        and all(each.field == each.input_name for each in kind._options.descriptors.values())
    )


def _takes_fields(kind: type[ModelT]) -> bool:
    """Whether it takes fields as they are."""
    options, begins = kind._options, getattr(kind, "__init__", None)
    own = {name for each in kind.__mro__ if each is not object for name in vars(each)}
    return (
        hasattr(begins, "__sourcecode__")
        and own.isdisjoint(("__new__", "__setattr__", "__post_init__"))
        and not options.validation
        and bool(options.descriptors)
        and all(map(_is_plain, options.descriptors.values()))
    )


def _is_plain(field: fields.FieldDescriptor) -> bool:
    kind = type(field)
    return (
        kind.__set__ is fields.FieldDescriptor.__set__
        and kind.to_python is fields.FieldDescriptor.to_python
        and kind.prepare_value in _TAKES_AS_IT_IS
        and field._to_python is None
        and not (field.coerce or field.tag or field.lazy_coercion)
    )


def _calling(kind: type[ModelT], make: Callable[[object], object]) -> Callable[[object], object]:
    marker: str = kind._blessed_key

    def call(data: object) -> object:
        # The marker names another class.
        if type(data) is not dict or marker in data:
            return make(data)
        return kind(**data, __strict__=False)

    return call


def _taking(kind: type[ModelT], make: Callable[[object], object]) -> Callable[[object], object]:
    new, names = object.__new__, tuple(kind._options.fieldpos.values())
    has_defaults = bool(kind._options.optionalset)

    def take(data: object) -> object:
        if type(data) is not dict or tuple(data) != names or (has_defaults and None in data.values()):
            return make(data)
        made = new(kind)
        made.__dict__ = {"__evaluated_fields__": set(), **data}
        return made

    return take
