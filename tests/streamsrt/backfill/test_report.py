"""The report of a backfill, and its page."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser

from streamsrt.backfill.manifest import FileResult, LogResult, PartitionRead, StoreResult, TaskManifest
from streamsrt.backfill.plan import ArchiveFile, BackfillPlan, LakeFile, LakePlan, SourceRange, StorePlan, TaskPlan
from streamsrt.backfill.report import BackfillReport, made_report
from streamsrt.backfill.report_page import page

_ODD = "a.<b>&topic"


def _file(path: str, records: int, size_bytes: int) -> FileResult:
    return FileResult(path=path, records=records, size_bytes=size_bytes, digest="0" * 32)


def _source(partition: int, **more: object) -> SourceRange:
    values = {"topic": _ODD, "partition": partition, "start": 0, "end": 10, "log_start": 4, **more}
    return SourceRange.model_validate(values)


def _plan(*tasks: TaskPlan, lakes: tuple[LakePlan, ...] = ()) -> BackfillPlan:
    return BackfillPlan(
        application="shop:topology",
        application_id="shop",
        code_digest="",
        version="1",
        topology_digest="",
        topics={_ODD: 2, "out": 2},
        tasks=tasks,
        lakes=lakes,
        warnings=("times <without> a zone",),
        created_ms=1_700_000_000_000,
    ).sealed()


def _manifest(plan: BackfillPlan, task: str, days: Mapping[str, int], seconds: float) -> TaskManifest:
    records = sum(days.values())
    attempt = f"attempt-{task}"
    read = PartitionRead(
        topic=_ODD, partition=int(task[-1]), start=0, end=10, records=records, partition_time_ms=1, days=dict(days)
    )
    store = StoreResult(
        name="counts",
        entries=3,
        bundle=_file(f"{attempt}/counts.sst", 3, 30),
        changelog=LogResult(topic="shop-counts", partition=0, file=_file(f"{attempt}/counts.changelog", 4, 40)),
    )
    return TaskManifest(
        task=task,
        fingerprint=plan.fingerprint,
        attempt=attempt,
        reads=(read,),
        stores=(store,),
        outputs=(LogResult(topic="out", partition=0, file=_file(f"{attempt}/out-0.log", 2, 20)),),
        counters={"dropped": 3, "dropped_late": 2, "failed_processing": 1},
        peak_memory_bytes=1 << 20,
        seconds=seconds,
    )


def _report() -> BackfillReport:
    archive = ArchiveFile(path="/lake/0.parquet", first_offset=0, next_offset=4, records=4, size_bytes=400)
    stores = (StorePlan(name="counts", changelog="shop-counts", own_changelog=True, persistent=True),)
    plan = _plan(
        *(
            TaskPlan(
                id=f"{name}_{partition}",
                subtopology=name,
                partition=partition,
                level=0,
                sources=(_source(partition, archive=(archive,) if partition == 0 else ()),),
                stores=stores,
            )
            for name in ("x", "y")
            for partition in (0, 1)
        )
    )
    finished = [
        _manifest(plan, "x_0", {"2026-01-01": 6, "2026-01-02": 3}, 2.0),
        _manifest(plan, "x_1", {"2026-01-02": 3}, 4.0),
        _manifest(plan, "y_0", {"2026-01-01": 6, "2026-01-02": 3}, 1.0),
    ]
    return made_report(plan, finished, "none")


def test_a_partition_that_two_subtopologies_read_counts_once_among_the_sources() -> None:
    report = _report()
    (source,) = report.sources
    assert (source.partitions, source.records, source.days) == (2, 12, {"2026-01-01": 6, "2026-01-02": 6})
    assert (source.kept_in, source.files, source.size_bytes) == (("archive", "log"), 1, 400)
    assert report.records == 21


def test_tasks_are_compared_within_their_subtopology() -> None:
    report = _report()
    first, second = report.subtopologies
    assert (first.subtopology, first.tasks, first.skew, first.largest, first.slowest) == ("x", 2, 1.5, "x_0", "x_1")
    assert (second.tasks, second.skew) == (1, 1.0)
    assert report.unfinished == ("y_1",)
    assert [task.records_per_second for task in report.tasks] == [4, 1, 9]


def test_results_are_summed_over_partitions() -> None:
    report = _report()
    (store,), (written,) = report.stores, report.written
    assert (store.partitions, store.entries, store.changelog_records, store.size_bytes) == (3, 9, 12, 90)
    assert (written.topic, written.kind, written.records, written.size_bytes) == ("out", "output", 6, 60)
    assert report.counters == {"dropped": 9, "dropped_late": 6, "failed_processing": 3}
    assert report.written_bytes == 3 * 90


def test_a_lake_has_its_files_and_its_counts() -> None:
    lake = LakePlan(
        topic=_ODD,
        files=(LakeFile(path="/lake/a", records=5, size_bytes=50), LakeFile(path="/lake/b", records=5, size_bytes=60)),
        order="timestamp",
        partitioned=True,
        headers=False,
        null_keys=2,
        duplicates=1,
    )
    task = TaskPlan(
        id="x_0", subtopology="x", partition=0, level=0, sources=(_source(0, log_start=10, lake_records=10),)
    )
    (source,) = made_report(_plan(task, lakes=(lake,)), [], "none").sources
    assert (source.kept_in, source.files, source.size_bytes) == (("lake",), 2, 110)
    assert (source.without_key, source.duplicates, source.records) == (2, 1, 0)


class _Text(HTMLParser):
    """Collects the text of a page, and the tags that are open at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "!doctype"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_is_whole_and_shows_names_as_they_are() -> None:
    found = _Text()
    found.feed(page(_report()))
    assert not found.open
    text = "\n".join(found.text)
    assert _ODD in text
    assert "times <without> a zone" in text
    assert "1 task unfinished: y_1" in text
    assert "failed processing: 3" in text
    assert "2 days in numbers" in text


def test_many_days_are_drawn_by_month() -> None:
    report = _report()
    days = {f"2026-{month:02}-{day:02}": 1 for month in (1, 2, 3) for day in range(1, 29)}
    (source,) = report.sources
    many = report.model_copy(update={"sources": (source.model_copy(update={"days": days}),)})
    assert "records by month, 2026-01 to 2026-03, at most 28" in page(many)


def test_an_empty_report_has_a_page() -> None:
    assert "none" in page(made_report(_plan(), [], "none"))
