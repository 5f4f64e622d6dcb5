"""Names of steps, stores and topics: what Kafka allows, and what Kafka Streams generates.

Generated names end with a ten-digit counter. Every operator takes numbers from the counter when it is called, even if
the user gives a name (except ``process`` and ``process_values``), so naming one step does not rename the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import TypeVar

from topology.spec.errors import IllegalNameError, TopologyError, call_site

T = TypeVar("T")

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
    if not is_legal(name):
        raise IllegalNameError(
            f"{name!r} can't be the name of a {what}: use letters, digits, '.', '_' and '-', but not '.' or '..' alone",
            call_site(),
        )
    return name


def is_legal(name: str) -> bool:
    """Whether Kafka accepts it as the name of a topic."""
    return len(name) <= MAX_LENGTH and name not in ("", ".", "..") and _LEGAL.fullmatch(name) is not None


def pattern_of_topics(pattern: re.Pattern[str] | re.Pattern[bytes]) -> str:
    """A compiled pattern as the text that the group gets, which says in itself that case does not matter. Raises
    TopologyError for what only Python understands."""
    text = pattern.pattern
    if not isinstance(text, str) or pattern.flags & re.VERBOSE:
        what = "bytes" if not isinstance(text, str) else "re.VERBOSE"
        raise TopologyError(f"a pattern of topics can't have {what}, which the group does not understand", call_site())
    is_told = re.compile(text).flags & re.IGNORECASE
    # Other flags mean nothing to the names that topics may have.
    return f"(?i){text}" if pattern.flags & re.IGNORECASE and not is_told else text


def in_stable_order(given: Iterable[T]) -> tuple[T, ...]:
    """Names, or what has names, in the order in which the program gives them. A set is sorted: it has another order in each
    process, and the digest of the topology would differ between the members of a group."""
    return tuple(sorted(given, key=_name_of)) if isinstance(given, Set) else tuple(given)


def _name_of(given: object) -> str:
    return str(getattr(given, "name", given))


def is_generated_prefix(name: str) -> bool:
    """Whether the three steps of a repartition get generated names under this topic prefix (as in KStreamImpl)."""
    return _GENERATED.fullmatch(name) is not None


def is_generated(name: str) -> bool:
    """Whether a store or internal topic has a generated name, which changes with the steps before it."""
    return _ANY_GENERATED.fullmatch(name) is not None
