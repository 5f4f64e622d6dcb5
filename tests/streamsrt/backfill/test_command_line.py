"""``streamsrt backfill`` and ``streamsrt state export`` as a user types them."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples import flights
from streamsrt.application import module_digest
from streamsrt.backfill.archive import write_archive
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.plan import BackfillPlan, load_plan, save_plan
from streamsrt.cli.entry import run_command_line
from streamsrt.client.values import LATEST, NewTopic
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures
from topology import serdes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ID = "typed"


class Terminal:
    """Runs commands, and holds what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.err = ""

    def __call__(self, *words: str | Path) -> tuple[int, str]:
        """Exit code and stdout."""
        with pytest.raises(SystemExit) as ended:
            run_command_line([str(word) for word in words])
        printed = self._capsys.readouterr()
        self.err = printed.err
        return int(ended.value.code or 0), printed.out


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


def test_from_the_plan_to_the_export(scene: Scene, terminal: Terminal) -> None:
    scene.load(departures(300))
    root = scene.archive_departures()
    scene.load(departures(100, start=6_000))
    where = ("--bootstrap-servers", scene.servers, "--dir", scene.folder / "plan")
    planning = ("backfill", "plan", APPLICATION, "--application-id", ID, *where)
    assert terminal(*planning, "--dir", scene.folder / "short")[0] == 0
    assert "the log does not hold the whole history" in terminal.err
    code, out = terminal(*planning, "--archive", f"departures={root}", "--json")
    assert code == 0
    assert len(json.loads(out)["tasks"]) == 4
    assert terminal("backfill", "commit", *where, "--execute")[0] == 2
    assert "is not finished" in terminal.err
    code, out = terminal("backfill", "status", "--dir", scene.folder / "plan", "--json")
    assert json.loads(out)["computed"] is False
    # The cluster is the one that the plan was made on.
    planned = ("--dir", scene.folder / "plan")
    code, out = terminal("backfill", "resume", *planned, "--workers", "1", "--json")
    assert code == 0
    assert sum(json.loads(line)["records"] for line in out.splitlines()) == 416
    shown = terminal("backfill", "status", "--dir", scene.folder / "plan")[1]
    assert all(re.fullmatch(r"\d+\.\d", line.split()[-1]) for line in shown.splitlines()[1:]), shown
    code, out = terminal("backfill", "verify", "--dir", scene.folder / "plan", "--json")
    assert {json.loads(line)["store"] for line in out.splitlines()} == {"airlines", "delays-per-hour"}
    assert terminal("backfill", "verify", *planned, "--recompute", "1")[0] == 0
    assert "all results are whole" in terminal.err
    _check_report(scene, terminal)
    state_dir = scene.state_dir(ID)
    assert terminal("backfill", "commit", *planned)[0] == 0
    assert "use --execute" in terminal.err
    code, out = terminal("backfill", "commit", *planned, "--state-dir", state_dir, "--execute", "--json")
    assert (code, json.loads(out)["hand_over"]) == (0, "done")
    assert terminal("backfill", "abort", *planned, "--execute")[0] == 2
    _check_export(scene, terminal, state_dir)


def _check_report(scene: Scene, terminal: Terminal) -> None:
    planned = ("backfill", "report", "--dir", scene.folder / "plan")
    code, out = terminal(*planned, "--json", "--html", scene.folder / "report.html")
    found = json.loads(out)
    assert (code, found["unfinished"]) == (0, [])
    sources = {each["topic"]: each for each in found["sources"]}
    of_days = Counter(
        datetime.fromtimestamp(row.timestamp_ms / 1000, UTC).date().isoformat()
        for row in [*departures(300), *departures(100, start=6_000)]
    )
    assert sources["departures"]["days"] == dict(sorted(of_days.items()))
    assert (sources["departures"]["kept_in"], sources["departures"]["records"]) == (["archive", "log"], 400)
    assert (sources["airlines"]["kept_in"], sources["airlines"]["records"]) == (["log"], 16)
    assert sum(task["dropped_late"] for task in found["tasks"]) == found["counters"]["dropped_late"]
    assert {store["store"] for store in found["stores"]} == {"airlines", "delays-per-hour"}
    assert all(each["skew"] >= 1 for each in found["subtopologies"])
    html = (scene.folder / "report.html").read_text(encoding="utf-8")
    assert all(task["task"] in html for task in found["tasks"])
    assert terminal(*planned)[1].count("departures") == 1
    assert "416 records" in " ".join(terminal.err.split())


