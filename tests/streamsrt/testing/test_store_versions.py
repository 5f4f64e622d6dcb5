"""Values of a store that have versions: written with a tag, read from every version before, for every kind of store."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from streamsrt.errors import ProcessingError
from streamsrt.state.kinds import functions_of
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.store_kinds import KINDS, LATER, ROWS, pipe
from topology import CountWindows, Store, StreamsBuilder, Upcast, serdes
from topology.graph.diff import NO_WAY_BACK, Verdict, diff
from topology.graph.outline import TopologyOutline, outline
from topology.graph.store_kinds import StoreKind, store_traits
from topology.graph.topology import Topology
from topology.spec.errors import TopologyError, UnsupportedError
from topology.spec.row_versions import MAGIC, latest_version_in, plain_name, version_of, versioned_values

TEXT = {"key": serdes.string, "value": serdes.string}
Value = dict[str, int]


def to_second(value: Value) -> Value:
    return {**value, "second": 1}


def to_third(value: Value) -> Value:
    return {**value, "third": 1 + value.get("second", 0)}


def failing(value: Value) -> Value:
    return {"missing": value["missing"]}


SECOND: dict[str, Any] = {"version": 2, "upcast": {1: to_second}}
THIRD: dict[str, Any] = {"version": 3, "upcast": {1: to_second, 2: to_third}}
SHOWS = [kind for kind in StoreKind if kind is not StoreKind.BUFFER]


def shown(driver: TopologyTestDriver, kind: StoreKind) -> list[Value]:
    """The values of the store, in its order."""
    name = KINDS[kind].derived.format("rows")
    if kind is StoreKind.VERSIONED:
        rows = driver.get_versioned_key_value_store(name)
        return [version.value for key in ("ann", "bob", "cid") for version in rows.versions(key)]
    get = {"window": driver.get_window_store, "session": driver.get_session_store}
    access: Any = get.get(driver.store_kind(name), driver.get_key_value_store)(name)
    return [value for _, value in access.all()]


def build(kind: StoreKind, said: dict[str, Any]) -> Topology:
    return KINDS[kind].build("rows", said)


def logged(driver: TopologyTestDriver, kind: StoreKind) -> list[bytes]:
    changelog = KINDS[kind].spec(build(kind, {}), "rows").changelog_name
    records = [record for record in driver.producer_history if record.topic.endswith(f"-{changelog}")]
    return [record.value for record in records if record.value is not None]


@pytest.mark.parametrize("kind", SHOWS)
@pytest.mark.parametrize("generate", [True, False])
def test_rows_of_earlier_versions_are_read_and_later_ones_are_tagged(kind: StoreKind, generate: bool) -> None:
    reads_other = KINDS[kind].reads_other
    with TopologyTestDriver(build(kind, {}), generate=generate) as driver:
        pipe(driver, ROWS, reads_other=reads_other)
        driver.commit()
        first = shown(driver, kind)
        assert first
        before = len(logged(driver, kind))
        assert {version_of(value) for value in logged(driver, kind)} == {1}

        driver.restart(topology=build(kind, SECOND))
        assert shown(driver, kind) == [to_second(value) for value in first]
        assert len(logged(driver, kind)) == before, "reading writes nothing"
        pipe(driver, LATER, reads_other=reads_other)
        driver.commit()
        second = shown(driver, kind)
        assert {version_of(value) for value in logged(driver, kind)[before:]} == {2}
        others = [record for record in driver.producer_history if not record.topic.endswith("-changelog")]
        assert all(record.value is None or version_of(record.value) == 1 for record in others), "only stores have tags"

        driver.restart(topology=build(kind, THIRD))
        assert shown(driver, kind) == [to_third(value) for value in second]


def held_back(upcasts: dict[str, Any], kind: StoreKind = StoreKind.BUFFER) -> list[Value]:
    with TopologyTestDriver(build(kind, {})) as driver:
        out = driver.create_output_topic("out", serdes.string, serdes.json)
        pipe(driver, ROWS, reads_other=False)
        driver.restart(topology=build(kind, upcasts))
        pipe(driver, LATER[-1:], reads_other=False)
        driver.commit()
        return [value for _, value in out.read_key_values_to_list()]


def test_what_a_suppression_held_back_is_upcast() -> None:
    plain = held_back({})
    assert len(plain) == 2
    assert held_back(SECOND) == [to_second(value) for value in plain]
    assert held_back(THIRD) == [to_third(to_second(value)) for value in plain]


@pytest.mark.parametrize("kind", StoreKind)
def test_without_versions_no_byte_is_another(kind: StoreKind) -> None:
    histories = []
    for said in ({}, {"version": 1, "upcast": {}}):
        with TopologyTestDriver(build(kind, said)) as driver:
            pipe(driver, ROWS + LATER, reads_other=KINDS[kind].reads_other)
            driver.commit()
            histories.append(driver.producer_history)
    assert histories[0] == histories[1]
    assert build(kind, {}).digest == build(kind, {"version": 1}).digest


@pytest.mark.parametrize("kind", SHOWS)
def test_rows_are_read_as_export_and_queries_read_them(kind: StoreKind) -> None:
    """By the store's serde, as the bytes are laid out."""
    spec = KINDS[kind].spec(build(kind, SECOND), "rows")
    assert spec.value_serde is not None
    assert plain_name(spec.value_serde) == "json"
    assert spec.value_serde.deserialize(b'{"pens":1}') == {"pens": 1, "second": 1}
    assert spec.value_serde.deserialize(spec.value_serde.serialize({"pens": 1})) == {"pens": 1}
    assert functions_of(spec) is functions_of(KINDS[kind].spec(build(kind, {}), "rows"))
    assert store_traits(spec) == store_traits(KINDS[kind].spec(build(kind, {}), "rows"))


