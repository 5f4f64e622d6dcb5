"""The report of a backfill as tables."""

from __future__ import annotations

from collections.abc import Mapping

import typer

from streamsrt.backfill.report import BackfillReport
from streamsrt.cli.output import note, print_rows
from streamsrt.wording import counted

_SECTIONS = {
    "sources": ("topic", "kept_in", "partitions", "records", "files", "size_bytes", "first_day", "last_day"),
    "subtopologies": ("subtopology", "tasks", "records", "seconds", "skew", "largest", "slowest"),
    "tasks": ("task", "slices", "records", "seconds", "records_per_second", "dropped_late", "dropped", "written_bytes"),
    "stores": ("store", "partitions", "entries", "changelog_records", "size_bytes"),
    "written": ("topic", "kind", "partitions", "records", "size_bytes"),
}
"""The tables of a report that are printed, with their columns."""


def show_report(found: BackfillReport) -> None:
    """Prints a table for each section, and a line about the whole."""
    content = found.model_dump()
    for section, columns in _SECTIONS.items():
        if content[section]:
            print_rows(columns, [_report_row(row) for row in content[section]], as_json=False)
            typer.echo("")
    left = f", {len(found.unfinished)} unfinished" if found.unfinished else ""
    note(
        f"{counted(len(found.tasks), 'task')} finished{left}: {counted(found.records, 'record')} in {found.seconds:.1f} "
        f"task seconds, {found.counters.get('dropped_late', 0)} dropped as late, {found.counters.get('dropped', 0)} "
        f"dropped in all; hand-over: {found.hand_over}. --html FILE writes a page with counts by day"
    )


def _report_row(row: Mapping[str, object]) -> dict[str, object]:
    shown = dict(row)
    if isinstance(seconds := row.get("seconds"), float):
        shown["seconds"] = f"{seconds:.1f}"
    if isinstance(days := row.get("days"), dict):
        shown |= {"first_day": next(iter(days), ""), "last_day": next(reversed(days), "")}
    if isinstance(kept_in := row.get("kept_in"), tuple):
        shown["kept_in"] = " + ".join(kept_in)
    return shown
