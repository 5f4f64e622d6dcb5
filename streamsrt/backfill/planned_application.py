"""The application of a plan: its topology and settings, as the runtime would have them, and the ids of its parts.

1. Before any of its code runs it is checked that this is the code of the plan.
"""

from __future__ import annotations

from streamsrt.application import changed_modules, load_application, module_digest
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.plan import BackfillPlan, TaskPlan
from streamsrt.config import StreamsConfig
from streamsrt.runtime.assembly import ready_topology
from topology.graph.nodes import Subtopology
from topology.graph.topology import Topology


def application_of(plan: BackfillPlan) -> tuple[Topology, StreamsConfig]:
    """The application of a plan, with every serde and setting in place. Raises PlanError where it is not the same."""
    # Before any of its code runs: a worker that found another program under the name would run that.
    if module_digest(plan.application) != plan.code_digest:
        raise PlanError(
            f"the source of {plan.application} was changed since plan {plan.id} was made, or is not here, and tasks of two "
            "versions must not be mixed: bring it back, or plan again in another --dir"
        )
    changed = changed_modules(plan.module_digests)
    if changed:
        raise PlanError(
            f"{', '.join(changed)}, which {plan.application} imports, differs from what plan {plan.id} was made with, or is "
            "not here, and tasks of two versions must not be mixed: bring it back (for workers on other machines, make the "
            "bundle again), or plan again in another --dir"
        )
    application = load_application(plan.application)
    topology, config = configured(application.topology, {**application.config, **plan.config}, plan.application_id)
    if topology.digest != plan.topology_digest:
        raise PlanError(
            f"{plan.application} is another topology (digest {topology.digest}) than that of plan {plan.id} (digest "
            f"{plan.topology_digest}): bring back the program that was planned, or plan again in another --dir"
        )
    return topology, config


def configured(topology: Topology, values: dict[str, object], application_id: str) -> tuple[Topology, StreamsConfig]:
    """A topology as the runtime would run it with these settings."""
    config = StreamsConfig.of(values, application_id=application_id)
    return ready_topology(topology, config), config


def subtopology_id(subtopology: Subtopology, config: StreamsConfig) -> str:
    """Returns the id of a subtopology in the group."""
    return subtopology.id if config.subtopology_id == "hash" else str(subtopology.number)


def subtopology_of(topology: Topology, config: StreamsConfig, task: TaskPlan) -> Subtopology:
    """The subtopology of a task."""
    return next(each for each in topology.subtopologies if subtopology_id(each, config) == task.subtopology)
