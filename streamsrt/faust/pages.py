"""Where ``table_route`` leads: to this process, or nowhere.

A row is served by the process that has its partition. Faust looks for it by the hash of the key, which is not where a row
is whose record came by another key; here it is looked for in the tables themselves. Other processes are not asked: what
this one may not have is answered with 503.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Never

from faust.exceptions import SameNode
from faust.web.exceptions import ServiceUnavailable

if TYPE_CHECKING:
    import faust


class LocalRouter:
    """In the place of an application's router. ``has``: whether this process has the row of a table, if there is one."""

    def __init__(self, has: Callable[[str, object], bool]) -> None:
        self._has = has

    async def route_req(self, table_name: str, key: object, web: faust.web.Web, request: faust.web.Request) -> Never:
        """Raises SameNode where the page is to be served here, else ServiceUnavailable."""
        if self._has(table_name, key):
            raise SameNode
        raise ServiceUnavailable("the row is not in this process, and others are not queried")

    async def route_topic_req(self, *_: object) -> Never:
        """Raises ServiceUnavailable: which process reads a key of a topic is not known here."""
        raise ServiceUnavailable("topic_route is not supported by streamsrt.faust: see docs/faust.md")
