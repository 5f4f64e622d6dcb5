"""The JSON that keys and values are written in: the standard library's or orjson's, as the application's Faust writes it.

1. Faust uses orjson where it is installed, as it is here. Without orjson, Faust writes other bytes for the same key:
   ``"\\u00e9"`` instead of ``"é"``, and other dates. A table would not find the rows of such keys, and count anew.
2. So the form does not depend on what is installed: it is the standard library's, unless the environment variable
   ``STREAMSRT_FAUST_JSON`` is ``orjson``.
3. A table whose changelog has keys in the other form is refused when it is restored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import cast

from faust.utils import json as of_faust

from streamsrt.errors import UserError
from topology.spec.codecs import Fold, Rows

VARIABLE = "STREAMSRT_FAUST_JSON"
OTHER_KEYS_VARIABLE = "STREAMSRT_FAUST_OTHER_KEYS"
STANDARD, ORJSON = "json", "orjson"
_CHOICES = {VARIABLE: (STANDARD, ORJSON), OTHER_KEYS_VARIABLE: ("refuse", "ignore")}
_ESCAPED = re.compile(rb"\\u(?!00[01])")
"""Characters that only the standard library writes as an escape."""

_with_orjson: tuple[Callable[..., object], Callable[..., object]] = of_faust.dumps, of_faust.loads
_standard_loads: Callable[..., object] = of_faust.json.loads
_standard_dumps: Callable[..., object] = of_faust.JSONEncoder(
    separators=(",", ":"), **of_faust._JSON_DEFAULT_KWARGS
).encode


def use_form() -> None:
    """Lets Faust write and read the form that the environment asks for. Raises UserError."""
    of_faust.dumps, of_faust.loads = _with_orjson if _choice(VARIABLE) == ORJSON else (_dumps, _loads)


def refusing_other_keys(
    table: str,
    changelog: str,
    read: Callable[[bytes], object],
    write: Callable[[object], bytes],
    is_row: Callable[[bytes], bool] = bool,
) -> Fold | None:
    """Checks keys that are restored into a table; None if the environment says that keys in the other form are ignored.

    ``read``, ``write``: decode and encode a key. ``is_row``: whether a key is that of a row. What it returns
    raises UserError.
    """
    if _choice(OTHER_KEYS_VARIABLE) == "ignore":
        return None
    form = _choice(VARIABLE)

    def check(keys: Sequence[bytes], values: Sequence[bytes | None], _: object) -> Rows:
        suspects = [key for key in keys if (_ESCAPED.search(key) if form == ORJSON else not key.isascii())]
        if suspects:
            rows = dict(zip(keys, values, strict=True))
            for key in suspects:
                if rows[key] is not None and is_row(key) and (ours := write(read(key))) != key:
                    raise _refused(table, changelog, key, ours, form)
        return keys, values

    return check


def _refused(table: str, changelog: str, key: bytes, ours: bytes, form: str) -> UserError:
    other = STANDARD if form == ORJSON else ORJSON
    names = {STANDARD: "the standard library's json", ORJSON: "orjson"}
    return UserError(
        f"the changelog {changelog} of table {table} has the key {key[:80].decode(errors='replace')}, which {names[other]} "
        f"has written. With {names[form]} this application writes {ours[:80].decode(errors='replace')}, and would not find "
        f"that row. Set the environment variable {VARIABLE}={other} in all instances, or {OTHER_KEYS_VARIABLE}=ignore to "
        "start such rows anew"
    )


def _choice(variable: str) -> str:
    choices = _CHOICES[variable]
    chosen = os.environ.get(variable) or choices[0]
    if chosen not in choices:
        raise UserError(f"the environment variable {variable} is {chosen!r}: it can be {choices[0]} or {choices[1]}")
    return chosen


def _dumps(obj: object, **_: object) -> str:
    return cast(str, _standard_dumps(obj))


def _loads(text: str, **_: object) -> object:
    return _standard_loads(text)
