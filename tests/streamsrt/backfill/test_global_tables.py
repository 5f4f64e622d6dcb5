"""A backfill joins with global tables as an application does that is started when the plan is made."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.backfill import Archive, Backfill, KafkaLog, Lake
from streamsrt.backfill.archive import write_archive
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.global_tables import global_tables
from streamsrt.backfill.job import ResultsWay
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.replay import OfflineSettings
from streamsrt.backfill.spark.engine import SparkEngine
from streamsrt.backfill.table_freezing import frozen_tables
from streamsrt.backfill.task_state import TaskStores
from streamsrt.errors import MissingTopicError
from streamsrt.state.kinds import stored_view
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.records import RecordColumns
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.backfill import worldwide
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.repartition.written import Record, Written, written
from tests.streamsrt.backfill.worldwide import COUNTRIES, ORDERS, PRICED, RATES
from topology import Processor, StreamsBuilder
from topology import Record as AnyRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPLICATION = "tests.streamsrt.backfill.worldwide:topology"
STORES = ("per-customer", "last-price")


class World(Written):
    """A cluster of a test's own with the topics of :mod:`worldwide`."""

    folder: Path
    starts: dict[int, int]

    def backfill(self, name: str) -> Backfill:
        return Backfill(self.folder / name, bootstrap_servers=self.servers)

    def order(self, first: int, count: int) -> None:
        records: list[Record] = [
            (b"c%d" % (n % 7), b"%s%d" % ([b"at", b"be", b"ch"][n % 3], n), n, ()) for n in range(first, first + count)
        ]
        self.write_by_key(ORDERS, 2, records)

    def tell(self, topic: str, count: int, **rows: str | None) -> None:
        self.write_by_key(topic, count, [(key.encode(), row and row.encode(), 5, ()) for key, row in rows.items()])

    def run_live(self, application_id: str) -> None:
        settings = {"application.id": application_id, "bootstrap.servers": self.servers}
        state = self.folder / application_id
        KafkaStreams(worldwide.topology, {**settings, "state.dir": state}).run(until="quiet")

    def priced(self) -> list[tuple[int, bytes | None, bytes | None, int]]:
        """What came since this was asked last, in the order of each partition."""
        found, ends = [], self.ends(PRICED)
        for (_, index), end in sorted(ends.items()):
            for columns in read_log(self.network, (PRICED, index), self.starts.get(index, 0), end):
                found += [
                    (index, *record) for record in zip(columns.keys, columns.values, columns.timestamps, strict=True)
                ]
            self.starts[index] = end
        return found

    def changelogs(self, application_id: str) -> dict[str, object]:
        return {store: self.rows(f"{application_id}-{store}-changelog") for store in STORES}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    broker = BundledBroker(tmp_path / "broker")
    broker.start()
    try:
        with written(broker.bootstrap_servers, "world") as made:
            found = World(made.network, made.servers, "world")
            found.folder, found.starts = tmp_path, {}
            found.create({ORDERS: 2, COUNTRIES: 2, RATES: 1, PRICED: 2})
            found.tell(COUNTRIES, 2, at="Austria", be="?", ch="Switzerland", xx="nowhere")
            found.tell(COUNTRIES, 2, be="Belgium", xx=None)
            found.tell(RATES, 1, at="20", be="21", ch="8")
            found.tell(RATES, 1, be="1")
            yield found
    finally:
        broker.stop()


def test_it_is_one_live_run_of_an_application_that_was_started_then(world: World) -> None:
    world.order(0, 60)
    backfill = world.backfill("plan")
    plan = backfill.plan(APPLICATION, application_id="heir")
    ends = world.ends(COUNTRIES)
    said = (
        f"up to offsets {COUNTRIES}-0: {ends[COUNTRIES, 0]}, {COUNTRIES}-1: {ends[COUNTRIES, 1]}), as in an application"
    )
    assert any(note.startswith("global table countries: all records see the 3 rows of now (") for note in plan.warnings)
    assert any(said in note for note in plan.warnings)
    world.run_live("live")
    expected = world.priced()
    assert {value[-5:] for _, _, value, _ in expected if value} == {b"at 20", b"at 22", b" at 8"}
    world.tell(COUNTRIES, 2, at=None, ch="Helvetia")
    world.tell(RATES, 1, at="1", be="1", ch="1")
    backfill.run(InProcess())
    backfill.verify(recompute=2)
    backfill.commit(state_dir=world.folder / "heir")
    assert world.priced() == expected
    assert world.changelogs("heir") == world.changelogs("live")
    world.order(60, 20)
    world.run_live("live")
    expected = world.priced()
    world.run_live("heir")
    assert world.priced() == expected
    assert {value.split(b" ", 1)[1] for _, _, value, _ in expected if value} == {
        b"to Belgium at 23",
        b"to Helvetia at 9",
    }
    assert world.changelogs("heir") == world.changelogs("live")


