"""The report of a backfill as one page of HTML: no script, no other file, readable on paper.

1. Everything that comes out of the plan is escaped: names of topics and warnings may hold anything.
2. A number stands beside each bar. Colour alone says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape

from streamsrt.backfill.report import BackfillReport, TopicReport
from streamsrt.wording import counted

MOST_BARS = 62
"""A source of more days is drawn by months."""
_BAR_PX = 120
_CHART_PX = 80
_STYLE = """
:root { color-scheme: light dark; --bar: #4c78a8; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { display: inline-block; width: 120px; margin-left: .5rem; text-align: left; }
.bar span { display: inline-block; height: .7em; background: var(--bar); }
.days { display: flex; align-items: flex-end; gap: 1px; height: 100px; overflow-x: auto; margin: .5rem 0; }
.days span { background: var(--bar); min-width: 6px; flex: 1; }
.warning { border-left: 3px solid #d97706; padding-left: .75rem; }
"""

_Cell = str | int | float


def page(report: BackfillReport) -> str:
    """The page. The same report gives the same page."""
    title = f"Backfill of {report.application_id}"
    body = "\n".join(_sections(report))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def _sections(report: BackfillReport) -> Iterator[str]:
    yield _summary(report)
    yield from (f'<p class="warning">{escape(warning)}</p>' for warning in report.warnings)
    yield "<h2>Sources</h2>"
    yield _table(
        ("topic", "kept in", "partitions", "records", "files", "bytes", "without key", "duplicates"),
        (
            (
                source.topic,
                " + ".join(source.kept_in) or "nothing to read",
                source.partitions,
                source.records,
                source.files,
                source.size_bytes,
                source.without_key,
                source.duplicates,
            )
            for source in report.sources
        ),
    )
    yield from (_days(source) for source in report.sources if len(source.days) > 1)
    yield "<h2>Subtopologies</h2>"
    yield _table(
        ("subtopology", "tasks", "records", "seconds", "skew", "largest", "slowest"),
        (
            (each.subtopology, each.tasks, each.records, round(each.seconds, 1), each.skew, each.largest, each.slowest)
            for each in report.subtopologies
        ),
    )
    yield "<h2>Tasks</h2>"
    yield _table(
        ("task", "records", "seconds", "records/s", "dropped late", "dropped", "peak MB", "written bytes"),
        (
            (
                task.task,
                task.records,
                round(task.seconds, 1),
                task.records_per_second,
                task.dropped_late,
                task.dropped,
                task.peak_memory_bytes >> 20,
                task.written_bytes,
            )
            for task in report.tasks
        ),
        bar=2,
    )
    yield "<h2>Stores</h2>"
    yield _table(
        ("store", "partitions", "entries", "changelog records", "bytes"),
        (
            (each.store, each.partitions, each.entries, each.changelog_records, each.size_bytes)
            for each in report.stores
        ),
    )
    yield "<h2>Topics written</h2>"
    yield _table(
        ("topic", "kind", "partitions", "records", "bytes"),
        ((each.topic, each.kind, each.partitions, each.records, each.size_bytes) for each in report.written),
    )


def _summary(report: BackfillReport) -> str:
    planned = datetime.fromtimestamp(report.planned_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    failed = {name: count for name, count in report.counters.items() if name.startswith("failed_") and count}
    lines = [
        f"{report.application}, plan {report.plan} of {planned}",
        f"{counted(len(report.tasks), 'task')} finished; hand-over: {report.hand_over}",
        f"{counted(report.records, 'record')} in {report.seconds:.1f} task seconds, "
        f"{report.written_bytes:,} bytes written, {report.peak_memory_bytes >> 20} MB of memory at most",
        f"{report.counters.get('dropped_late', 0):,} dropped as late, {report.counters.get('dropped', 0):,} dropped in all",
    ]
    lines += [f"{name.replace('_', ' ')}: {count:,}" for name, count in failed.items()]
    if report.unfinished:
        lines.append(f"{counted(len(report.unfinished), 'task')} unfinished: {', '.join(report.unfinished)}")
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _table(columns: Sequence[str], rows: Iterable[Sequence[_Cell]], bar: int | None = None) -> str:
    """``bar``: the column of numbers that bars show, too."""
    found = [list(row) for row in rows]
    if not found:
        return "<p>none</p>"
    numeric = [all(not isinstance(row[index], str) for row in found) for index in range(len(columns))]
    largest = 0.0 if bar is None else max(float(row[bar]) for row in found)
    head = "".join(
        f"<th{_class(is_number)}>{escape(name)}</th>" for name, is_number in zip(columns, numeric, strict=True)
    )
    body = []
    for row in found:
        cells = [
            f"<td{_class(is_number)}>{_text(value)}{_bar(value, largest) if index == bar else ''}</td>"
            for index, (value, is_number) in enumerate(zip(row, numeric, strict=True))
        ]
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def _class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _text(value: _Cell) -> str:
    return escape(value) if isinstance(value, str) else f"{value:,}"


def _bar(value: _Cell, largest: float) -> str:
    width = round(_BAR_PX * float(value) / largest) if largest else 0
    return f'<span class="bar"><span style="width:{width}px"></span></span>'


def _days(source: TopicReport) -> str:
    """Records by day, or by month where there are many days."""
    counts, unit = dict(source.days), "day"
    if len(counts) > MOST_BARS:
        months: dict[str, int] = {}
        for day, records in counts.items():
            months[day[:7]] = months.get(day[:7], 0) + records
        counts, unit = months, "month"
    largest = max(counts.values())
    bars = "".join(
        f'<span style="height:{max(1, round(_CHART_PX * records / largest))}%" '
        f'title="{escape(day)}: {records:,}"></span>'
        for day, records in counts.items()
    )
    first, last = next(iter(counts)), next(reversed(counts))
    return (
        f"<h3>{escape(source.topic)}: records by {unit}, {escape(first)} to {escape(last)}, at most {largest:,}</h3>"
        f'<div class="days">{bars}</div>'
        f"<details><summary>{len(counts)} {unit}s in numbers</summary>{_table((unit, 'records'), counts.items())}</details>"
    )
