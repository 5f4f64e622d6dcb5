"""Values as JSON text, as exports and messages of a backfill show them."""

from __future__ import annotations

import orjson


def json_text(value: object) -> str:
    """A value as JSON, with what JSON has no form for as its text."""
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