def _check_export(scene: Scene, terminal: Terminal, state_dir: Path) -> None:
    app = ("--application", APPLICATION, "--application-id", ID)
    exported = {}
    for name, where in (("files", ("--state-dir", state_dir)), ("log", ("--bootstrap-servers", scene.servers))):
        folder = scene.folder / name
        assert terminal("state", "export", "delays-per-hour", *app, *where, "--parquet", folder)[0] == 0
        exported[name] = [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    assert exported["files"] == exported["log"]
    rows = exported["log"]
    expected = {
        (serdes.string.deserialize(key[:-12]), int.from_bytes(key[-12:-4], "big")): json.loads(value)
        for part in scene.changelogs(ID)["delays-per-hour"].values()
        for key, (value, _) in part.items()
        if key is not None and value is not None
    }
    # Windows beyond retention are in the changelog still, and not in the store.
    got = {(row["key"], row["window_start"]): json.loads(row["value"]) for row in rows}
    assert got
    assert all(expected[tp] == value for tp, value in got.items())
    assert {row["partition"] for row in rows} <= {0, 1, 2, 3}
    assert terminal("state", "export", "nothing", *app, "--parquet", folder)[0] == 2
    assert "has no store 'nothing'; it has airlines, delays-per-hour" in terminal.err


def test_a_hand_over_of_changed_code_is_noted(terminal: Terminal, scene: Scene) -> None:
    """The results are whole, and of the version that was planned."""
    where = ("--bootstrap-servers", scene.servers, "--dir", scene.folder / "plan")
    assert terminal("backfill", "plan", APPLICATION, "--application-id", ID, *where)[0] == 0
    plan = load_plan(scene.folder / "plan")
    assert terminal("backfill", "commit", *where)[0] == 2
    assert "has changed since" not in terminal.err
    changed = plan.model_copy(update={"module_digests": {"examples.flights": "1", "gone": "1"}}).sealed()
    save_plan(changed, scene.folder / "changed")
    assert terminal("backfill", "commit", *where[:2], "--dir", scene.folder / "changed")[0] == 2
    assert "the source of examples.flights has changed since the plan was made" in " ".join(terminal.err.split())


def test_a_hand_over_of_a_changed_import_is_noted(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the console script runs: the folder of the application is not on Python's path when it starts."""
    (tmp_path / "imported_then.py").write_text("changed = True\n")
    (tmp_path / "planned_then.py").write_text("import imported_then\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    plan = BackfillPlan(
        application="planned_then:topology",
        application_id=ID,
        code_digest=module_digest("planned_then:topology"),
        module_digests={"imported_then": "1"},
        version="",
        topology_digest="",
        created_ms=0,
        bootstrap_servers="no port",
    )
    save_plan(plan.sealed(), tmp_path / "plan")
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(tmp_path)])
    assert terminal("backfill", "commit", "--dir", tmp_path / "plan")[0] != 0
    assert "the source of imported_then has changed since the plan was made" in " ".join(terminal.err.split())


