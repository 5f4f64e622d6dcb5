"""What patterns of source topics match, as far as they can be read here: the group reads them as Java does."""

from __future__ import annotations

import re
from collections.abc import Iterable


def matches(patterns: Iterable[str], topic: str) -> bool:
    """Whether a topic matches one of these patterns, or may do so."""
    for pattern in patterns:
        try:
            if re.fullmatch(pattern, topic):
                return True
        except re.error:
            # One that only Java understands: nobody knows here what it matches.
            return True
    return False
