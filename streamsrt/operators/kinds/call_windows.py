"""The pending asynchronous calls of ``map_async`` and ``join_lookup``, and the records that wait for them.

1. Calls continue while the task reads more: a call that is slow or retried delays only the results that must come after
   its own.
2. Twice as many calls are started as may run, so that no slot is idle while the task does other things; not more,
   because a commit or a stop waits for all of them. Results that wait for an earlier one are limited by
   :data:`HELD_MAX`.
3. A commit waits for all calls: what is committed is done. Before the last one, calls that have not begun may be
   withdrawn (:mod:`streamsrt.operators.kinds.left_calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, Queue

from streamsrt.errors import StreamsError, UserError
from streamsrt.operators.engine.environment import Environment
from streamsrt.operators.engine.open_calls import CallOutcome, NotBegunError
from topology.graph.operations.batches import MapAsync

HELD_MAX = 8192
"""Records that wait at one operator, for their calls or for those before them."""


def longest_call_ms(timeout_ms: int, retries: int, backoff_ms: int) -> int:
    """The maximum duration of a call with all its retries."""
    return (retries + 1) * timeout_ms + backoff_ms * ((1 << retries) - 1)


class CallWindow:
    """The calls of one node. ``settle`` takes an outcome; ``held`` returns how many records wait for a call, their own or an
    earlier one.

    ``per_call``: the minimum number of records per call.
    """

    def __init__(
        self,
        env: Environment,
        op: MapAsync,
        name: str,
        settle: Callable[[CallOutcome], None],
        held: Callable[[], int],
        per_call: int = 1,
    ) -> None:
        if env.open_calls is None:
            raise UserError(f"{name}: asynchronous functions need a task, and this program runs without one")
        self._location = env.plan.location(name)
        self._longest_ms = None if op.timeout_ms is None else longest_call_ms(op.timeout_ms, op.retries, op.backoff_ms)
        # No SimpleQueue: if a signal comes at the end of a wait, CPython's waits on without a limit.
        self._outcomes: Queue[CallOutcome] = Queue()
        self._calls = env.open_calls(op, self._outcomes.put)
        self._concurrency = op.concurrency
        self._settle = settle
        self._held = held
        self._per_call = per_call
        self.leave: Callable[[Sequence[int]], int] = len
        """Takes the numbers of withdrawn calls, all others being settled, and returns from which of them on they are left:
        those before must be made."""
        self.arguments: Callable[[int], tuple[object, ...]]
        """The arguments of a withdrawn call. Set with :attr:`leave`."""
        self._begun = 0
        self._unfinished = 0
        self._withdrawn: list[int] = []
        env.windows.append(self)

    @property
    def is_calling(self) -> bool:
        """Whether a call is not settled yet."""
        return self._unfinished > 0

    @property
    def unfinished(self) -> int:
        """How many calls are not settled yet, those that wait for their turn included."""
        return self._unfinished

    @property
    def queued(self) -> int:
        """How many calls wait for their turn, so far as it is known. Withdrawn ones do not."""
        return max(0, self._unfinished - len(self._withdrawn) - self._concurrency)

    @property
    def under_way(self) -> str:
        """Returns what it waits for and for how long at most; empty if nothing is pending."""
        if not self._unfinished:
            return ""
        if self._longest_ms is None:
            bound = "without a time limit (no timeout= is given)"
        else:
            rounds = -(-self._unfinished // self._concurrency)
            bound = f"for at most {rounds * self._longest_ms / 1000:g} s (timeout= and retries=)"
        calls = "call" if self._unfinished == 1 else "calls"
        return f"{self._unfinished} asynchronous {calls} of {self._location}, {self._concurrency} at a time, {bound}"

    @property
    def room(self) -> int:
        """Returns how many more records it accepts; 0 if it is too few for a run."""
        room = min((2 * self._concurrency - self._unfinished) * self._per_call, HELD_MAX - self._held())
        worth = min(self._concurrency * self._per_call + 1, HELD_MAX) // 2
        return room if room >= worth or not self._unfinished else 0

    def begin(self, arguments: Sequence[tuple[object, ...]]) -> int:
        """Begins calls and returns the index of the first one."""
        first = self._begun
        self._begun += len(arguments)
        self._unfinished += len(arguments)
        self._calls.begin(first, arguments)
        return first

    def advance(self, wait_s: float | None = 0.0) -> bool:
        """Settles the outcomes that have arrived. If there are none, waits for one for this long (None: without limit).

        Returns whether there was anything.
        """
        if not self._unfinished:
            return False
        if len(self._withdrawn) == self._unfinished:
            self._leave_withdrawn()
            return True
        try:
            outcome = self._outcomes.get(wait_s != 0.0, wait_s)
        except Empty:
            return False
        try:
            while True:
                self._settle_one(outcome)
                outcome = self._outcomes.get_nowait()
        except Empty:
            return True

    def withdraw(self) -> None:
        """Withdraws the calls that have not begun. When the others are settled, :attr:`leave` decides about them."""
        if self._unfinished:
            self._calls.withdraw()

    def _leave_withdrawn(self) -> None:
        numbers, self._withdrawn = self._withdrawn, []
        count = self.leave(numbers)
        self._unfinished -= len(numbers) - count
        if count:
            self._calls.begin(numbers[0], [self.arguments(number) for number in numbers[:count]])

    def _settle_one(self, outcome: CallOutcome) -> None:
        if isinstance(outcome.error, NotBegunError):
            self._withdrawn.append(outcome.number)
            return
        self._unfinished -= 1
        try:
            self._settle(outcome)
        except StreamsError as error:
            # The task has read on since: what is behind the call's record is done, or can't be told from it.
            error.is_in_order = False
            raise

    def cancel(self) -> None:
        """Cancels the calls and discards their results."""
        if self._unfinished:
            self._unfinished = 0
            self._calls.cancel()