# ------------------------------------------------------------------------------------------------------------ failures


@pytest.mark.parametrize("kind", StoreKind)
def test_an_upcast_that_fails_says_store_key_and_function(kind: StoreKind) -> None:
    with TopologyTestDriver(build(kind, {})) as driver:
        pipe(driver, ROWS, reads_other=KINDS[kind].reads_other)

        def go_on() -> None:
            driver.restart(topology=build(kind, {"version": 2, "upcast": {1: failing}}))
            pipe(driver, LATER, reads_other=KINDS[kind].reads_other)
            driver.commit()

        with pytest.raises(ProcessingError) as raised:
            go_on()
    message = str(raised.value)
    assert f"store '{KINDS[kind].derived.format('rows')}', key b'" in message
    line = failing.__code__.co_firstlineno
    assert (
        f"upcast={{1: failing ({__file__}:{line})}} raised KeyError: 'missing'. Correct the function. No row" in message
    )
    assert "skip such records" not in message


@pytest.mark.parametrize("kind", StoreKind)
def test_a_program_without_versions_says_that_rows_are_newer(kind: StoreKind) -> None:
    with TopologyTestDriver(build(kind, SECOND)) as driver:
        pipe(driver, ROWS, reads_other=KINDS[kind].reads_other)

        def go_back() -> None:
            driver.restart(topology=build(kind, {}), check_state=False)
            pipe(driver, LATER, reads_other=KINDS[kind].reads_other)
            driver.commit()

        with pytest.raises(
            ProcessingError, match=r"was written by version 2 of the store.*run the later program"
        ) as told:
            go_back()
        assert "skip such records" not in str(told.value)
        assert "Correct" not in str(told.value)


@pytest.mark.parametrize("kind", StoreKind)
def test_no_handler_skips_records_because_rows_are_newer(kind: StoreKind) -> None:
    handled = {"processing.exception.handler": "continue"}
    with TopologyTestDriver(build(kind, SECOND), handled) as driver:
        pipe(driver, ROWS, reads_other=KINDS[kind].reads_other)

        def go_back() -> None:
            driver.restart(topology=build(kind, {}), check_state=False)
            pipe(driver, LATER, reads_other=KINDS[kind].reads_other)
            driver.commit()

        with pytest.raises(ProcessingError, match=r"was written by version 2 of the store.*run the later program"):
            go_back()


