"""What operators drop as too late, as a stream: the step behind the operator's steps that gets those records.

1. A record flows there as it came to the operator: with its key, value, timestamp and headers, once, and only where no
   window, session or store took it.
2. An operator's steps have one such step each at most; several of them may share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topology.build.plan import LateSource, OperatorStep, Plan
from topology.graph.operations import PassThrough
from topology.spec.codecs import Serde
from topology.spec.errors import TopologyError, call_site
from topology.spec.names import check_name

if TYPE_CHECKING:
    from topology.dsl.streams import KStream


def late_stream(
    plan: Plan, source: LateSource, name: str | None, key: Serde[Any] | None, value: Serde[Any] | None
) -> KStream[Any, Any]:
    """The late records of these steps. Raises TopologyError where the program has taken them already."""
    from topology.dsl.streams import KStream

    taken = next((step.late for step in source.steps if step.late is not None), None)
    if taken is not None:
        raise TopologyError(f"the late records flow into {taken!r} already: use that stream again", call_site())
    step = OperatorStep(
        name=plan.named(None if name is None else check_name(name, "step"), "KSTREAM-LATE-"),
        site=call_site(),
        parents=source.steps,
        operation=PassThrough(),
    )
    plan.add(step)
    for each in source.steps:
        each.late = step.name
    return KStream(plan, step, source.key.or_given(key), source.value.or_given(value), source.sources, False)
