"""``@app.timer`` and ``@app.crontab``: functions that run periodically, by the wall clock of the tasks.

1. A timer runs once in a process, whichever tasks it has; with ``on_leader`` in the process that has partition 0 of the
   first agent's topic. A process without tasks runs none.
2. It sees the rows of all partitions that the process has, and changes none. What it sends goes out with the next commit,
   which waits for it.
3. An exception is logged, and the timer goes on, as with faust.
4. While a call of it is under way, none begins, as with faust: that time of the timer is passed over.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextvars import copy_context
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, NamedTuple

from croniter import croniter

from streamsrt.errors import ProcessingError, RecordError, StreamsError, UserError
from streamsrt.faust.host import SENDER, Host
from streamsrt.faust.locations import caller, line_of, said, written
from streamsrt.faust.rows import ReadableRows
from streamsrt.operators.engine.environment import Environment

if TYPE_CHECKING:
    import faust

logger = logging.getLogger(__name__)


class Timer(NamedTuple):
    """A function that the application runs now and then: every so many seconds, or when a crontab says so."""

    function: Callable[[], Awaitable[None]]
    interval_s: float
    on_leader: bool
    crontab: str = ""
    zone: tzinfo | None = None

    def next_ms(self, now_ms: int) -> int:
        """When it runs next."""
        if not self.crontab:
            return now_ms + max(1, round(self.interval_s * 1000))
        now = datetime.fromtimestamp(now_ms / 1000, tz=self.zone or UTC)
        following: datetime = croniter(self.crontab, now).get_next(datetime)
        return round(following.timestamp() * 1000)

    def moved(self, due_ms: int, by_ms: int, now_ms: int) -> int:
        """When it runs next, instead of at ``due_ms``, if the clock was set by so much and shows ``now_ms``. What has run
        does not run again, unless the clock was set back by more than two times of the crontab."""
        if not self.crontab:
            return due_ms + by_ms
        following_ms = self.next_ms(now_ms)
        return due_ms if due_ms <= self.next_ms(following_ms) else following_ms


def timers_of(app: faust.App) -> tuple[list[Timer], list[Callable[[], Awaitable[object]]]]:
    """The timers of an application, and those of its tasks that are none."""
    found: list[Timer] = []
    others: list[Callable[[], Awaitable[object]]] = []
    for task in app._app_tasks:
        around = task.__wrapped__
        known = inspect.getclosurevars(around).nonlocals if hasattr(around, "__wrapped__") else {}
        if "interval_s" in known:
            found.append(Timer(_call(app, known["fun"]), known["interval_s"], bool(known["on_leader"])))
        elif "cron_format" in known:
            zone = known["timezone"] or app.conf.timezone
            _check_crontab(known["cron_format"], known["fun"])
            found.append(Timer(_call(app, known["fun"]), 0.0, bool(known["on_leader"]), known["cron_format"], zone))
        else:
            others.append(task)
    return found, others


def _check_crontab(crontab: str, function: Callable[..., object]) -> None:
    """Raises UserError for one that says no time."""
    try:
        croniter(crontab)
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{line_of(function)}: the crontab {crontab!r} of {written(function).__name__} is invalid: {error}. Give "
            "minute, hour, day, month and day of the week, as in '30 18 * * *'"
        ) from error


def _call(app: faust.App, function: Callable[..., Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """What faust does: the function may take the application."""
    if not inspect.signature(function).parameters:
        return function

    def call() -> Awaitable[None]:
        return function(app)

    call.__wrapped__ = function  # type: ignore[attr-defined]  # where it stands
    return call


class ReadOnlyRows:
    """The rows of one table, of that name, in all tasks of the process."""

    def __init__(self, name: str, stores: Callable[[], Iterator[ReadableRows]]) -> None:
        self._name = name
        self._stores = stores

    def get(self, key: object, /) -> object:
        """The row of that key, whichever partition has it."""
        return next((row for store in self._stores() if (row := store.get(key)) is not None), None)

    def put(self, key: object, value: object, /) -> None:
        """Tables are changed by agents."""
        sender = SENDER.get() or "what is no agent"
        raise UserError(
            f"table {self._name} can't be changed by {sender}{said(caller())}: only agents change tables, in Faust, too. "
            "Send a record to an agent that does"
        )

    def all(self) -> Iterator[tuple[object, object]]:
        """The rows of all partitions."""
        for store in self._stores():
            yield from store.all()

    def approximate_num_entries(self) -> int:
        """How many there are."""
        return sum(store.approximate_num_entries() for store in self._stores())


class Jobs:
    """Unfinished calls of timers and of ``on_window_close`` in one task: a ``Window`` of its environment."""

    def __init__(self, env: Environment, host: Host, settle: Callable[[], None]) -> None:
        self._host = host
        self._settle = settle
        self.tasks: set[asyncio.Task[None]] = set()
        self._failure: StreamsError | None = None
        env.windows.append(self)

    room = 1 << 20
    queued = 0

    @property
    def is_calling(self) -> bool:
        """Whether there are any, or one of them has failed."""
        return bool(self.tasks) or self._failure is not None

    @property
    def unfinished(self) -> int:
        """How many there are."""
        return len(self.tasks)

    @property
    def under_way(self) -> str:
        """What a commit waits for, in words."""
        return f"{len(self.tasks)} timers, for as long as they take" if self.tasks else ""

    def begin(self, function: Callable[[], Awaitable[object]], what: str) -> asyncio.Task[None]:
        """Runs it, until it waits for something. ``what``: in words, for the log."""
        task = self._host.start(self._run(function, what), copy_context())
        self.tasks.add(task)
        task.add_done_callback(self._over)
        self._host.iterate()
        self._end()
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)

    async def _run(self, function: Callable[[], Awaitable[object]], what: str) -> None:
        SENDER.set(what)
        try:
            await function()
        except StreamsError as failure:
            self._failure = failure
        except Exception:
            logger.exception("%s raised", what)

    def advance(self, wait_s: float | None = 0.0) -> bool:
        """Lets them go on."""
        before = len(self.tasks)
        if not self.is_calling:
            return False
        self._host.iterate()
        if before and wait_s != 0.0 and len(self.tasks) == before:
            for task in self.tasks:
                task.add_done_callback(self._wake)
            self._host.wait(wait_s)
            for task in self.tasks:
                task.remove_done_callback(self._wake)
        self._end()
        return len(self.tasks) != before

    def _wake(self, task: asyncio.Task[None]) -> None:
        self._host.wake()

    def _end(self) -> None:
        failure, self._failure = self._failure, None
        if isinstance(failure, RecordError):
            raise failure
        if failure is not None:
            # A punctuation passes over whatever else its function raises, where the handler says so.
            raise ProcessingError(str(failure)) from failure
        self._settle()

    def cancel(self) -> None:
        """Nothing comes of them any more: they end with the loop."""
