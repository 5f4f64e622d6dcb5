"""Divides the tasks of a plan into slices, where that is possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.lake import Lake
from streamsrt.backfill.planned_application import subtopology_id
from streamsrt.backfill.slices.eligibility import obstacle
from streamsrt.backfill.sources import Source
from streamsrt.config import StreamsConfig
from streamsrt.tasks.task_config import TaskConfig
from topology.graph.nodes import Subtopology

SLICES_MAX = 256


def check_slices(slices: int, after: Path | None) -> None:
    """Raises PlanError for a number of slices that no plan can have."""
    if not 1 <= slices <= SLICES_MAX:
        raise PlanError(
            f"--slices {slices}: give a number from 1 to {SLICES_MAX}; it needs as many workers to be faster"
        )
    if slices > 1 and after is not None:
        raise PlanError(
            "--slices divides a whole history, and --after continues the results of undivided tasks: leave one of them out. "
            "The earlier backfill may have been computed in slices"
        )


def divided(
    subtopologies: Sequence[Subtopology], config: StreamsConfig, sources: Mapping[str, Source], slices: int
) -> tuple[dict[str, int], list[str]]:
    """Into how many slices the tasks of each subtopology are divided, by its id, and notes on those that are not. Raises
    PlanError if there are only such."""
    if slices == 1:
        return {}, []
    task_config = TaskConfig.of(config)
    found: dict[str, int] = {}
    reasons: list[str] = []
    for each in subtopologies:
        name = subtopology_id(each, config)
        lakes = sorted(topic for topic in each.source_topics if isinstance(sources.get(topic), Lake))
        reason = obstacle(task_config.resolved(each, config.application_id), task_config)
        if lakes:
            reason = f"the history of {', '.join(lakes)} is in a lake, which Spark orders for whole tasks"
        if reason is None:
            found[name] = slices
        else:
            reasons.append(f"subtopology {name} is not divided into slices: {reason}")
    if not found:
        raise PlanError(f"--slices {slices} would divide nothing; leave it out. " + ". ".join(reasons))
    return found, reasons
