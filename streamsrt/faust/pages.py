"""Routing of ``table_route``, ``topic_route`` and of Faust's own pages: this process or a 503.

1. A row is served by the process that has its partition. Faust finds the process by the hash of the row's key, which is
   wrong if the row's record had another key. Here, the tables themselves are searched.
2. A key of a topic is served by the process that reads its partition: the one that the default partitioner sends it to.
3. Other processes are not queried: if this one may not have the row, the response is 503. Lists of partitions have those of
   this process only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Never, NoReturn, Protocol

from faust.exceptions import SameNode
from faust.types.tuples import TP
from faust.web.exceptions import NotFound, ServiceUnavailable

from streamsrt.faust.tables import changelog_of

if TYPE_CHECKING:
    import faust

HostToPartitions = dict[str, dict[str, list[int]]]
"""By the URL of a process, the partitions that it has of each topic."""


class OwnPartitions(Protocol):
    """The partitions of this process."""

    def has_all(self, table: str, key: object) -> bool:
        """Whether it has the row of a table, if there is one."""

    def reads(self, topic: str, key: bytes) -> bool:
        """Whether one of its agents gets the records of that key."""

    def of_topics(self) -> Iterable[tuple[str, int]]:
        """Those that its agents read."""

    def of_tables(self) -> Mapping[str, Iterable[int]]:
        """Those whose rows it has, by the name of the table."""


class LocalRouter:
    """Replaces an application's router."""

    def __init__(self, app: faust.App, partitions: OwnPartitions) -> None:
        self._app = app
        self._partitions = partitions

    async def route_req(self, table_name: str, key: object, web: faust.web.Web, request: faust.web.Request) -> Never:
        """Raises SameNode where the page is to be served here, else ServiceUnavailable."""
        if self._partitions.has_all(table_name, key):
            raise SameNode
        raise ServiceUnavailable("the row is not in this process, and others are not queried")

    async def route_topic_req(
        self, topic: faust.TopicT, key: object, web: faust.web.Web, request: faust.web.Request
    ) -> Never:
        """The same for a key of a topic."""
        raw = topic.prepare_key(key, None)[0]
        if raw is not None and self._partitions.reads(topic.get_topic_name(), raw):
            raise SameNode
        raise ServiceUnavailable("the partition of the key is not read by this process, and others are not asked")

    def key_store(self, table_name: str, key: object) -> str:
        """The URL of this process if it has the row. Raises KeyError if not, or without such a table."""
        if table_name in self._app.tables and self._partitions.has_all(table_name, key):
            return self._url
        raise KeyError(key)

    def external_topic_key_store(self, topic: faust.TopicT, key: object) -> str:
        """The same for the process that reads the partition of a key."""
        raw = topic.prepare_key(key, None)[0]
        if raw is not None and self._partitions.reads(topic.get_topic_name(), raw):
            return self._url
        raise KeyError(key)

    def tables_metadata(self) -> HostToPartitions:
        """The changelog partitions of all tables in this process."""
        found = {
            changelog_of(self._app.tables[name]): sorted(each) for name, each in self._partitions.of_tables().items()
        }
        return {self._url: found}

    def table_metadata(self, table_name: str) -> HostToPartitions:
        """The changelog partitions of one table. Raises NotFound."""
        if table_name not in self._app.tables:
            raise NotFound("unknown table")
        numbers = self._partitions.of_tables().get(table_name, ())
        return {self._url: {changelog_of(self._app.tables[table_name]): sorted(numbers)}}

    def external_topics_metadata(self) -> HostToPartitions:
        """The partitions that agents of this process read."""
        found: dict[str, list[int]] = {}
        for topic, number in sorted(self._partitions.of_topics()):
            found.setdefault(topic, []).append(number)
        return {self._url: found}

    @property
    def _url(self) -> str:
        return str(self._app.conf.canonical_url)


class LocalAssignor:
    """Replaces an application's assignor, which Faust's page ``/assignment/`` asks.

    ``refuse``: raises for everything else that is wanted of it.
    """

    def __init__(self, app: faust.App, partitions: OwnPartitions, refuse: Callable[[str], NoReturn]) -> None:
        self._app = app
        self._partitions = partitions
        self._refuse = refuse

    def assigned_actives(self) -> set[TP]:
        """The partitions of topics and changelogs that this process has."""
        tables = self._partitions.of_tables().items()
        changelogs = {TP(changelog_of(self._app.tables[name]), each) for name, numbers in tables for each in numbers}
        return changelogs | {TP(*each) for each in self._partitions.of_topics()}

    def assigned_standbys(self) -> set[TP]:
        """None: standby tasks belong to the runtime, and have no part in the application."""
        return set()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        self._refuse(name)
