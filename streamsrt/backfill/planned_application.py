"""The application of a plan: its topology and settings, as the runtime would have them, the ids of its parts, and what a
plan says about it.

1. Before any of its code runs it is checked that this is the code of the plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from streamsrt.application import changed_modules, imported_digests, load_application, module_digest
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.plan import BackfillPlan, Changelogs, TaskPlan
from streamsrt.client.interface import Network
from streamsrt.config import StreamsConfig
from streamsrt.runtime.assembly import ready_topology
from topology.graph.nodes import Subtopology
from topology.graph.outline import outline
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


def draft_plan(
    network: Network,
    application: str,
    *,
    application_id: str,
    bootstrap_servers: str,
    config: Mapping[str, str],
    changelogs: Changelogs,
    now_ms: int,
) -> tuple[Topology, StreamsConfig, BackfillPlan]:
    """Loads an application, and begins a plan with what is known of it. Raises PlanError, UserError."""
    _check_importable(application)
    loaded = load_application(application)
    topology, settings = configured(loaded.topology, {**loaded.config, **config}, application_id)
    drafted = BackfillPlan(
        application=application,
        application_id=application_id,
        code_digest=module_digest(application),
        module_digests=imported_digests(application),
        version=_version(),
        topology_digest=topology.digest,
        outline=json.loads(json.dumps(outline(topology).to_json())),
        config={key: str(value) for key, value in config.items()},
        changelogs=changelogs,
        created_ms=now_ms,
        cluster_id=network.admin.cluster().cluster_id,
        bootstrap_servers=bootstrap_servers,
    )
    return topology, settings, drafted


def _check_importable(application: str) -> None:
    """Raises PlanError for an application that only this process knows."""
    if application.partition(":")[0] == "__main__":
        raise PlanError(
            f"{application}: every worker imports the application by its name, and __main__ is another module in each of "
            "them. Give the name of the file without .py, or move the topology into a module of its own"
        )


def _version() -> str:
    try:
        return version("streamsrt")
    except PackageNotFoundError:
        return ""


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
