"""State of another application, out of its changelogs: of one in Java as of one of ours."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.backfill import Backfill
from streamsrt.backfill.copying.planning import Takeover
from streamsrt.backfill.errors import BackfillError, HandOverError, PlanError
from streamsrt.backfill.job import Engine
from streamsrt.backfill.sources import read_batches
from streamsrt.backfill.spark.engine import SparkEngine
from streamsrt.cli.entry import run_command_line
from streamsrt.client.values import EARLIEST
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.tasks.input.offset_metadata import parse_mark, parse_partition_metadata, partition_metadata
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import Headers
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.backfill.copying import library, shop
from tests.streamsrt.backfill.copying.java_cases import CASES
from tests.streamsrt.backfill.copying.shop import ORDERS, PRICES, WINDOW_MS
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.repartition.written import Record, Written, written
from topology.graph.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = "tests.streamsrt.backfill.copying"
NAMES = list(CASES)
STORES = ("counts", "per-minute", "sessions", "prices")
Rows = Mapping[bytes, tuple[bytes, int, Headers]]


class Cluster(Written):
    """A cluster of a test's own, whose applications read the topics of :mod:`shop`."""

    def plan(self, folder: Path, application: str, takeover: Takeover, application_id: str = "heir") -> Backfill:
        backfill = Backfill(folder, bootstrap_servers=self.servers)
        backfill.plan_takeover(f"{MODULE}.{application}", takeover, application_id=application_id)
        return backfill

    def process(self, topology: Topology, application_id: str, folder: Path) -> None:
        config = {
            "application.id": application_id,
            "bootstrap.servers": self.servers,
            "state.dir": folder / application_id,
        }
        KafkaStreams(topology, config).run(until="quiet")

    def order(self, items: str, at_ms: int) -> None:
        records: list[Record] = [(item.encode(), b"order", at_ms + 10 * i, ()) for i, item in enumerate(items)]
        self.write_by_key(ORDERS, 3, records)
        self.write_by_key(PRICES, 2, [(item.encode(), b"%d" % at_ms, at_ms, ()) for item in items])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    broker = BundledBroker(tmp_path / "broker")
    broker.start()
    try:
        with written(broker.bootstrap_servers, "shop") as made:
            yield Cluster(made.network, made.servers, "shop", "origin")
    finally:
        broker.stop()


def union(by_partition: Mapping[int, Rows]) -> Rows:
    return {key: row for rows in by_partition.values() for key, row in rows.items()}


def check_java(name: str, servers: str, folder: Path, engine: Engine) -> None:
    """Takes over the state of one of Java's programs."""
    case, origin = CASES[name], f"java-{name}"
    with written(servers, name) as java:
        java.application_id = origin
        sources = {each["topic"] for each in case["input"]}
        topics = {each["name"]: each["name"].replace("app", origin, 1) for each in case["internal_topics"]}
        there = java.network.admin.topics()
        java.create({topic: 1 for topic in sorted({*sources, *topics.values(), "out"}) if topic not in there})
        last: dict[str, dict[bytes, tuple[bytes, int]]] = {topic: {} for topic in topics}
        for each in case["changelog"]:
            key, value = bytes.fromhex(each["key_hex"]), each["value_hex"] and bytes.fromhex(each["value_hex"])
            java.write((topics[each["topic"]], 0), [(key, value, each["ts"], ())])
            last[each["topic"]].pop(key, None)
            if value is not None:
                last[each["topic"]][key] = value, each["ts"]
        java.commit({(topic, 0): 0 for topic in sources}, partition_metadata(31_000, {}))
        backfill = Backfill(folder / "plan", bootstrap_servers=java.servers)
        plan = backfill.plan_takeover(
            f"{MODULE}.java_cases:{name}", Takeover(origin=origin), application_id=f"heir-{name}"
        )
        found = {store.name: store for each in backfill.run(engine) for store in each.stores}
    assert set(found) == set(case["stores"])
    for store, expected in case["stores"].items():
        result = found[store]
        assert result.changelog is not None
        assert result.changelog.topic == f"heir-{name}-{store}-changelog"
        logged = {}
        for columns in read_batches(folder / "plan" / result.changelog.file.path):
            logged.update(zip(columns.keys, zip(columns.values, columns.timestamps, strict=True), strict=True))
        there_last = last[f"app-{store}-changelog"]
        assert logged.items() <= there_last.items()
        kept = len(there_last) if expected["kind"] == "timestamped_kv" else len(logged)
        assert len(logged) == kept >= len(expected["entries"]) > 0
    assert plan.copied is not None