@pytest.mark.parametrize("kind", StoreKind)
def test_no_handler_skips_records_because_an_upcast_fails(kind: StoreKind) -> None:
    handled = {"processing.exception.handler": "continue"}
    with TopologyTestDriver(build(kind, {}), handled) as driver:
        pipe(driver, ROWS, reads_other=KINDS[kind].reads_other)

        def go_on() -> None:
            driver.restart(topology=build(kind, {"version": 2, "upcast": {1: failing}}))
            pipe(driver, LATER, reads_other=KINDS[kind].reads_other)
            driver.commit()

        with pytest.raises(ProcessingError, match=r"raised KeyError: 'missing'\. Correct the function"):
            go_on()


def test_what_is_not_there_any_more_is_said() -> None:
    reads = versioned_values(serdes.json, 3, ((2, Upcast(to_third)),), "rows").deserialize
    with pytest.raises(Exception, match=r"its value has version 1, and the store has no upcast=\{1: \.\.\.\}: add it"):
        reads(b"{}")
    with pytest.raises(Exception, match="was written by version 9, and this program reads 2, 3: run a later one"):
        reads(MAGIC + b"\0\x09{}")


def test_a_row_does_not_vanish_by_being_read() -> None:
    reads = versioned_values(serdes.json, 2, ((1, Upcast(lambda _: None)),), "rows").deserialize
    with pytest.raises(Exception, match="returned None: reading a row must not delete it"):
        reads(b"{}")


# ------------------------------------------------------------------------------------- rows that contain several values


def in_count_windows(windows: CountWindows, serde: serdes.Serde[Any] = serdes.json, **said: Any) -> Topology:
    """Sums: numbers in the first version, later ``{"sum": ...}``."""

    def more(_: str, value: int, total: Any) -> Any:
        return {**total, "sum": total["sum"] + value} if said else total + value

    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.long).group_by_key().windowed_by(windows)
    sums = grouped.aggregate(lambda: {"sum": 0} if said else 0, more, store=Store("rows", **said), value=serde)
    sums.to("out", value=serdes.json)
    return builder.build()


def as_sum(value: int) -> Value:
    return {"sum": value}


@pytest.mark.parametrize("before", [serdes.json, serdes.long])
@pytest.mark.parametrize(("windows", "second_sum"), [(CountWindows(3), 56), (CountWindows(4, 2), 60)])
def test_each_aggregate_of_a_row_of_count_windows_is_upcast(
    before: serdes.Serde[Any], windows: CountWindows, second_sum: int
) -> None:
    upcast = {1: Upcast(as_sum, None if before is serdes.json else before)}
    first = in_count_windows(windows, before)
    second = in_count_windows(windows, version=2, upcast=upcast)
    third = in_count_windows(windows, version=3, upcast={**upcast, 2: to_third})
    assert diff(outline(first), outline(second)).verdict is Verdict.CARRIED_OVER
    with TopologyTestDriver(first) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.long)
        out = driver.create_output_topic("out", serdes.string, serdes.json)
        for number, following in ((1, first), (2, second), (4, second), (8, third), (16, third), (32, third)):
            source.pipe_input("ann", number)
            driver.restart(topology=following)
        assert out.read_values_to_list() == [
            {"sum": sum((1, 2, 4, 8)[: windows.size])},
            {"sum": second_sum, "third": 1},
        ]


def test_a_failing_upcast_of_an_aggregate_says_the_function_and_what_to_do() -> None:
    with TopologyTestDriver(in_count_windows(CountWindows(3))) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.long)
        source.pipe_input("ann", 1)
        driver.restart(topology=in_count_windows(CountWindows(3), version=2, upcast={1: failing}))
        with pytest.raises(ProcessingError, match=r"failing \(.*raised TypeError.*Correct the function") as raised:
            source.pipe_input("ann", 2)
    assert "skip such records" not in str(raised.value)