def test_what_follows_sees_the_tables_of_its_own_plan(world: World) -> None:
    world.order(0, 6)
    first, second = world.backfill("first"), world.backfill("second")
    first.plan(APPLICATION, application_id="heir")
    first.run(InProcess())
    world.order(6, 6)
    world.tell(COUNTRIES, 2, at="Ostarrichi", be=None)
    plan = second.plan(APPLICATION, application_id="heir", after=first.directory)
    notes = [note for note in plan.warnings if note.startswith("global table ")]
    assert all(note.endswith("; what the earlier backfill has read saw those of its own plan") for note in notes)
    assert [table.records for table in plan.global_tables] == [2, 3]
    unnamed = [second.directory / "global" / name for name in ("making-1/0/file", "rates-12345678")]
    unnamed[0].parent.mkdir(parents=True)
    for path in unnamed:
        path.touch()
    second.run(InProcess())
    assert len(list((second.directory / "global").iterdir())) == 2
    second.commit()
    assert sorted(value for _, _, value, _ in world.priced() if value) == sorted(
        b"%s to %s" % (order, where)
        for order, where in {
            b"at0": b"Austria at 20",
            b"be1": b"Belgium at 22",
            b"ch2": b"Switzerland at 8",
            b"at3": b"Austria at 20",
            b"be4": b"Belgium at 22",
            b"ch5": b"Switzerland at 8",
            b"at6": b"Ostarrichi at 20",
            b"ch8": b"Switzerland at 8",
            b"at9": b"Ostarrichi at 20",
            b"ch11": b"Switzerland at 8",
        }.items()
    )


def test_what_can_not_be_planned_or_run_is_said(world: World, tmp_path: Path) -> None:
    world.order(0, 6)
    backfill = world.backfill("plan")
    with pytest.raises(
        PlanError, match=f"is given for {RATES}, from which a global table is filled: that is read from"
    ):
        backfill.plan(APPLICATION, application_id="heir", sources={RATES: Archive(tmp_path)})
    plan = backfill.plan(APPLICATION, application_id="heir")
    # What is the same is the same plan.
    assert backfill.plan(APPLICATION, application_id="heir").global_tables == plan.global_tables
    path = backfill.directory / plan.global_tables[0].path
    kept = path.read_bytes()
    path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(PlanError, match=r"which has the rows of global table 'countries', is missing or damaged: plan"):
        backfill.run(InProcess())
    path.write_bytes(kept)
    backfill.run(InProcess())
    world.network.admin.delete_topics([RATES])
    shutil.rmtree(backfill.directory)
    with pytest.raises(MissingTopicError, match=f"needs its global topics: {RATES}. Create them"):
        backfill.plan(APPLICATION, application_id="heir")


class Echo(Processor[str, str, str, str]):
    def process(self, record: AnyRecord[str, str]) -> Iterator[AnyRecord[str, str]]:
        yield record


@pytest.mark.parametrize(
    ("program", "seen"),
    [
        (lambda lines, one: lines.join(one, "{}{}".format, on=lambda key, value: value), {"one"}),
        (lambda lines, _one: lines.process_values(Echo), {"one", "other"}),
        (lambda lines, _one: lines.map_values(str.upper), set()),
    ],
)
def test_a_task_loads_the_tables_that_it_can_see(program: Any, seen: set[str], tmp_path: Path) -> None:
    builder = StreamsBuilder()
    one, _ = (builder.global_table(f"{name}s", store=name, **worldwide.TEXT) for name in ("one", "other"))
    program(builder.stream("in", **worldwide.TEXT), one).foreach(print)
    topology = builder.build()
    settings = OfflineSettings(application_id="a", task_config=TaskConfig(), partitions_of_topic=lambda topic: 1)
    rows = [((topic, 0), RecordColumns([b"k"], [b"v"], [1], 0, 1)) for topic in ("ones", "others")]
    tables = frozen_tables(topology, settings, rows, {tp: 1 for tp, _ in rows}, tmp_path)
    assert [table.records for table in tables] == [1, 1]
    for table in tables:
        if table.store not in seen:
            (tmp_path / table.path).unlink()
    (part,) = topology.subtopologies
    found = global_tables(tmp_path, tables, topology, part, settings, TaskStores())
    assert found is not None
    assert {name for name in ("one", "other") if stored_view(*found.store(name))("k")[0] is not None} == seen


@pytest.mark.spark
@pytest.mark.parametrize("way", [pytest.param("directory", marks=pytest.mark.full), "spark"])
@pytest.mark.parametrize("history", [pytest.param("log", marks=pytest.mark.full), "lake"])
def test_workers_of_spark_see_the_same_rows(way: ResultsWay, history: str, spark: SparkSession, world: World) -> None:
    """``spark``: workers that have nothing but what is shipped."""
    world.order(0, 20)
    root = world.folder / "lake"
    for (_, index), end in world.ends(ORDERS).items():
        write_archive(root, index, read_log(world.network, (ORDERS, index), 0, end))
    here, there = world.backfill("here"), world.backfill("there")
    here.plan(APPLICATION, application_id="heir")
    there.plan(APPLICATION, application_id="heir", sources={ORDERS: Lake(root) if history == "lake" else KafkaLog()})
    found = [
        {
            each.task: ([store.changelog_digest for store in each.stores], [log.file.records for log in each.outputs])
            for each in backfill.run(engine)
        }
        for backfill, engine in ((here, InProcess()), (there, SparkEngine(results=way)))
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 2