@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "value",
    [
        "to_json(struct(flight, origin, destination, delay), map('ignoreNullFields', 'false'))",
        "struct(flight, origin, destination, delay)",
    ],
    ids=["text", "serde"],
)
def test_a_lake_of_json_from_the_plan_to_the_commit(
    spark: SparkSession, scene: Scene, terminal: Terminal, value: str
) -> None:
    """Typed columns in folders by day, and the log for what came later: the same stores as of a live run over everything.
    A value that is no text is encoded by the application's serde."""
    scene.load(departures(300))
    ends, root = scene.ends(flights.DEPARTURES), scene.folder / "lake"
    scene.write_json_departures(root)
    scene.load(departures(80, start=6_000))
    scene.run_live("live")
    scene.network.admin.delete_records(ends)
    where = ("--dir", scene.folder / "plan")
    columns = {
        "key": "airline",
        "value": value,
        "timestamp": "cast(at as timestamp)",
        "partition": "shard",
        "offset": "number",
    }
    lake = [
        "--lake",
        f"departures={root}",
        "--lake-format",
        "departures=json",
        "--lake-where",
        "departures=day > '2000'",
    ]
    for name, text in columns.items():
        lake += ["--lake-column", f"departures.{name}={text}"]
    planning = ("backfill", "plan", APPLICATION, "-a", ID, "-b", scene.servers, *where)
    assert terminal(*planning, *lake)[0] == 0, terminal.err
    assert "lake of departures: 300 records" in " ".join(terminal.err.split())
    code, out = terminal("backfill", "run", *where, "--engine", "spark", "--json")
    assert code == 0, terminal.err
    assert sum(json.loads(line)["records"] for line in out.splitlines()) == 300 + 80 + len(
        list(flights.read_airlines())
    )
    assert terminal("backfill", "verify", *where)[0] == 0, terminal.err
    committing = ("backfill", "commit", *where, "--state-dir", scene.state_dir(ID), "--execute")
    assert terminal(*committing)[0] == 0, terminal.err
    streams = scene.run_live(ID)
    assert (streams.progress.processed_records, streams.progress.restored_records) == (0, 0)
    assert scene.stores(ID) == scene.stores("live") != {}


def test_the_answers_for_operations_are_shown(terminal: Terminal) -> None:
    code, out = terminal("backfill", "operators", "--json")
    found = {row["operation"]: row for row in map(json.loads, out.splitlines())}
    assert code == 0
    assert found["Suppress"]["offline"] == "as live"
    assert found["StreamGlobalTableJoin"]["offline"] == "as of plan"
    assert found["StreamGlobalTableJoin"]["slices"] == "yes"
    assert found["ResponseJoin"]["offline"] == "refused"
    assert "Key one table by what they are joined on" in found["ResponseJoin"]["note"]


def test_mistakes_are_named(scene: Scene, terminal: Terminal, tmp_path: Path) -> None:
    where = ("--bootstrap-servers", scene.servers, "--dir", tmp_path / "plan")
    plan = ("backfill", "plan", APPLICATION, "--application-id", ID, *where)
    lake_of_json = (
        *plan,
        "--lake",
        f"departures={tmp_path}",
        "--lake-format",
        "departures=json",
        "--master",
        "nowhere",
    )
    for words, says in (
        ((*plan, "--archive", "departures"), "expected KEY=VALUE"),
        (
            (*plan, "--archive", f"flights={tmp_path}"),
            "which the application does not read; it reads airlines, departures",
        ),
        ((*plan, "--archive", f"departures={tmp_path / 'nowhere'}"), "is not a directory"),
        ((*plan, "--archive", "departures=s3a://shop/x"), "--lake departures=s3a://shop/x reads it, by Spark"),
        ((*plan, "--application-id", f"{ID} "), f"application.id='{ID} ' has other characters than letters"),
        ((*plan, "--lake-column", "departures.key=x"), "for a topic that has a --lake"),
        ((*plan, "--lake-option", "departures.header=true"), "for a topic that has a --lake"),
        ((*plan, "--lake-format", "departures=csv"), "which may have a --lake-order"),
        ((*plan, "--lake", f"departures={tmp_path}", "--lake-until", "departures=noon"), "give a time as 2026-03-01"),
        (
            (*plan, "--lake", f"departures={tmp_path}", "--lake-format", "departures=xml"),
            "which is unknown: give parquet",
        ),
        # Before Spark is started: this master would fail then.
        ((*lake_of_json, "--lake-map", "departures=nowhere.mapping"), "nowhere"),
        ((*lake_of_json, "--lake-map", f"departures={APPLICATION}"), "is no function"),
        ((*lake_of_json, "--lake-column", "departures.shard=1"), "a record has no shard: expressions are for key"),
        (("backfill", "plan", "__main__:topology", "-a", ID, *where), "Give the name of the file without .py"),
        (("backfill", "run", *where, "--engine", "flink"), "give local or spark"),
        (("backfill", "run", *where, "--workers", "0"), "give at least 1"),
        (("backfill", "run", *where), "there is no plan"),
        (("backfill", "status", "--dir", tmp_path), "there is no plan"),
    ):
        code, _ = terminal(*words)
        assert (code, says in terminal.err) == (2, True), terminal.err


