"""What Faust's objects have as services of ``mode``: the application is one that runs, its agents and tables are none.

1. ``app.add_future()``, ``app.add_runtime_dependency()`` and ``app.crash()`` do here what they do in Faust's worker.
2. A call of such a method of an agent or a table, which nobody has started, ends the application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from faust.agents.agent import Agent

from streamsrt.errors import ProcessingError
from streamsrt.faust.background import Background
from streamsrt.faust.names import REFUSED, SERVICE_METHODS
from streamsrt.wording import error_text

if TYPE_CHECKING:
    import faust
    from mode import ServiceT


class BoundServices:
    """These methods of an application that runs here, until :meth:`unbind`.

    ``stop``: ``app.stop()``. ``refuse``: ends the application, given what was called and what to do instead.
    ``keep_iterating``: lets the event loop run for what was added while the application runs.
    """

    def __init__(
        self,
        app: faust.App,
        agents: Sequence[faust.Agent],
        tables: Sequence[faust.Table],
        background: Background,
        stop: Callable[[], Awaitable[None]],
        refuse: Callable[[str, str], NoReturn],
        keep_iterating: Callable[[], None],
    ) -> None:
        self._app = app
        self._agents, self._tables = agents, tables
        self._background = background
        self._refuse = refuse
        self._keep_iterating = keep_iterating
        app.stop, app.crash, app.add_future = stop, self._crash, self._add_future
        app.add_runtime_dependency = self._add_service
        app._started = app._new_started_event()
        app._started.set()
        for what, each in self._parts():
            for method in SERVICE_METHODS:
                setattr(each, method, partial(self._refuse_method, what, method))

    def unbind(self) -> None:
        """Gives all of them back."""
        app = self._app
        del app.stop, app.crash, app.add_future, app.add_runtime_dependency
        for _, each in self._parts():
            for method in SERVICE_METHODS:
                delattr(each, method)

    def _parts(self) -> Iterator[tuple[str, object]]:
        yield from ((f"table {table.name}", table) for table in self._tables)
        yield from ((f"agent {agent.name}", agent) for agent in self._agents)

    def _refuse_method(self, what: str, method: str, *_: object, **__: object) -> NoReturn:
        self._refuse(f"{method}() of {what}", REFUSED[Agent][method])

    async def _crash(self, reason: BaseException) -> None:
        failure = ProcessingError(f"app.crash() was called: {error_text(reason)}")
        failure.__cause__ = reason
        self._background.fail(failure)
        self._keep_iterating()

    def _add_future(self, work: Awaitable[object]) -> asyncio.Task[None]:
        future = self._background.add(work)
        self._keep_iterating()
        return future

    async def _add_service(self, service: ServiceT) -> ServiceT:
        await self._background.add_service(service)
        self._keep_iterating()
        return service
