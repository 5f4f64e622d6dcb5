"""Checks that the topics that a plan reads and writes are still those of the plan: of that cluster, with as many partitions,
and, if it reads them, not created again.

Offsets of a plan mean nothing in a topic that was deleted and created again, though it may have as many records. The records
of an output were given their partitions when they were computed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.plan import BackfillPlan
from streamsrt.client.interface import Network
from streamsrt.client.values import TopicInfo
from streamsrt.wording import counted


def topic_ids(network: Network, topics: Collection[str]) -> dict[str, str]:
    """The ids of topics as hexadecimal digits, without those that the broker gives none."""
    found = network.admin.topics(topics) if topics else {}
    return {name: topic.topic_id.hex() for name, topic in sorted(found.items()) if any(topic.topic_id)}


def check_source_topics(network: Network, plan: BackfillPlan) -> None:
    """Raises PlanError if this is another cluster, or a topic is gone, was created again, or has other partitions."""
    here = network.admin.cluster().cluster_id
    if plan.cluster_id is not None and here is not None and here != plan.cluster_id:
        raise PlanError(
            f"plan {plan.id} was made on cluster {plan.cluster_id}, and this is cluster {here}, which has other offsets. "
            "Give the --bootstrap-servers of that one, or plan again in another --dir"
        )
    names = sorted({source.topic for source in plan.sources()})
    found = network.admin.topics(names) if names else {}
    for name in names:
        problem = _problem(name, plan, found.get(name))
        if problem is not None:
            raise PlanError(f"{problem}. Plan again in another --dir")


def check_outputs(network: Network, plan: BackfillPlan, names: Collection[str]) -> None:
    """Raises PlanError if topics that results are written to are gone, or have other partitions than these were computed
    for."""
    there = network.admin.partitions_for(sorted(names)) if names else {}
    for name in sorted(names):
        planned = plan.topics.get(name)
        if name not in there:
            raise PlanError(
                f"topic {name}, which plan {plan.id} writes to, does not exist any more: create it"
                + ("" if planned is None else f" with {counted(planned, 'partition')}, as it had")
            )
        if planned is not None and there[name] != planned:
            raise PlanError(
                f"topic {name} has {counted(there[name], 'partition')}, and had {planned} when plan {plan.id} was made: its "
                "results were computed for those, and the application would write later records of their keys into others. "
                "Plan again in another --dir"
            )


def check_not_recreated(earlier: BackfillPlan, ids: Mapping[str, str]) -> None:
    """Raises PlanError if a topic of an earlier plan was created again: what came later does not follow on its offsets."""
    for name, there in ids.items():
        if earlier.topic_ids.get(name, there) != there:
            raise PlanError(
                f"topic {name} was deleted and created again since the earlier backfill was planned, so this one can't "
                "continue at its offsets: plan the whole history, without --after"
            )


def _problem(name: str, plan: BackfillPlan, there: TopicInfo | None) -> str | None:
    if there is None:
        return f"topic {name}, which plan {plan.id} reads, does not exist any more"
    planned = plan.topics.get(name, there.partitions)
    if there.partitions != planned:
        return (
            f"topic {name} has {counted(there.partitions, 'partition')}, and had {planned} when plan {plan.id} was made: "
            "its tasks and changelogs are not those of the application now, and records of one key may lie in two "
            "partitions (a lake without partitions places them by their keys)"
        )
    planned_id = plan.topic_ids.get(name)
    if planned_id and any(there.topic_id) and there.topic_id.hex() != planned_id:
        return (
            f"topic {name} was deleted and created again since plan {plan.id} was made: its records and offsets are other "
            "ones than those of the plan"
        )
    return None