# ------------------------------------------------------------------------------------------------------- other serdes


def counting(store: Store | str) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).group_by_key().aggregate(int, lambda _k, _v, n: n + 1, store=store, value=serdes.long)
    return builder.build()


def described(store: Store | str) -> Topology:
    def more(_: str, value: str, last: dict[str, Any]) -> dict[str, Any]:
        return {"count": last["count"] + 1, "last": value}

    builder = StreamsBuilder()
    stream = builder.stream("in", **TEXT)
    stream.group_by_key().aggregate(lambda: {"count": 0}, more, store=store, value=serdes.json)
    return builder.build()


def test_values_that_another_serde_wrote_are_read_by_it() -> None:
    second = Store("rows", version=2, upcast={1: Upcast(lambda count: {"count": count, "last": ""}, serdes.long)})
    assert diff(outline(counting("rows")), outline(described(second))).verdict is Verdict.CARRIED_OVER
    with TopologyTestDriver(counting("rows")) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.string)
        source.pipe_input("ann", "pen")
        driver.restart(topology=described(second))
        source.pipe_input("ann", "cup")
        assert driver.get_key_value_store("rows").get("ann") == {"count": 2, "last": "cup"}


# ------------------------------------------------------------------------------------------------------ the comparison


def said(old: TopologyOutline, new: Topology) -> tuple[str, str]:
    (change,) = diff(old, outline(new)).state
    return change.fate, change.reason


@pytest.mark.parametrize("kind", StoreKind)
def test_diff_says_that_there_is_no_way_back(kind: StoreKind) -> None:
    first, second = build(kind, {}), build(kind, SECOND)
    name = KINDS[kind].spec(first, "rows").name
    forth, back = diff(outline(first), outline(second)), diff(outline(second), outline(first))
    assert (forth.verdict, back.verdict) == (Verdict.CARRIED_OVER, Verdict.INCOMPATIBLE)
    reasons = {change.name: change.reason for change in forth.state}
    assert reasons[name] == f"values of version 1 become version 2 when they are read. {NO_WAY_BACK}"
    assert "which version 1 can't read" in next(change.reason for change in back.state if change.name == name)


def summed(topic: str, *, store: Store | str = "totals") -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=serdes.string, value=serdes.json)
    grouped = orders.group_by(lambda _, order: order["group"], key=serdes.string, value=serdes.json, name=topic)
    grouped.aggregate(dict, lambda _, order, last: order, store=store, value=serdes.json)
    orders.group_by_key().aggregate(dict, lambda _, order, last: order, store=_OTHER, value=serdes.json)
    return builder.build()


_OTHER = Store("other", version=2, upcast={1: to_second})


def test_a_later_version_of_values_and_a_repartition_topic_that_goes_are_two_upgrades() -> None:
    first, raised = outline(summed("by-group")), Store("sums", renamed_from="totals", version=2, upcast={1: to_second})
    found = diff(first, outline(summed("by-g", store=raised)))
    (change,) = [change for change in found.state if change.fate == "incompatible"]
    assert (change.kind, change.name) == ("repartition topic", "by-group-repartition")
    assert "and the values of sums get a later version" in change.reason
    assert "Do it in two upgrades: first drop or rename the repartition topic" in change.reason
    assert found.verdict == Verdict.INCOMPATIBLE
    steps = [summed("by-group"), summed("by-g"), summed("by-g", store=raised)]
    for before, after in pairwise(steps):
        assert diff(outline(before), outline(after)).verdict < Verdict.INCOMPATIBLE


def test_a_version_without_the_way_to_it_is_incompatible() -> None:
    fate, reason = said(outline(described("rows")), described(Store("rows", version=2)))
    assert (fate, reason) == ("incompatible", "its values have version 1, and there is no upcast={1: ...}: add it")