def test_gaps_that_the_log_could_fill_are_refused(scene: Scene, terminal: Terminal, tmp_path: Path) -> None:
    """Offsets that no record has may be missing, not records that the log holds before the archive begins."""
    scene.load(departures(300))
    ends = scene.ends("departures")
    for tp, end in ends.items():
        write_archive(tmp_path / "archive", tp[1], read_log(scene.network, tp, 2 if end > 2 else 0, end))
    where = ("--bootstrap-servers", scene.servers, "--dir", tmp_path / "plan")
    plan = ("backfill", "plan", APPLICATION, "--application-id", ID, *where, "--archive")
    assert terminal(*plan, f"departures={tmp_path / 'archive'}", "--allow-gaps")[0] == 2
    assert "begins at offset 2, and the log holds a record at offset 0 before that" in terminal.err
    scene.network.admin.delete_records(dict.fromkeys(ends, 2))
    code, _ = terminal(*plan, f"departures={tmp_path / 'archive'}", "--allow-gaps")
    assert code == 0, terminal.err


@pytest.mark.parametrize("lost", ["between files", "in a file", "at the end of a lake"])
def test_a_hole_in_the_middle_that_the_log_could_fill_is_refused(
    scene: Scene, terminal: Terminal, tmp_path: Path, lost: str
) -> None:
    """Offsets of records in the log that neither the archive nor the range of the log would bring."""
    scene.load(departures(300))
    for tp, end in scene.ends("departures").items():
        batches = [columns for columns in read_log(scene.network, tp, 0, end) if len(columns)]
        if tp[1] == 0:
            whole = batches[0]
            assert len(whole) > 8
            first, last = whole.cut(0, 3), whole.cut(5, len(whole))
            batches = [first, last, *batches[1:]]
        write_archive(tmp_path / "archive", tp[1], batches, file_records=1 if lost == "between files" else 10_000)
    where = ("--bootstrap-servers", scene.servers, "--dir", tmp_path / "plan", "--allow-gaps")
    option = "--lake" if lost == "at the end of a lake" else "--archive"
    words = ("backfill", "plan", APPLICATION, "--application-id", ID, *where, option)
    assert terminal(*words, f"departures={tmp_path / 'archive'}")[0] == 2
    says = (
        "records of offsets 0 to"
        if option == "--lake"
        else "archive of departures-0 has no offset 3, and the log holds"
    )
    assert says in terminal.err
    if option == "--archive":
        # What nobody has any more is a gap that was allowed.
        scene.network.admin.delete_records({("departures", 0): 5})
        assert terminal(*words, f"departures={tmp_path / 'archive'}")[0] == 0, terminal.err


