"""Routing of ``table_route`` and ``topic_route``: this process or a 503.

1. A row is served by the process that has its partition. Faust finds the process by the hash of the row's key, which is
   wrong if the row's record had another key. Here, the tables themselves are searched.
2. A key of a topic is served by the process that reads its partition: the one that the default partitioner sends it to.
3. Other processes are not queried: if this one may not have the row, the response is 503.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Never

from faust.exceptions import SameNode
from faust.web.exceptions import ServiceUnavailable

if TYPE_CHECKING:
    import faust


class LocalRouter:
    """Replaces an application's router.

    ``has``: whether this process has the row of a table, if there is one. ``reads``: whether it reads that key of a topic.
    """

    def __init__(self, has: Callable[[str, object], bool], reads: Callable[[str, bytes], bool]) -> None:
        self._has = has
        self._reads = reads

    async def route_req(self, table_name: str, key: object, web: faust.web.Web, request: faust.web.Request) -> Never:
        """Raises SameNode where the page is to be served here, else ServiceUnavailable."""
        if self._has(table_name, key):
            raise SameNode
        raise ServiceUnavailable("the row is not in this process, and others are not queried")

    async def route_topic_req(
        self, topic: faust.TopicT, key: object, web: faust.web.Web, request: faust.web.Request
    ) -> Never:
        """The same for a key of a topic."""
        raw = topic.prepare_key(key, None)[0]
        if raw is not None and self._reads(topic.get_topic_name(), raw):
            raise SameNode
        raise ServiceUnavailable("the partition of the key is not read by this process, and others are not asked")