@pytest.mark.parametrize("name", CASES)
def test_a_store_is_filled_from_a_changelog_that_java_has_written(
    name: str, bundled_broker: BundledBroker, tmp_path: Path
) -> None:
    check_java(name, bundled_broker.bootstrap_servers, tmp_path, InProcess())


@pytest.mark.spark
@pytest.mark.parametrize("way", ["auto", "spark"])
def test_it_is_filled_on_spark_too(
    way: Literal["auto", "spark"], spark: SparkSession, bundled_broker: BundledBroker, tmp_path: Path
) -> None:
    """``spark``: workers that have nothing but what is shipped."""
    name = {"auto": NAMES[0], "spark": NAMES[-1]}[way]
    check_java(name, bundled_broker.bootstrap_servers, tmp_path, SparkEngine(results=way))


def test_the_heir_goes_on_where_the_origin_stood(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create({ORDERS: 3, PRICES: 2})
    start_ms = (int(time.time()) // 3600 - 1) * 3_600_000
    cluster.order("abcdefaab", start_ms)
    cluster.process(shop.two, "origin", tmp_path)
    backfill = cluster.plan(tmp_path / "plan", "shop:two", Takeover(origin="origin"))
    backfill.run(InProcess())
    backfill.verify(recompute=2)
    backfill.commit(state_dir=tmp_path / "heir")
    for store in STORES:
        rows = cluster.rows(f"heir-{store}-changelog")
        assert rows == cluster.rows(f"origin-{store}-changelog")
        assert sum(map(len, rows.values())) >= 6
    there, here = (cluster.network.admin.committed(name) for name in ("origin", "heir"))
    for tp, at in there.items():
        own = (tp[0].replace("origin", "heir"), tp[1])
        mark, known = parse_mark(here[own].metadata), parse_partition_metadata(at.metadata)
        assert mark is not None
        assert known is not None
        assert (here[own].offset, mark.partition_time_ms) == (at.offset if own == tp else 0, known[0])
        assert mark.operator_times_ms == known[1]
        assert known[0] >= start_ms
    cluster.order("abxyab", start_ms + WINDOW_MS)
    for name in ("origin", "heir"):
        cluster.process(shop.two, name, tmp_path)
    for store in STORES:
        assert cluster.rows(f"heir-{store}-changelog") == cluster.rows(f"origin-{store}-changelog")
    with pytest.raises(HandOverError, match="committed offsets already"):
        cluster.plan(tmp_path / "again", "shop:two", Takeover(origin="origin"))


def test_rows_go_where_their_keys_belong_among_other_partitions(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create({ORDERS: 3, PRICES: 2})
    start_ms = (int(time.time()) // 3600 - 1) * 3_600_000
    cluster.order("abcdefghijaab", start_ms)
    cluster.process(shop.two, "origin", tmp_path)
    backfill = cluster.plan(tmp_path / "plan", "shop:five", Takeover(origin="origin"))
    backfill.run(InProcess())
    backfill.commit()
    cluster.order("abxyab", start_ms + WINDOW_MS)
    for name, topology in (("origin", shop.two), ("heir", shop.five)):
        cluster.process(topology, name, tmp_path)
    for store in STORES:
        rows = cluster.rows(f"heir-{store}-changelog")
        assert union(rows) == union(cluster.rows(f"origin-{store}-changelog"))
        assert len(rows) == (2 if store == "prices" else 5)
        for partition, some in rows.items():
            assert all(partition_for_key(key[:1], len(rows)) == partition for key in some)


def prepared(cluster: Cluster, records: list[Record]) -> None:
    """The changelog of the store of prices, and a topic all of which is processed."""
    cluster.create({PRICES: 2, "origin-prices-changelog": 2})
    cluster.write_by_key("origin-prices-changelog", 2, records)
    cluster.commit(cluster.ends(PRICES))


ROWS: list[Record] = [(b"item-%d" % number, b"12", 1_000, ()) for number in range(9)]


def test_what_can_be_wrong_is_told_when_it_is_planned(cluster: Cluster, tmp_path: Path) -> None:
    prepared(cluster, ROWS)
    cluster.create({ORDERS: 3, "taken-other-prices": 2})

    def refusal(application: str, **said: object) -> str:
        takeover = Takeover(**{"origin": "origin", **said})  # type: ignore[arg-type]
        with pytest.raises(PlanError) as refused:
            cluster.plan(tmp_path / "plan", application, takeover)
        return str(refused.value)

    assert "is the application itself" in refusal("shop:two", origin="heir")
    assert "has no committed offsets on this cluster" in refusal("shop:two", origin="stranger")
    assert "--empty is given for nothing, and" in refusal("shop:two", empty=["nothing"])
    assert f"does not read {ORDERS}" in refusal("shop:two")
    begins = {ORDERS: EARLIEST}
    assert f"--read-from is given for {PRICES}" in refusal("shop:two", begins={**begins, PRICES: EARLIEST})
    refused = refusal("shop:two", begins=begins)
    assert "no changelog for stores: counts (origin-counts-changelog), per-minute" in refused
    assert "'origin' has origin-prices-changelog." in refused
    cluster.create({"origin-by-item-repartition": 2})
    cluster.write(("origin-by-item-repartition", 1), ROWS[:4])
    others = ["counts", "per-minute", "sessions"]
    assert "has not processed 4 records of its topic origin-by-item-repartition" in refusal(
        "shop:two", begins=begins, empty=others
    )


def test_a_single_store_is_filled_and_the_others_begin_empty(cluster: Cluster, tmp_path: Path) -> None:
    prepared(cluster, ROWS)
    cluster.create({ORDERS: 3, "taken-other-prices": 2})
    words = ["backfill", "plan", f"{MODULE}.shop:other_prices", "-a", "heir", "-b", cluster.servers]
    words += ["--state-of", "origin", "--read-from", f"{ORDERS}=latest", "--read-from", "taken-other-prices=earliest"]
    words += ["--changelog", "prices=origin-prices-changelog", "--dir", str(tmp_path / "plan")]
    words += [word for store in STORES[:3] for word in ("--empty", store)]
    with pytest.raises(SystemExit) as ended:
        run_command_line(words)
    assert not ended.value.code
    cluster.write_by_key(ORDERS, 3, ROWS)
    backfill = Backfill(tmp_path / "plan", bootstrap_servers=cluster.servers)
    backfill.run(InProcess())
    backfill.commit(state_dir=tmp_path / "heir")
    assert cluster.rows("heir-prices-changelog") == cluster.rows("origin-prices-changelog")
    assert union(cluster.rows("heir-counts-changelog")) == {}
    store = RocksDBStore(tmp_path / "heir" / "heir" / "stores" / "prices" / "0", "prices", RocksDBOptions())
    try:
        assert len(list(store.range())) == len(cluster.rows("heir-prices-changelog")[0])
    finally:
        store.close()


def test_rows_that_lay_elsewhere_before_they_were_moved_are_no_obstacle(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create({ORDERS: 3, PRICES: 2, "origin-prices-changelog": 2, "taken-other-prices": 3})
    for key, value, at_ms, headers in ROWS:
        stray = 1 - partition_for_key(key, 2)
        cluster.write(("origin-prices-changelog", stray), [(key, value, at_ms, headers), (key, None, at_ms, headers)])
    cluster.write_by_key("origin-prices-changelog", 2, ROWS)
    cluster.commit(cluster.ends(PRICES))
    takeover = Takeover(
        origin="origin",
        changelogs={"prices": "origin-prices-changelog"},
        empty=STORES[:3],
        begins={ORDERS: EARLIEST, "taken-other-prices": EARLIEST},
    )
    backfill = cluster.plan(tmp_path / "plan", "shop:other_prices", takeover)
    backfill.run(InProcess())
    backfill.commit()
    assert union(cluster.rows("heir-prices-changelog")) == union(cluster.rows("origin-prices-changelog"))
    assert len(cluster.rows("heir-prices-changelog")) == 3
    key = ROWS[0][0]
    stray = 1 - partition_for_key(key, 2)
    cluster.write(("origin-prices-changelog", stray), ROWS[:1])
    backfill = cluster.plan(tmp_path / "stray", "shop:other_prices", takeover, "second")
    with pytest.raises(BackfillError, match=f"key {key!r} in origin-prices-changelog-{stray} belongs to partition"):
        backfill.run(InProcess())


def test_a_changelog_that_goes_on_or_does_not_fit_ends_the_run(cluster: Cluster, tmp_path: Path) -> None:
    prepared(cluster, ROWS)
    backfill = cluster.plan(tmp_path / "numbers", "shop:as_numbers", Takeover(origin="origin"))
    with pytest.raises(BackfillError, match="changelog origin-prices-changelog does not fit to store 'prices'"):
        backfill.run(InProcess())
    cluster.create({ORDERS: 3})
    windows = Takeover(
        origin="origin",
        changelogs={"per-minute": "origin-prices-changelog"},
        empty=["counts", "sessions"],
        begins={ORDERS: EARLIEST},
    )
    backfill = cluster.plan(tmp_path / "windows", "shop:two", windows)
    with pytest.raises(BackfillError, match="is none of a window store, as 'per-minute' is: name its changelog"):
        backfill.run(InProcess())
    backfill = cluster.plan(tmp_path / "late", "shop:as_numbers", Takeover(origin="origin"))
    cluster.write_by_key("origin-prices-changelog", 2, ROWS)
    with pytest.raises(BackfillError, match="Stop it, plan again in another --dir, and start it after the run"):
        backfill.run(InProcess())


def test_a_running_application_must_have_processed_everything(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create({ORDERS: 3, PRICES: 2})
    start_ms = (int(time.time()) // 3600 - 1) * 3_600_000
    cluster.order("abcdef", start_ms)
    cluster.process(shop.two, "origin", tmp_path)
    settings = {"application.id": "origin", "bootstrap.servers": cluster.servers, "state.dir": tmp_path / "origin"}
    streams = KafkaStreams(shop.two, settings)
    streams.start()
    try:
        streams.pause()
        cluster.plan(tmp_path / "idle", "shop:two", Takeover(origin="origin")).run(InProcess())
        cluster.order("xy", start_ms)
        with pytest.raises(
            PlanError, match=r"'origin' is running .* and has 4 records to process: .* Stop it, and plan"
        ):
            cluster.plan(tmp_path / "busy", "shop:two", Takeover(origin="origin"))
    finally:
        streams.close()


def joined(cluster: Cluster, topology: Topology, application_id: str, folder: Path) -> dict[str, Rows]:
    """All rows of its stores, after it has processed what there is. Which of two changes a result has last, and so its time,
    depends on how the two sides run."""
    cluster.process(topology, application_id, folder)
    found = {name: union(cluster.rows(f"{application_id}-{name}-changelog")) for name in ("books", "authors", "shelf")}
    found["shelf"] = {key: (value, 0, ()) for key, (value, _, _) in found["shelf"].items()}
    return found


@pytest.mark.parametrize("program", [pytest.param("few", marks=pytest.mark.full), "many"])
def test_both_sides_of_a_foreign_key_join_go_on(program: str, cluster: Cluster, tmp_path: Path) -> None:
    """``many``: in other partitions, of the left table in fewer and of the right one in more."""
    cluster.create({library.BOOKS: 2, library.AUTHORS: 1, library.SHELVES: 1})
    cluster.write_by_key(library.SHELVES, 1, [(b"b", b"shelf one", 1, ())])
    cluster.write_by_key(library.AUTHORS, 1, [(b"a%d" % n, b"Ann %d" % n, 10, ()) for n in range(6)])
    cluster.write_by_key(library.BOOKS, 2, [(b"b%d" % n, b"a%d/Book %d" % (n % 8, n), 20, ()) for n in range(16)])
    joined(cluster, library.few, "origin", tmp_path)
    backfill = cluster.plan(tmp_path / "plan", f"library:{program}", Takeover(origin="origin"))
    backfill.run(InProcess())
    backfill.verify(recompute=2)
    backfill.commit(state_dir=tmp_path / "heir")
    # Authors of known books come, get other names, and go; books change their authors, and come.
    known = [(b"a%d" % n, b"Bo %d" % n, 30, ()) for n in range(4, 8)]
    cluster.write_by_key(library.AUTHORS, 1, [*known, (b"a0", None, 31, ())])
    changed = [(b"b%d" % n, b"a%d/New %d" % (n % 5, n), 40, ()) for n in range(10, 20)]
    cluster.write_by_key(library.BOOKS, 2, changed)
    topology = getattr(library, program)
    there, here = (
        joined(cluster, each, name, tmp_path) for each, name in ((library.few, "origin"), (topology, "heir"))
    )
    assert here == there
    if program == "few":
        subscriptions = "shelf-subscription-store-changelog"
        assert cluster.rows(f"heir-{subscriptions}") == cluster.rows(f"origin-{subscriptions}")
    books = {f"b{n}": f"a{n}/Book {n}" for n in range(8)} | {f"b{n}": f"a{n - 8}/Book {n}" for n in (8, 9)}
    expected = books | {f"b{n}": f"a{n % 5}/New {n}" for n in range(10, 20)}
    names = {"a0": None} | {f"a{n}": f"Ann {n}" for n in range(1, 4)} | {f"a{n}": f"Bo {n}" for n in range(4, 8)}
    assert {key.decode(): value.decode() for key, (value, _, _) in here["shelf"].items()} == {
        book: f"{title} on shelf one by {names[title[:2]]}" for book, title in expected.items()
    }


def test_what_is_on_its_way_between_two_tables_would_be_lost(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create(
        {library.BOOKS: 2, library.AUTHORS: 1, library.SHELVES: 1, "origin-shelf-subscription-response-topic": 3}
    )
    cluster.commit({**cluster.ends(library.BOOKS), **cluster.ends(library.AUTHORS)})
    cluster.write(("origin-shelf-subscription-response-topic", 2), ROWS[:4])
    empty = ["books", "authors", "shelf", "shelf-subscription-store"]
    with pytest.raises(
        PlanError, match="not processed 4 records of its topic origin-shelf-subscription-response-topic"
    ):
        cluster.plan(tmp_path / "plan", "library:few", Takeover(origin="origin", empty=empty))
    changelogs = {"renamed-subscription-store": "origin-known-changelog"}
    cluster.create({"origin-known-changelog": 5})
    takeover = Takeover(origin="origin", changelogs=changelogs, empty=empty[:3])
    with pytest.raises(
        PlanError, match="is no topic origin-renamed-subscription-response-topic: give the join the name"
    ):
        cluster.plan(tmp_path / "plan", "library:renamed", takeover)
