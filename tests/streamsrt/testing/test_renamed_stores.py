"""A store of any kind that is renamed goes on with its state: the same bytes in the same topics, and the same files."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.state.directory import StateDirectory
from streamsrt.state.kinds import rocksdb_of
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.store_kinds import KINDS, LATER, ROWS, pipe
from topology import Buffer, JoinWindows, Store, StreamsBuilder, Suppressed, TimeWindows, serdes
from topology.graph.diff import Verdict, diff
from topology.graph.nodes import StoreSpec
from topology.graph.outline import TopologyOutline, outline
from topology.graph.store_kinds import StoreKind, kind_of
from topology.graph.topology import Topology
from topology.spec.errors import NameInUseError, UnsupportedError

TEXT = {"key": serdes.string, "value": serdes.string}


def test_there_is_a_program_for_every_kind() -> None:
    assert set(KINDS) == set(StoreKind)
    for kind, program in KINDS.items():
        assert kind_of(program.spec(program.build("now", {}), "now")) is kind


def versions(kind: StoreKind) -> tuple[Topology, Topology]:
    program = KINDS[kind]
    former = program.derived.format("before") if kind is StoreKind.BUFFER else "before"
    return program.build("before", {}), program.build("now", {"renamed_from": former})


@pytest.mark.parametrize("kind", StoreKind)
@pytest.mark.parametrize("generate", [True, False])
def test_what_is_written_is_what_is_written_without_a_new_name(kind: StoreKind, generate: bool) -> None:
    before, now = versions(kind)
    written = []
    for next_version in (before, now):
        with TopologyTestDriver(before, generate=generate) as driver:
            pipe(driver, ROWS, reads_other=KINDS[kind].reads_other)
            driver.restart(topology=next_version)
            pipe(driver, LATER, reads_other=KINDS[kind].reads_other)
            driver.commit()
            written.append(driver.producer_history)
    assert written[0] == written[1]
    assert any(record.topic.endswith("-changelog") for record in written[0])


@pytest.mark.parametrize("kind", StoreKind)
def test_tasks_and_topics_are_the_same_ones(kind: StoreKind) -> None:
    before, now = versions(kind)
    assert topology_metadata(before, "app") == topology_metadata(now, "app")
    assert before.digest != now.digest, "another version, with another epoch"


@pytest.mark.parametrize("kind", StoreKind)
def test_the_files_are_found(kind: StoreKind, tmp_path: Path) -> None:
    before, now = versions(kind)
    specs = KINDS[kind].spec(before, "before"), KINDS[kind].spec(now, "now")
    for place in (0, 1):
        with StateDirectory(tmp_path, "app") as directory:
            store = directory.open_store(specs[place], 3)
            if rocksdb_of(store) is None:
                assert not directory.list_stores()
                continue
            if place == 0:
                store.write([], changelog_offset=42)
            assert store.changelog_offset() == 42
            assert [each.store for each in directory.list_stores()] == [specs[0].name]
            directory.wipe(specs[place].kept_as, 3) if place else store.flush()


@pytest.mark.parametrize("kind", StoreKind)
def test_diff_says_what_it_was(kind: StoreKind) -> None:
    before, now = versions(kind)
    found = diff(outline(before), outline(now))
    assert found.verdict is Verdict.CARRIED_OVER
    assert found.epoch_needed == 1
    spec: StoreSpec = KINDS[kind].spec(now, "now")
    (change,) = (each for each in found.state if each.name == spec.name)
    former = KINDS[kind].spec(before, "before")
    assert change.reason == f"renamed from {former.name}, its changelog stays {former.changelog_name}"
    assert [(each.change, each.has_other_steps) for each in found.subtopologies] == [("same", True)]


def without_duplicates(store: Store | str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", **TEXT)
    stream.deduplicate(lambda _, value: value, 1_000, serde=serdes.string, store=store).to("out", **TEXT)
    return builder.build()


def test_the_store_of_seen_ids_is_renamed() -> None:
    now = without_duplicates(Store("ids", renamed_from="seen", changelog_config={"segment.ms": 60_000}))
    assert said(outline(without_duplicates("seen")), now)["ids"][0] == "carried over"
    with TopologyTestDriver(without_duplicates("seen")) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.string)
        out = driver.create_output_topic("out", serdes.string, serdes.string)
        source.pipe_input("ann", "once", 10)
        driver.restart(topology=now)
        source.pipe_input("ann", "once", 20)
        assert out.read_values_to_list() == ["once"]


# ------------------------------------------------------------------------------------------------ one after the other


def counting(*stores: Store | str) -> Topology:
    builder = StreamsBuilder()
    for number, store in enumerate(stores):
        builder.stream(f"in-{number}", **TEXT).group_by_key().count(store=store)
    return builder.build()


def said(old: TopologyOutline, new: Topology) -> dict[str, tuple[str, str]]:
    return {change.name: (change.fate, change.reason) for change in diff(old, outline(new)).state}


def test_a_store_that_is_renamed_again_says_its_first_name() -> None:
    second, third = counting(Store("b", renamed_from="a")), counting(Store("c", renamed_from="a"))
    assert said(outline(second), third) == {"c": ("carried over", "renamed from b, its changelog stays a-changelog")}
    fate, reason = said(outline(second), counting(Store("c", renamed_from="b")))["c"]
    assert (fate, 'use renamed_from="a"' in reason) == ("rebuilt", True)


def test_a_version_that_forgets_it_is_told() -> None:
    found = diff(outline(counting(Store("b", renamed_from="a"))), outline(counting("b"))).state
    assert [(change.name, change.fate) for change in found] == [("b", "rebuilt"), ("b", "orphaned")]
    assert 'its state has the name a: use renamed_from="a" as before' in found[0].reason
    assert found[1].topics == ("a-changelog",)


def test_a_store_that_never_was_is_no_former_store() -> None:
    fate, reason = said(outline(counting("b")), counting("b", Store("c", renamed_from="a")))["c"]
    assert (fate, reason.partition(",")[0]) == ("rebuilt", "new: there is no store a whose state it could take over")


def test_the_way_back_carries_it_over_too() -> None:
    found = said(outline(counting(Store("b", renamed_from="a"))), counting("a"))
    assert found == {"a": ("carried over", "renamed from b, its changelog stays a-changelog")}


def test_two_stores_can_change_names() -> None:
    swapped = counting(Store("b", renamed_from="a"), Store("a", renamed_from="b"))
    assert {fate for fate, _ in said(outline(counting("a", "b")), swapped).values()} == {"carried over"}


def test_an_outline_of_before_has_no_former_names() -> None:
    file = outline(counting("a")).to_json()
    for store in file["stores"]:  # type: ignore[attr-defined]
        del store["renamed_from"]
    assert said(TopologyOutline.from_json(file), counting(Store("b", renamed_from="a")))["b"][0] == "carried over"


def test_a_generated_name_must_have_been_the_same_table() -> None:
    builder = StreamsBuilder()
    for topic in ("in-0", "in-1"):
        builder.stream(topic, **TEXT).group_by_key().count()
    old = outline(builder.build())
    names = sorted(store.name for store in old.stores)
    right = counting(*(Store(f"of-{n}", renamed_from=name) for n, name in enumerate(names)))
    assert {fate for fate, _ in said(old, right).values()} == {"carried over"}
    wrong = counting(*(Store(f"of-{n}", renamed_from=name) for n, name in enumerate(reversed(names))))
    assert {fate for fate, _ in said(old, wrong).values()} == {"incompatible"}
    assert "was another table" in said(old, wrong)["of-0"][1]


# ----------------------------------------------------------------------------------------------------------- refused


def test_nobody_else_has_the_former_name() -> None:
    with pytest.raises(NameInUseError, match=r"store 'b' is renamed from 'a', and store 'a' at .* has that name"):
        counting("a", Store("b", renamed_from="a"))
    with pytest.raises(
        NameInUseError, match=r"store 'c' is renamed from 'a', and store 'b' at .* is renamed from it too"
    ):
        counting(Store("b", renamed_from="a"), Store("c", renamed_from="a"))


@pytest.mark.parametrize("name", [None, "a"])
def test_a_store_has_another_name_now(name: str | None) -> None:
    with pytest.raises(UnsupportedError, match="is for a store that has another name now"):
        Store(name, renamed_from="a")


def test_another_kind_is_no_former_store() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in-0", **TEXT).group_by_key()
    grouped.windowed_by(TimeWindows(1_000, grace=0)).count(store=Store("b", renamed_from="a"))
    fate, reason = said(outline(counting("a")), builder.build())["b"]
    assert (fate, "kind key_value -> window" in reason) == ("incompatible", True)


# ------------------------------------------------------------------------------- stores whose names are made of others


def names(topology: Topology) -> set[str]:
    return {spec.changelog_name for each in topology.subtopologies for spec in each.stores}


def left_join(store: Store | tuple[Store, Store] | str | None) -> Topology:
    builder = StreamsBuilder()
    left, right = builder.stream("in-0", **TEXT), builder.stream("in-1", **TEXT)
    left.left_join(right, lambda one, other: f"{one}{other}", JoinWindows(1_000, grace=0), store=store).to(
        "out", **TEXT
    )
    return builder.build()


def test_the_third_store_of_a_join_is_renamed_with_the_two() -> None:
    assert names(left_join(Store("now", renamed_from="before"))) == names(left_join("before"))


def test_stores_of_a_join_with_generated_names_are_renamed() -> None:
    old = left_join(None)
    former = sorted(spec.name for each in old.subtopologies for spec in each.stores if "SHARED" not in spec.name)

    def own(name: str, renamed_from: str) -> Store:
        return Store(
            name, kind="window", renamed_from=renamed_from, retention=2_000, window_size=2_000, retain_duplicates=True
        )

    left, right = former
    assert ("OTHER" in right, "THIS" in left) == (True, True)
    assert names(left_join((own("left", left), own("right", right)))) == names(old)


def test_what_closes_windows_by_the_wall_clock_is_renamed_with_them() -> None:
    def build(buffer: Buffer, name: str) -> Topology:
        builder = StreamsBuilder()
        table = builder.stream("in", **TEXT).group_by_key().windowed_by(TimeWindows(1_000, grace=0)).count(store="c")
        table.suppress(Suppressed.until_window_closes(buffer, idle_timeout=1_000), name=name)
        return builder.build()

    assert names(build(Buffer(renamed_from="before-store"), "now")) == names(build(Buffer(), "before"))