def test_the_files_of_a_lake_are_counted_and_its_times_are_named(
    scene: Scene, terminal: Terminal, tmp_path: Path
) -> None:
    for number in range(2):
        columns = {
            "partition": pa.array([0, 0, 3]),
            "offset": pa.array([number * 2, number * 2 + 1, number]),
            "timestamp": pa.array([1, 2, 3], pa.timestamp("us")),
            "key": [b"k"] * 3,
            "value": [b"v"] * 3,
        }
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    scene.load(departures(300))
    scene.network.admin.delete_records({("departures", 0): 4, ("departures", 3): 2})
    where = ("--bootstrap-servers", scene.servers, "--dir", tmp_path / "plan", "--lake", f"departures={tmp_path}")
    code, out = terminal("backfill", "plan", APPLICATION, "--application-id", ID, *where, "--json")
    assert code == 0, terminal.err
    shown = json.loads(out)
    assert shown["changelogs"] == "live"
    files = {
        (each["topic"], each["partition"]): each["lake_files"] for task in shown["tasks"] for each in task["sources"]
    }
    assert [files["departures", partition] for partition in range(4)] == [2, 0, 0, 2]
    notes = " ".join(shown["warnings"])
    assert (
        "the times of departures (column timestamp) have no time zone in all of 2 files: they are read as UTC" in notes
    )
    assert "count microseconds" in notes
    code, out = terminal("backfill", "plan", APPLICATION, "--application-id", ID, *where, "--dir", tmp_path / "text")
    assert [line.split()[-1] for line in out.splitlines() if "departures" in line] == ["2", "0", "0", "2"]


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_the_times_of_a_lake_that_spark_reads_are_named(
    spark: SparkSession, scene: Scene, terminal: Terminal, tmp_path: Path
) -> None:
    """The session of the test is the one that is used."""
    columns = {"at": pa.array([1_000, 2_001], pa.timestamp("us")), "key": ["k"] * 2, "value": ["v"] * 2}
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "lake" / "part.parquet")
    where = (
        "--bootstrap-servers",
        scene.servers,
        "--dir",
        tmp_path / "plan",
        "--lake",
        f"departures={tmp_path / 'lake'}",
    )
    words = ("backfill", "plan", APPLICATION, "--application-id", ID, *where)
    code, _ = terminal(*words, "--lake-column", "departures.timestamp=at")
    assert code == 0, terminal.err
    notes = [note for note in load_plan(tmp_path / "plan").warnings if "the times of departures (at)" in note]
    assert len(notes) == 2
    assert "read as UTC" in notes[0]
    assert "microseconds in 1 record:" in notes[1]
    said = " ".join(terminal.err.split())
    assert all(" ".join(note.split()) in said for note in notes)


def test_topics_that_are_missing_are_named(scene: Scene, terminal: Terminal, tmp_path: Path) -> None:
    words = ("backfill", "plan", "tests.streamsrt.backfill.chained:topology", "--application-id", "chained")
    where = ("--bootstrap-servers", scene.servers, "--dir", tmp_path / "plan")
    assert terminal(*words, *where)[0] == 2
    assert "counts, lines" in terminal.err
    scene.network.admin.create_topics([NewTopic(name="lines", partitions=3), NewTopic(name="counts", partitions=2)])
    code, out = terminal(*words, *where, "--full-changelogs", "--json")
    assert code == 0
    plan = json.loads(out)
    assert plan["changelogs"] == "full"
    assert [task["level"] for task in plan["tasks"]] == [0, 0, 0, 1, 1, 1]
    assert [len(task["repartition"][0]["upstream"]) for task in plan["tasks"][3:]] == [3, 3, 3]
    assert {topic["partitions"] for topic in plan["internal_topics"]} == {3}
    assert terminal("backfill", "run", *where, "--workers", "1")[0] == 0
    assert terminal("backfill", "commit", *where, "--execute")[0] == 0
    ends = scene.network.admin.list_offsets({(topic["name"], 0): LATEST for topic in plan["internal_topics"]})
    assert len(ends) == 2