def test_an_upcast_by_the_wrong_serde_is_incompatible() -> None:
    second = Store("rows", version=2, upcast={1: to_second})
    fate, reason = said(outline(counting("rows")), described(second))
    assert (fate, "value_serde long -> json" in reason) == ("incompatible", True)


def test_an_upcast_that_goes_away_is_said() -> None:
    old = outline(described(Store("rows", version=2, upcast={1: to_second})))
    fate, reason = said(old, described(Store("rows", version=3, upcast={2: to_third})))
    assert (fate, "values of version 1 can no longer be read" in reason) == ("carried over", True)


def test_renamed_and_of_another_version() -> None:
    fate, reason = said(outline(described("a")), described(Store("b", renamed_from="a", **SECOND)))
    assert (fate, reason.startswith("renamed from a, its changelog stays a-changelog; values of version 1")) == (
        "carried over",
        True,
    )


def test_an_outline_of_before_has_version_1() -> None:
    file = outline(described("rows")).to_json()
    for store in file["stores"]:  # type: ignore[attr-defined]
        del store["version"], store["upcasts"]
    assert TopologyOutline.from_json(file) == outline(described("rows"))


# -------------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    "given",
    [
        {"version": 0},
        {"version": 70_000},
        {"version": True},
        {"version": 2, "upcast": {2: to_second}},
        {"version": 3, "upcast": {1: to_second}},
        {"version": 1, "upcast": {0: to_second}},
        {"version": 2, "upcast": {1: lambda: None}},
        {"version": 2, "upcast": {1: 5}},
        {"version": 2, "upcast": {"1": to_second}},
    ],
)
def test_versions_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(TopologyError):
        Store("rows", **given)


def refusing(program: Callable[[StreamsBuilder], object], settings: dict[str, object] | None = None) -> None:
    builder = StreamsBuilder()
    program(builder)
    builder.build(settings)


def test_stores_that_others_write_have_no_versions() -> None:
    versioned = Store("rows", **SECOND)
    with pytest.raises(UnsupportedError, match="restored from a topic that is written without tags"):
        refusing(lambda builder: builder.global_table("in", **TEXT, store=versioned))
    with pytest.raises(UnsupportedError, match="restored from a topic that is written without tags"):
        refusing(lambda builder: builder.table("in", **TEXT, store=versioned), {"topology.optimization": "all"})


def test_both_sides_of_a_join_have_their_own() -> None:
    from topology import JoinWindows

    with pytest.raises(TopologyError, match="give two Stores"):
        refusing(
            lambda builder: builder.stream("in", **TEXT).join(
                builder.stream("other", **TEXT), lambda one, _: one, JoinWindows(1), store=Store("rows", **SECOND)
            )
        )


# ------------------------------------------------------------------------------------------------------------ the tag

SAMPLES: list[tuple[serdes.Serde[Any], Any]] = [
    (serdes.string, "\u00ff\u00c1rowv"),
    (serdes.json, {"a": "\u00ff"}),
    (serdes.long, -1),
    (serdes.double, float("-inf")),
    (serdes.integer, -1),
    (serdes.boolean, True),
    (serdes.bytes, b"\xff\xff\xff"),
    (serdes.bytes, b"\xff\xc1"),
]


@pytest.mark.parametrize(("serde", "value"), SAMPLES)
def test_values_of_other_formats_have_no_tag(serde: serdes.Serde[Any], value: Any) -> None:
    assert version_of(serde.serialize(value)) == latest_version_in(serde.serialize(value)) == 1


def test_a_tag_is_found_wherever_a_row_has_it() -> None:
    tagged = versioned_values(serdes.string, 300, (), "rows").serialize("x")
    assert version_of(tagged) == latest_version_in(tagged) == latest_version_in(b"held" + tagged + b"more") == 300
    assert tagged == b"\xff\xc1rowv\x01\x2cx"
