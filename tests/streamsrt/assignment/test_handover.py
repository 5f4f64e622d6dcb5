"""Targets of groups whose members run several versions: warm, in steps, and back if it has to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamsrt.assignment.assignor import AssignorSettings
from streamsrt.assignment.configuration import Configuration, configure
from streamsrt.assignment.handover import handed_over
from streamsrt.assignment.in_flight import NOTHING_UNREAD, Unread
from streamsrt.assignment.placement import AssignorMember
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks
from streamsrt.assignment.topics import TopicImage, TopicsImage
from tests.streamsrt.assignment.test_highly_available import tasks
from tests.streamsrt.assignment.test_versions import topology

OLD, NEW, NEXT = ("s: source=t changelog=c",), ("s: source=t,u changelog=c",), ("s: source=u changelog=c",)
SETTINGS = AssignorSettings(acceptable_recovery_lag=100)
END = 5000


def configured(*versions: tuple[str, ...], missing: Sequence[str] = ()) -> list[Configuration]:
    """The newest first."""
    names = {"t", "u", "c", "d", "r", "x"} - set(missing)
    image = TopicsImage.of(*(TopicImage(name.encode().ljust(16), name, 4) for name in names))
    return [configure(topology(len(versions) - 1 - at, *lines), image) for at, lines in enumerate(versions)]


class Group:
    """Members by name, which is that of their process, too."""

    def __init__(
        self, *versions: tuple[str, ...], missing: Sequence[str] = (), settings: AssignorSettings = SETTINGS
    ) -> None:
        self.configurations = configured(*versions, missing=missing)
        self.settings = settings
        self.members: list[AssignorMember] = []
        self.epochs: dict[str, int] = {}

    def add(
        self, name: str, epoch: int, had: Tasks = NO_TASKS, at: dict[str, int] | None = None, process: str | None = None
    ) -> Group:
        """``at``: offset by partition, None if it reports none."""
        offsets = None if at is None else {TaskId("s", int(p)): offset for p, offset in at.items()}
        ends = {task: END for task in had.active | had.passive} if at is not None else {}
        stale = epoch < self.configurations[0].topology.epoch
        self.members.append(AssignorMember(name, process or name, had, stale, had.active, offsets, ends))
        self.epochs[name] = epoch
        return self

    def targets(
        self, unread: Unread = NOTHING_UNREAD, *, may_lose: bool = False, is_paused: bool = False
    ) -> dict[str, Tasks]:
        made = handed_over(
            self.members,
            self.epochs,
            self.configurations,
            self.settings,
            unread,
            may_lose=may_lose,
            is_paused=is_paused,
        )
        return dict(made)


def test_the_old_ones_go_on_while_the_new_one_warms_up_its_share() -> None:
    group = Group(NEW, OLD).add("a", 0, tasks("01"), {}).add("b", 0, tasks("23"), {}).add("c", 1, at={})
    assert group.targets() == {"a": tasks("01"), "b": tasks("23"), "c": tasks(warmup="01")}


def test_there_are_no_more_warm_up_tasks_than_the_group_allows() -> None:
    one = SETTINGS._replace(num_warmup_replicas=1)
    group = Group(NEW, OLD, settings=one).add("a", 0, tasks("0123"), {}).add("c", 1, at={})
    assert group.targets() == {"a": tasks("0123"), "c": tasks(warmup="0")}


def test_a_partition_goes_over_when_it_is_warm() -> None:
    group = Group(NEW, OLD).add("a", 0, tasks("0123"), {})
    group.add("c", 1, tasks(warmup="01"), {"0": END - 101, "1": END - 100})
    assert group.targets() == {"a": tasks("023"), "c": tasks("1", warmup="0")}


def test_what_an_older_member_reports_of_another_task_with_the_same_id_says_nothing() -> None:
    at = dict.fromkeys("0123", 10)
    group = Group(NEW, OLD).add("a", 0, tasks("0123"), at)
    group.add("c", 1, at={"0": END, "1": END})
    assert group.targets() == {"a": tasks("0123"), "c": tasks(warmup="01")}


def test_who_reports_no_offsets_or_may_not_warm_up_takes_its_share_at_once() -> None:
    assert Group(NEW, OLD).add("a", 0, tasks("0123")).add("c", 1).targets() == {"a": tasks("23"), "c": tasks("01")}
    none = SETTINGS._replace(num_warmup_replicas=0)
    group = Group(NEW, OLD, settings=none).add("a", 0, tasks("0123"), {}).add("c", 1, at={})
    assert group.targets() == {"a": tasks("23"), "c": tasks("01")}


def test_a_new_member_that_is_gone_leaves_its_tasks_to_the_old_ones() -> None:
    assert Group(NEW, OLD).add("a", 0, tasks("23"), {}).targets() == {"a": tasks("0123")}
    # One of two: the other one is not warm.
    group = Group(NEW, OLD).add("a", 0, tasks("2"), {}).add("b", 0, tasks(), {}).add("c", 1, tasks("0"), {})
    found = group.targets()
    assert found["c"] == tasks("0", warmup="1")
    assert found["a"].active | found["b"].active == tasks("123").active


def test_without_a_new_member_the_old_ones_get_what_is_the_same_as_well() -> None:
    group = Group(OLD, OLD).add("a", 0, tasks("0"), {}).add("b", 0, tasks("1"), {})
    found = group.targets()
    assert found["a"].active | found["b"].active == tasks("0123").active


def test_beside_a_new_member_they_get_nothing_that_is_the_same() -> None:
    group = Group(OLD, OLD).add("a", 0, tasks("0"), {}).add("c", 1, tasks("1"), {})
    assert group.targets() == {"a": tasks("0"), "c": tasks("123")}


def test_while_a_version_is_paused_standby_tasks_of_what_stays_are_kept() -> None:
    one = SETTINGS._replace(num_standby_replicas=1)
    group = Group(OLD, OLD, settings=one).add("a", 0, tasks("01", standby="2"), ENDS)
    group.add("b", 0, tasks("23", standby="1"), ENDS).add("c", 1, tasks(standby="03"), ENDS)
    kept = {"a": tasks("01", standby="2"), "b": tasks("23", standby="1"), "c": tasks(standby="03")}
    assert group.targets(is_paused=True) == kept
    assert group.targets()["c"].active, "without a pause, it gets its share"


def test_a_task_that_nobody_has_goes_to_who_has_most_of_its_state() -> None:
    group = (
        Group(NEW, OLD).add("a", 0, tasks("0", standby="2"), {"1": 100}).add("b", 0, tasks("3"), {"1": 200, "2": END})
    )
    group.add("c", 1, at={})
    found = group.targets()
    assert (found["a"].active, found["b"].active) == (tasks("02").active, tasks("13").active)


def test_the_versions_that_run_come_first_then_the_newest() -> None:
    group = Group(NEXT, NEW, OLD).add("a", 0, tasks("01"), {}).add("b", 1, tasks("2"), {}).add("c", 2, at={})
    found = group.targets()
    assert found["a"] == tasks("01")
    assert found["b"] == tasks("23")
    assert found["c"] == tasks(warmup="01")


def test_while_topics_of_the_new_version_are_missing_nobody_gets_anything() -> None:
    group = Group(NEW, OLD, missing=["u"]).add("a", 0, tasks("01"), {}).add("c", 1, at={})
    assert group.targets() == {"a": tasks("01"), "c": NO_TASKS}
    # Without a member of the new version the old one runs all of it.
    assert Group(NEW, OLD, missing=["u"]).add("a", 0, tasks("01"), {}).targets() == {"a": tasks("0123")}


def test_while_no_version_has_its_topics_old_ones_keep_what_needs_no_missing_one() -> None:
    both = ("s: source=t changelog=c", "z: source=u")
    group = (
        Group((*both, "n: source=d"), both, missing=["u", "d"])
        .add("a", 0, tasks("01"), {})
        .add("c", 1, tasks("23"), {})
    )
    assert group.targets() == {"a": tasks("01"), "c": NO_TASKS}


def test_a_whole_bundle_waits_for_half_of_the_members_and_for_the_last_partition() -> None:
    old = ("w: source=t sink=r", "s: repartition=r changelog=c")
    had = Tasks(tasks("0123").active | {TaskId("w", p) for p in range(4)})
    group = Group(OLD, old).add("a", 0, had, {}).add("b", 0, at={}).add("c", 1, at={})
    assert group.targets() == {"a": had, "b": NO_TASKS, "c": NO_TASKS}
    group = Group(OLD, old).add("a", 0, had, {}).add("c", 1, tasks(warmup="01"), {"0": END, "1": 10})
    assert group.targets() == {"a": had, "c": tasks(standby="0", warmup="12")}
    warm = tasks(standby="0123")
    group = Group(OLD, old).add("a", 0, had, {}).add("c", 1, warm, dict.fromkeys("0123", END))
    assert group.targets() == {"a": tasks("0123"), "c": warm}
    group = Group(OLD, old).add("a", 0, tasks("0123"), {}).add("c", 1, warm, dict.fromkeys("0123", END))
    assert group.targets() == {"a": NO_TASKS, "c": tasks("0123")}


WAYS = ("w: source=t sink=r", "s: repartition=r changelog=c"), ("w: source=t sink=x", "s: repartition=x changelog=c")
ENDS = dict.fromkeys("0123", END)


def of(subtopology: str, partitions: str = "0123") -> frozenset[TaskId]:
    return frozenset(TaskId(subtopology, int(p)) for p in partitions)


def test_a_repartition_topic_that_goes_is_read_to_its_end_before_its_reader_changes_hands() -> None:
    old, new = WAYS
    warm = tasks(standby="0123")

    def group(old_has: Tasks, new_has: Tasks, closing: frozenset[TaskId] = frozenset()) -> Group:
        made = Group(new, old).add("a", 0, old_has, {}).add("c", 1, new_has, ENDS)
        made.members[0] = replace(made.members[0], closing=closing)
        return made

    # The writers first, all of them.
    begun = {"a": tasks("0123"), "c": Tasks(of("w"), warm.standby)}
    waits = {("r", 1): 3, ("r", 3): 7}
    assert group(Tasks(of("w") | of("s")), warm).targets(waits) == begun
    # While one of them may still write, all partitions wait.
    assert group(tasks("0123"), begun["c"], of("w", "2")).targets(waits) == begun
    assert group(tasks("0123"), begun["c"], of("w", "2")).targets() == begun
    # Then each one for itself.
    assert group(tasks("0123"), begun["c"]).targets(waits) == {
        "a": tasks("13"),
        "c": Tasks(of("w") | of("s", "02"), of("s", "13")),
    }
    last = Tasks(of("w") | of("s", "02"), of("s", "13"))
    assert group(tasks("13"), last).targets() == {"a": NO_TASKS, "c": Tasks(of("w") | of("s"))}
    # State that is behind again is no reason to go back: the new topic has records by now.
    found = Group(new, old).add("a", 0, tasks("0123"), {}).add("c", 1, begun["c"], dict.fromkeys("0123", 0)).targets()
    assert found == {"a": NO_TASKS, "c": Tasks(of("w") | of("s"))}


def test_what_is_merged_waits_with_all_of_it() -> None:
    old, warm = WAYS[0], tasks(standby="0123")
    group = Group(OLD, old).add("a", 0, Tasks(of("w") | of("s")), {}).add("c", 1, warm, ENDS)
    waits = {("r", 2): 1}
    assert group.targets(waits) == {"a": tasks("0123"), "c": warm}
    group = Group(OLD, old).add("a", 0, tasks("0123"), {}).add("c", 1, warm, ENDS)
    assert group.targets(waits) == {"a": tasks("2"), "c": tasks("013", standby="2")}


def test_a_reader_without_successor_reads_to_the_end() -> None:
    old, new = WAYS[0], ("w: source=t",)
    group = Group(new, old).add("a", 0, Tasks(of("w") | of("s")), {}).add("c", 1, at={})
    assert group.targets({("r", 0): 2}) == {"a": tasks("0123"), "c": Tasks(of("w"))}
    group = Group(new, old).add("a", 0, tasks("0123"), {}).add("c", 1, Tasks(of("w")), {})
    assert group.targets({("r", 0): 2}) == {"a": tasks("0"), "c": Tasks(of("w"))}
    assert group.targets() == {"a": NO_TASKS, "c": Tasks(of("w"))}


def test_without_a_new_member_the_old_ones_write_again() -> None:
    old, new = WAYS
    group = Group(new, old).add("a", 0, tasks("0123"), {})
    assert group.targets({("r", 0): 2}) == {"a": Tasks(of("w") | of("s"))}


def test_what_nobody_can_read_holds_back_who_would_write_the_same_state() -> None:
    old, new = WAYS
    group = Group(new, old).add("c", 1, Tasks(of("w")), {})
    assert group.targets({("r", 0): 2}) == {"c": Tasks(of("w") | of("s", "123"))}
    assert group.targets({("r", 0): 2}, may_lose=True) == {"c": Tasks(of("w") | of("s"))}
    assert group.targets() == {"c": Tasks(of("w") | of("s"))}


def test_what_an_older_version_alone_has_it_goes_on_with() -> None:
    gone = ("s: source=t changelog=c", "w: source=u")
    had = Tasks(tasks("01").active | {TaskId("w", p) for p in range(4)})
    group = Group(OLD, gone).add("a", 0, had, {}).add("c", 1, tasks("23"), {})
    assert group.targets() == {"a": had, "c": tasks("23")}


def test_no_process_has_tasks_of_two_versions_of_a_partition() -> None:
    group = Group(NEW, OLD).add("a", 0, tasks("01"), {}, process="p").add("b", 0, tasks("23"), {}, process="q")
    group.add("c", 1, at={}, process="p").add("d", 1, at={}, process="q")
    assert group.targets() == {"a": tasks("01"), "b": tasks("23"), "c": NO_TASKS, "d": tasks(warmup="01")}


def test_what_differs_from_a_third_version_only_is_given_to_no_member_with_the_second_one() -> None:
    group = Group(NEW, NEW, OLD).add("a", 0, tasks("0"), {}).add("b", 1, tasks("1"), {}).add("c", 2, at={})
    found = group.targets()
    assert found == {"a": tasks("0"), "b": tasks("1"), "c": tasks("23")}
    again = Group(NEW, NEW, OLD).add("a", 0, tasks("0"), {}).add("b", 1, tasks("1"), {}).add("c", 2, found["c"], {})
    assert again.targets() == found
