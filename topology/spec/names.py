"""Names of steps, stores and topics: what Kafka allows, and what Kafka Streams generates.

Generated names end with a ten-digit counter. Every operator takes numbers from the counter when it is called, even if
the user gives a name (except ``process`` and ``process_values``), so naming one step does not rename the others.
"""

from __future__ import annotations

import re

from topology.spec.errors import IllegalNameError, call_site

MAX_LENGTH = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")
_ANY_GENERATED = re.compile(
    r"(KSTREAM|KTABLE)-.*-[0-9]{10}(-store|-asof-store|-asof-waiting-store|-Buffer|-topic)?|.*-STATE-STORE-[0-9]{10}"
)
"""With what joins put behind the name of their step, for their stores and topics."""

REPARTITION_SUFFIX = "-repartition"
CHANGELOG_SUFFIX = "-changelog"


def check_name(name: str, what: str) -> str:
    """The name itself. Raises IllegalNameError where Kafka would not accept it for a step, store or topic."""
    if not isinstance(name, str):
        raise IllegalNameError(f"the name of a {what} must be a str, not {name!r}", call_site())
    if len(name) > MAX_LENGTH:
        raise IllegalNameError(
            f"the name of a {what} has at most {MAX_LENGTH} characters, {name[:20]}... has {len(name)}", call_site()
        )
    if name in ("", ".", "..") or not _LEGAL.fullmatch(name):
        raise IllegalNameError(
            f"{name!r} can't be the name of a {what}: use letters, digits, '.', '_' and '-', but not '.' or '..' alone",
            call_site(),
        )
    return name


def is_generated_prefix(name: str) -> bool:
    """Whether the three steps of a repartition get generated names under this topic prefix (as in KStreamImpl)."""
    return _GENERATED.fullmatch(name) is not None


def is_generated(name: str) -> bool:
    """Whether a store or internal topic has a generated name, which changes with the steps before it."""
    return _ANY_GENERATED.fullmatch(name) is not None
