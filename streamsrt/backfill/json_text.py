"""Values as JSON text, as exports and messages of a backfill show them."""

from __future__ import annotations

import orjson


def json_text(value: object) -> str:
    """A value as JSON: pydantic models by their fields, other values that JSON has no form for as their text."""
    return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS).decode()


def _plain(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return str(value) if dump is None else dump(mode="json")
