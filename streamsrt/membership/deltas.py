"""The steps from the open tasks to the assigned tasks.

1. A task that changes its role keeps its open store: it is neither closed nor opened (``promoted``, ``demoted``,
   ``exchanged``).
2. Order for the caller: close ``closed``, change roles, report the open tasks, open ``opened``, report again.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamsrt.membership.values import Task, Tasks


@dataclass(frozen=True, slots=True)
class Delta:
    """The steps. ``closed``: by the present role; ``opened``: by the new role.

    ``promoted``: standby or warm-up to active; ``demoted``: active to standby or warm-up, named under the role that they
    get; ``exchanged``: between standby and warm-up, likewise.
    """

    closed: Tasks
    opened: Tasks
    promoted: frozenset[Task]
    demoted: Tasks
    exchanged: Tasks

    def __bool__(self) -> bool:
        return bool(self.closed or self.opened or self.promoted or self.demoted or self.exchanged)


def delta(owned: Tasks, assigned: Tasks) -> Delta:
    """Computes the difference between the open tasks and the wanted ones."""
    before = owned.active | owned.standby | owned.warmup
    after = assigned.active | assigned.standby | assigned.warmup
    passive = owned.standby | owned.warmup
    return Delta(
        closed=Tasks(owned.active - after, owned.standby - after, owned.warmup - after),
        opened=Tasks(assigned.active - before, assigned.standby - before, assigned.warmup - before),
        promoted=assigned.active & passive,
        demoted=Tasks(standby=assigned.standby & owned.active, warmup=assigned.warmup & owned.active),
        exchanged=Tasks(standby=assigned.standby & owned.warmup, warmup=assigned.warmup & owned.standby),
    )
