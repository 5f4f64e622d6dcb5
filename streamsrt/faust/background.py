"""What an application runs beside its agents: ``@app.task``, ``@app.service``, pages, and those who listen to its signals.

1. Tasks and services begin once in a process, when it has its first partitions and their tables are restored; tasks with
   ``on_leader`` when it leads first. They end with the last agent. An exception stops the application, as in Faust.
2. Commits do not wait for them. Their sends go out with the next run of the event loop, in the next transaction.
3. The event loop runs for them every :data:`TICK_MS`, however little the agents have to do.
4. Signals announce partitions before the first of their records is processed.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from faust.types.topics import TopicT
from faust.types.tuples import TP, FutureMessage, RecordMetadata
from mode.utils.futures import maybe_async

from streamsrt.errors import ProcessingError, StreamsError, UserError
from streamsrt.faust.host import SENDER, Host
from streamsrt.faust.lifecycle import own_hooks
from streamsrt.faust.locations import line_of, written
from streamsrt.faust.options import given_options
from streamsrt.wording import error_text

if TYPE_CHECKING:
    import faust
    from mode import ServiceT
    from mode.signals import BaseSignal

logger = logging.getLogger(__name__)

TICK_MS = 10
_ITERATIONS = 4
"""How many iterations the loop does in a tick: what waits for what is ready goes on at once."""
_PATIENCE_S = 10.0
_PORT_OF_FAUST = 6066
"""Unless the program, the environment or an option of the command line gives another one."""
SIGNALS = ("on_partitions_assigned", "on_partitions_revoked", "on_rebalance_complete", "on_before_shutdown")


class AppTask(NamedTuple):
    """A function that the application runs once. ``function``: takes nothing."""

    function: Callable[[], Awaitable[object]]
    on_leader: bool


def app_tasks(tasks: Iterable[Callable[[], Awaitable[object]]]) -> list[AppTask]:
    """Those of an application that are no timers."""
    return [AppTask(each, bool(inspect.getclosurevars(each).nonlocals.get("on_leader"))) for each in tasks]


def listens(app: faust.App) -> bool:
    """Whether anybody wants to know which partitions there are."""
    return any(True for name in SIGNALS for _ in getattr(app, name).iter_receivers(app)) or any(
        table._recover_callbacks for table in app.tables.values()
    )


async def _over(running: Sequence[asyncio.Future[None]]) -> None:
    await asyncio.gather(*running, return_exceptions=True)


async def _noted(work: Awaitable[object], what: str) -> None:
    """Waits for something at the end of the application, whatever it raises."""
    try:
        await work
    except Exception as error:  # noqa: BLE001  # functions of the program raise anything
        logger.error("%s raised %s%s: %s", what, type(error).__name__, _raised_at(error), error)


def _raised_at(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


async def _logged(work: Awaitable[object]) -> None:
    try:
        await work
    except Exception:
        logger.exception("the callback of a send raised")


class Background:
    """What runs beside the agents of one process."""

    def __init__(self, app: faust.App, host: Host, tasks: Sequence[AppTask], *, serves: bool = True) -> None:
        self._app = app
        self._host = host
        self._waiting = list(tasks)
        self._services: list[ServiceT] = []
        self._running: set[asyncio.Task[None]] = set()
        self._failure: StreamsError | None = None
        self._serves = serves and has_pages(app)
        self._hooks = own_hooks(app)
        self._waiting += [AppTask(partial(each.fun, app), on_leader=False) for each in app._get_tasks()]
        self._has_services = bool(app._extra_services or app._children) or self._serves
        self.listens = listens(app)
        self.is_wanted = bool(self._waiting) or self._has_services or bool(self._hooks)
        """Whether there is anything that needs the loop to run for it."""
        self._announced: set[tuple[str, int]] = set()
        self._services_started = asyncio.Event()
        self._starts_added = False
        """Whether the services that were there at the start have started, and each that is added starts at once."""
        self._is_started = self._has_ended = self._has_said_shutdown = False

    def begin(self, *, is_first: bool) -> None:
        """Calls ``on_first_start`` and ``on_start`` of an application that has them, and waits. Raises ProcessingError."""
        for name in ("on_first_start", "on_start"):
            if name in self._hooks and (is_first or name == "on_start"):
                self._host.run(self._run(getattr(self._app, name)(), self._hook(name)))
                self.check()
        # What on_start has added.
        self._has_services = self._has_services or bool(self._app._children)

    def _hook(self, name: str) -> str:
        return f"{name} ({line_of(self._hooks[name])})"

    def advance(self, *, leads: bool) -> None:
        """Begins what can, and lets it go on. Raises ProcessingError for what has raised."""
        if not self._is_started:
            self._is_started = True
            if self._has_services:
                self._begin(self._start_services(), "a service of the application")
            if "on_started" in self._hooks:
                self._begin(self._after_services(), self._hook("on_started"))
        for each in [each for each in self._waiting if leads or not each.on_leader]:
            self._waiting.remove(each)
            self._begin(each.function(), f"the task at {line_of(each.function)}")
        self._host.iterate(_ITERATIONS)
        self.check()

    @property
    def is_running(self) -> bool:
        """Whether anything is."""
        return bool(self._running)

    def adopt(self, task: asyncio.Task[None]) -> None:
        """It runs beside the agents from now on: no commit waits for it."""
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def call_back(self, future: FutureMessage) -> None:
        """Calls the callback of a send that is committed. What it raises is logged."""
        message = future.message
        if not future.done():
            topic = message.channel.get_topic_name() if isinstance(message.channel, TopicT) else "<anon>"
            number = -1 if message.partition is None else message.partition
            future.set_result(RecordMetadata(topic, number, TP(topic, number), -1, message.timestamp, 0))
        try:
            result = message.callback(future)
        except Exception:
            logger.exception("the callback of a send raised")
            return
        if inspect.isawaitable(result):
            self.adopt(self._host.start(_logged(result), copy_context()))

    def fail(self, failure: StreamsError) -> None:
        """The application can't go on."""
        # A handler may let a punctuation pass over anything else.
        self._failure = ProcessingError(str(failure))
        self._failure.__cause__ = failure.__cause__ or failure

    def check(self) -> None:
        """Raises ProcessingError for what has raised."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _begin(self, work: Awaitable[object], what: str) -> None:
        self.adopt(self._host.start(self._run(work, what), copy_context()))

    async def _run(self, work: Awaitable[object], what: str) -> None:
        SENDER.set(what)
        try:
            await work
        except UserError as error:
            self.fail(error)
        except Exception as error:
            logger.exception("%s raised", what)
            self._failure = ProcessingError(f"{what} raised {error_text(error)}")
            self._failure.__cause__ = error

    async def _start_services(self) -> None:
        app = self._app
        for service in [app._prepare_subservice(each) for each in app._extra_services]:
            await self._start_service(service)
        # A service may add others while it starts: they come last.
        for service in app._children:
            await self._start_service(service)
        self._starts_added = True
        if self._serves:
            await self._serve()
        self._services_started.set()

    async def _start_service(self, service: ServiceT) -> None:
        self._services.append(service)
        service.service_reset()
        service.loop = asyncio.get_running_loop()
        await service.start()

    async def add_service(self, service: ServiceT) -> None:
        """``app.add_runtime_dependency()``: starts it, and stops it at the end."""
        self._app.add_dependency(service)
        if self._starts_added or not self._has_services:
            await self._start_service(service)

    def add(self, work: Awaitable[object]) -> asyncio.Task[None]:
        """``app.add_future()``: what it raises ends the application."""
        task = self._host.start(self._run(work, f"{work!r} of app.add_future()"), copy_context())
        self.adopt(task)
        return task

    async def _after_services(self) -> None:
        if self._has_services:
            await self._services_started.wait()
        await self._app.on_started()

    async def _serve(self) -> None:
        web, conf = self._app.web, self._app.conf
        if not web.blueprints.applied:
            web.init_server()
        try:
            await web.start_server()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            # Several processes of one host have the same port, and one of them is enough.
            logger.warning("the pages are not served here: port %d is taken: %s", conf.web_port, error)
        else:
            self._services.append(PageServer(web))
            logger.info("pages are served at port %d", conf.web_port)

    # --------------------------------------------------------------------------------------------------------- signals

    def announce(self, partitions: set[tuple[str, int]]) -> None:
        """Announces the partitions that the process has now, and waits for those who listen. Raises ProcessingError."""
        self._host.run(self._run(self._signal(partitions), "a listener of a signal"))
        self.check()

    async def _signal(self, partitions: set[tuple[str, int]]) -> None:
        app, revoked = self._app, {TP(*each) for each in self._announced - partitions}
        is_new = bool(partitions - self._announced)
        self._announced = partitions
        if revoked:
            await app.on_partitions_revoked.send(revoked)
        if is_new:
            await app.on_partitions_assigned.send({TP(*each) for each in partitions})
            for table in app.tables.values():
                await table.call_recover_callbacks()
        if partitions:
            await app.on_rebalance_complete.send()

    # ------------------------------------------------------------------------------------------------------------- end

    def end(self) -> None:
        """Ends all that runs beside the agents. Again: nothing happens. What raises is logged, and the rest is called."""
        if self._has_ended:
            return
        self._has_ended = True
        try:
            self._host.run(asyncio.wait_for(self._stop(), _PATIENCE_S))
        except TimeoutError:
            logger.error("the end of the application took more than %g s and was broken off", _PATIENCE_S)
        running = [*self._running, *self._app._futures]
        for each in running:
            each.cancel()
        self._host.run(_over(running))
        if "on_shutdown" in self._hooks:
            self._host.run(_noted(self._app.on_shutdown(), self._hook("on_shutdown")))

    async def _stop(self) -> None:
        app = self._app
        app._stopped.set()
        if "on_stop" in self._hooks:
            await _noted(app.on_stop(), self._hook("on_stop"))
        await self.say_shutdown()
        for service in reversed(self._services):
            await _noted(service.stop(), f"the end of {service!r}")
        if self._announced:
            await call_listeners(app.on_partitions_revoked, app, {TP(*each) for each in self._announced})
        await app._maybe_close_http_client()
        app._http_client = None

    async def say_shutdown(self) -> None:
        """Sends ``on_before_shutdown``. Again: nothing happens."""
        if not self._has_said_shutdown:
            self._has_said_shutdown = True
            await call_listeners(self._app.on_before_shutdown, self._app)


async def call_listeners(signal: BaseSignal, *arguments: object) -> None:
    """Calls all who listen to a signal, even if some of them raise: that is logged."""
    for listener in list(signal.iter_receivers(arguments[0])):
        what = f"{written(listener).__name__} ({line_of(listener)}), which listens to {signal.name},"
        await _noted(_call(listener, *arguments, signal=signal), what)


async def _call(function: Callable[..., object], *arguments: object, **named: object) -> None:
    await maybe_async(function(*arguments, **named))


class PageServer:
    """What ends the server of the pages."""

    def __init__(self, web: faust.web.Web) -> None:
        self._web = web

    async def stop(self) -> None:
        """Serves no more."""
        await self._web.stop_server()


def has_pages(app: faust.App) -> bool:
    """Whether the application serves pages: those that it declares, or Faust's own if it sets a ``web_`` option.

    Every other application would take Faust's port for pages that it may not know of.
    """
    if not app.conf.web_enabled:
        return False
    if any(name.startswith("web_") for name in given_options(app)) or app.conf.web_port != _PORT_OF_FAUST:
        return True
    is_used: bool = getattr(app, "uses_web", True)
    return is_used and app.__dict__.get("web") is not None
