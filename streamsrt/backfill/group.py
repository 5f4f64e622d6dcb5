"""Checks that the application's group has no members, and no offsets except the backfill's own marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamsrt.backfill.errors import HandOverError
from streamsrt.client.interface import Network
from streamsrt.client.values import OffsetAndMetadata, TopicPartition
from streamsrt.tasks.input.offset_metadata import BackfillMark, parse_mark

_NOBODY = {"empty", "dead"}


def running_state(network: Network, application_id: str) -> str | None:
    """The state of a group that has members; None where it has none."""
    for group in network.admin.list_groups():
        if group.group_id == application_id and group.state.lower() not in _NOBODY:
            return group.state
    return None


def check_nobody_runs(network: Network, application_id: str) -> None:
    """Raises HandOverError where the group has members."""
    state = running_state(network, application_id)
    if state is not None:
        raise HandOverError(
            f"application {application_id!r} is running (its group is {state}): stop all of its instances, "
            "wait "
            "until streamsrt groups describe shows no members, then do this again"
        )


def check_new_group(
    network: Network,
    application_id: str,
    *,
    goes_on: bool = False,
    internal_topics: Iterable[str] = (),
    servers: str = "",
) -> None:
    """Raises HandOverError where the application runs, or has processed something already. ``goes_on``: a backfill that was
    handed over is no hindrance to computing what follows it. ``internal_topics``, ``servers``: for the commands that the
    error names."""
    check_nobody_runs(network, application_id)
    committed = network.admin.committed(application_id)
    if not committed or (goes_on and is_handed_over(committed)):
        return
    check_no_hand_over(application_id, committed)
    steps = steps_to_replace(network, application_id, internal_topics, servers, "plan again")
    if goes_on:
        raise HandOverError(
            f"application {application_id!r} has committed offsets of its own: it reads the later records itself, so there "
            f"is nothing to do but to start it. To replace its state by that of this backfill instead: {steps}"
        )
    raise HandOverError(
        f"application {application_id!r} has committed offsets already, and a backfill is for one that is new: give "
        f"another --application-id. To replace its state: {steps}"
    )


def check_no_hand_over(application_id: str, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Raises HandOverError where these offsets have the mark of a hand-over that began."""
    for mark in marks_of(committed).values():
        if mark is not None and not mark.is_done:
            raise HandOverError(
                f"backfill {mark.backfill_id} of application {application_id!r} is being handed over: finish it with "
                "streamsrt backfill commit --execute, or drop it with streamsrt backfill abort --execute, with the --dir "
                "that it began with"
            )


def steps_to_replace(network: Network, application_id: str, topics: Iterable[str], servers: str, last: str) -> str:
    """Returns what to do, in this order, so that a backfill can replace the state of an application. ``topics``: its
    changelogs and repartition topics; ``servers``: empty for the bundled broker; ``last``: what to do then."""
    names = sorted(topics)
    present = sorted(network.admin.topics(names)) if names else []
    where = f" -b {servers}" if servers else ""
    steps = ["stop all of its instances"]
    if network.admin.committed(application_id):
        steps.append(f"streamsrt groups delete {application_id}{where} --execute")
    if present:
        # Records in repartition topics would be processed a second time.
        steps.append(f"streamsrt topics delete {' '.join(present)}{where} --execute")
    steps.append("delete the state directories of its instances")
    steps.append(last)
    return "; ".join(f"({number}) {step}" for number, step in enumerate(steps, 1))


def is_handed_over(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
    """Whether these offsets are those of a backfill that was handed over, and the application has not run since."""
    marks = marks_of(committed).values()
    return bool(marks) and all(mark is not None and mark.is_done for mark in marks)


def marks_of(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, BackfillMark | None]:
    """The mark at each committed offset; None where there is another kind of metadata."""
    return {tp: parse_mark(offset.metadata) for tp, offset in committed.items()}
