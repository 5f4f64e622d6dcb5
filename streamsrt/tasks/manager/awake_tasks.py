"""Which running tasks an iteration of the loop looks at: an idle instance may have a thousand tasks.

1. A task wakes when it starts to run, whenever its partitions are answered, and when it reads others.
2. It rests when its input is processed and committed, no partition is paused, and no punctuation, asynchronous call or
   idle operator may become due. Only input can change that. So a commit of those that are awake leaves nothing out.
3. A task that does not run is left out, and forgotten. Another task of the same name replaces it.
"""

from __future__ import annotations

from streamsrt.membership.values import Task as TaskKey
from streamsrt.tasks.manager.owned_task import OwnedTask, Phase


class AwakeTasks:
    """The tasks of a member that are awake."""

    def __init__(self) -> None:
        self._tasks: dict[TaskKey, OwnedTask] = {}

    def wake(self, owned: OwnedTask) -> None:
        """Adds a task that runs, or is about to."""
        self._tasks[owned.key] = owned
        owned.wakes += 1

    def __contains__(self, owned: OwnedTask) -> bool:
        return self._tasks.get(owned.key) is owned

    def running(self) -> list[OwnedTask]:
        """Returns those that run."""
        return [owned for owned in self._tasks.values() if owned.phase is Phase.RUNNING]

    def let_rest(self) -> None:
        """Removes the tasks that have nothing to do until there is input."""
        self._tasks = {owned.key: owned for owned in self.running() if not owned.is_at_rest}
