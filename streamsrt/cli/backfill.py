"""``streamsrt backfill``: the state of an application out of history, then handed over to it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, get_args

import typer

from streamsrt.application import changed_modules, is_here, module_digest
from streamsrt.backfill.application_bundle import write_environment
from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.handover import Step
from streamsrt.backfill.job import Backfill, ResultsWay
from streamsrt.backfill.lake import Lake
from streamsrt.backfill.lake_formats import FORMATS
from streamsrt.backfill.manifest import TaskManifest, merged
from streamsrt.backfill.plan import BackfillPlan, LakePlan, load_plan
from streamsrt.backfill.report_page import page
from streamsrt.backfill.row_places import notes_on_places
from streamsrt.backfill.sources import Archive, Source
from streamsrt.cli.arguments import Config, ProgressInterval, utc_ms
from streamsrt.cli.backfill_progress import progress_line
from streamsrt.cli.backfill_report import show_report
from streamsrt.cli.output import note, print_json, print_rows, said_if_interrupted
from streamsrt.cli.session import AsJson, BootstrapServers, Execute, bootstrap
from streamsrt.cli.takeover import (
    ChangelogOf,
    Empty,
    ReadFrom,
    RecordKeys,
    StateOf,
    show_copied,
    takeover_of,
)
from streamsrt.config import key_value_pairs
from streamsrt.errors import ConfigError
from streamsrt.operators.table import OPERATIONS
from streamsrt.wording import counted

app = typer.Typer(help="Compute state from history: plan, run, hand over.", no_args_is_help=True)

Directory = Annotated[Path, typer.Option("--dir", "-d", help="directory of the plan, one per backfill")]
EngineOption = Annotated[str, typer.Option("--engine", help="local (processes on this machine) or spark")]
Workers = Annotated[int, typer.Option("--workers", help="processes of engine local")]
Master = Annotated[str | None, typer.Option("--master", help="Spark's master, e.g. local[2,3] or spark://HOST:PORT")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", help="KEY=VALUE of Spark, e.g. spark.jars.packages=...; repeatable, not stored in the plan"),
]
Bundle = Annotated[
    Path | None,
    typer.Option(
        "--bundle", help="archive of streamsrt backfill bundle, which Spark ships to the workers of a cluster"
    ),
]
PyFiles = Annotated[
    list[str] | None,
    typer.Option("--py-files", help="module, or archive of modules, that Spark ships to the workers; repeatable"),
]
Results = Annotated[
    str,
    typer.Option(
        "--results",
        help="how results of a cluster's workers come into --dir: directory (all nodes see it), spark (it brings them), or "
        "auto (as the workers see it)",
    ),
]

DEFAULT_DIRECTORY = Path(".streamsrt/backfill")
MOST_DAYS = 31
"""So many days are counted one by one."""


class _SaidOfLakes(NamedTuple):
    """What the options of ``plan`` say about lakes, each a list of texts ``TOPIC=...`` or ``TOPIC.NAME=...``."""

    order: Sequence[str]
    format: Sequence[str]
    where: Sequence[str]
    id: Sequence[str]
    until: Sequence[str]
    map: Sequence[str]
    column: Sequence[str]
    option: Sequence[str]


@app.command("plan")
def plan(
    application: Annotated[str, typer.Argument(help="MODULE:ATTRIBUTE of a topology")],
    application_id: Annotated[str, typer.Option("--application-id", "-a", help="name of the group that will run")],
    bootstrap_servers: BootstrapServers = None,
    archive: Annotated[
        list[str] | None, typer.Option("--archive", help="TOPIC=DIRECTORY of Parquet files; repeatable")
    ] = None,
    lake: Annotated[
        list[str] | None,
        typer.Option(
            "--lake",
            help="TOPIC=PATH of unordered files, for engine spark; also s3a://, gs://, abfs://, hdfs://, or a table's name",
        ),
    ] = None,
    lake_format: Annotated[
        list[str] | None, typer.Option("--lake-format", help=f"TOPIC=FORMAT of a lake: {', '.join(FORMATS)}")
    ] = None,
    lake_option: Annotated[
        list[str] | None,
        typer.Option("--lake-option", help="TOPIC.OPTION=VALUE for Spark's reader of a lake, e.g. orders.header=true"),
    ] = None,
    lake_where: Annotated[
        list[str] | None,
        typer.Option(
            "--lake-where", help="TOPIC=SQL: only rows that match this condition, e.g. orders='day >= \"2026-01-01\"'"
        ),
    ] = None,
    lake_id: Annotated[
        list[str] | None,
        typer.Option("--lake-id", help="TOPIC=SQL: only the first row of each value becomes a record"),
    ] = None,
    lake_until: Annotated[
        list[str] | None,
        typer.Option(
            "--lake-until",
            help="TOPIC=TIME (ISO 8601, UTC by default): older records are read from the lake (without "
            "offsets), all others from the log",
        ),
    ] = None,
    lake_order: Annotated[
        list[str] | None, typer.Option("--lake-order", help="TOPIC=COLUMN that orders a lake without offsets")
    ] = None,
    lake_map: Annotated[
        list[str] | None,
        typer.Option(
            "--lake-map",
            help="TOPIC=MODULE:FUNCTION in Python: takes the rows as a data frame, returns one with the columns of records",
        ),
    ] = None,
    lake_column: Annotated[
        list[str] | None,
        typer.Option(
            "--lake-column",
            help="TOPIC.COLUMN=SQL: expression for the key, value, timestamp, partition or offset of a "
            "lake without a column of that name, e.g. orders.value='to_json(struct(*))', or for the column of --lake-order",
        ),
    ] = None,
    allow_gaps: Annotated[
        bool,
        typer.Option(
            "--allow-gaps", help="archives of compacted or transactional topics may have gaps in their offsets"
        ),
    ] = False,
    config: Config = None,
    full_changelogs: Annotated[
        bool,
        typer.Option("--full-changelogs", help="changelogs also contain windows beyond retention, for other consumers"),
    ] = False,
    master: Master = None,
    conf: Conf = None,
    bundle: Bundle = None,
    py_files: PyFiles = None,
    after: Annotated[
        Path | None,
        typer.Option(
            "--after",
            help="directory of a finished backfill of this application: begin with its state and read only what came later",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            help="rebuild only this store of an application that has run and is stopped, from what it has read; or "
            "begin one that the running version does not have",
        ),
    ] = None,
    slices: Annotated[
        int,
        typer.Option(
            "--slices", help="divide each task by keys where its operations allow it, for more workers than partitions"
        ),
    ] = 1,
    state_of: StateOf = None,
    changelog: ChangelogOf = None,
    empty: Empty = None,
    read_from: ReadFrom = None,
    record_keys: RecordKeys = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Record which input is read and which tasks there are. Nothing is computed yet."""
    takeover = takeover_of(state_of, changelog or (), empty or (), read_from or (), record_keys or ())
    if takeover is not None:
        if archive or lake or after or store or full_changelogs or slices > 1:
            raise ConfigError(
                "--state-of takes the state of another application over, and computes none: leave out --archive, --lake, "
                "--after, --store, --slices and --full-changelogs"
            )
        with bootstrap(bootstrap_servers, begins=True) as address:
            copied = Backfill(directory, bootstrap_servers=address).plan_takeover(
                application,
                takeover,
                application_id=application_id,
                config=key_value_pairs(config or (), "--config"),
                is_bundled=bootstrap_servers is None,
            )
        _show_plan(copied, directory, as_json=as_json)
        return
    said = _SaidOfLakes(
        order=lake_order or (),
        format=lake_format or (),
        where=lake_where or (),
        id=lake_id or (),
        until=lake_until or (),
        map=lake_map or (),
        column=lake_column or (),
        option=lake_option or (),
    )
    sources = _sources(archive or (), lake or (), said, allow_gaps=allow_gaps)
    no_plan = said_if_interrupted(f"no plan was written to {directory}")
    with no_plan, bootstrap(bootstrap_servers, begins=True) as address:
        made = Backfill(directory, bootstrap_servers=address).plan(
            application,
            application_id=application_id,
            sources=sources,
            config=key_value_pairs(config or (), "--config"),
            changelogs="full" if full_changelogs else "live",
            is_bundled=bootstrap_servers is None,
            master=master,
            conf=key_value_pairs(conf or (), "--conf"),
            bundle=bundle,
            py_files=py_files or (),
            after=after,
            store=store,
            slices=slices,
        )
    _show_plan(made, directory, as_json=as_json)


def _sources(archive: Sequence[str], lake: Sequence[str], said: _SaidOfLakes, *, allow_gaps: bool) -> dict[str, Source]:
    """Where the history of each topic is, by topic. Raises ConfigError."""
    archives, paths = key_value_pairs(archive, "--archive"), key_value_pairs(lake, "--lake")
    lakes = _lakes(paths, said, archives, allow_gaps=allow_gaps)
    return {**{topic: Archive(path, allow_gaps) for topic, path in archives.items()}, **lakes}


def _lakes(
    paths: Mapping[str, str], said: _SaidOfLakes, archives: Collection[str], *, allow_gaps: bool
) -> dict[str, Lake]:
    orders = key_value_pairs(said.order, "--lake-order")
    formats = key_value_pairs(said.format, "--lake-format")
    conditions = key_value_pairs(said.where, "--lake-where")
    ids = key_value_pairs(said.id, "--lake-id")
    cuts = {topic: _time_ms(text) for topic, text in key_value_pairs(said.until, "--lake-until").items()}
    mappings = key_value_pairs(said.map, "--lake-map")
    columns = _of_lakes("--lake-column", "COLUMN=SQL", said.column, paths)
    options = _of_lakes("--lake-option", "OPTION=VALUE", said.option, paths)
    named = {topic for each in (orders, formats, conditions, ids, cuts, mappings) for topic in each}
    wrong = sorted((set(archives) & paths.keys()) | (named - paths.keys()))
    if wrong:
        raise ConfigError(
            f"{', '.join(wrong)}: a topic has either an --archive or a --lake, which may have a --lake-order, a "
            "--lake-format, a --lake-where, a --lake-id, a --lake-until and a --lake-map"
        )
    return {
        topic: Lake(
            path,
            orders.get(topic),
            allow_gaps,
            columns.get(topic, {}),
            formats.get(topic, "parquet"),
            options.get(topic, {}),
            conditions.get(topic),
            ids.get(topic),
            cuts.get(topic),
            mappings.get(topic),
        )
        for topic, path in paths.items()
    }


def _planned(directory: Path, bootstrap_servers: str | None) -> str | None:
    """The cluster that is named, else the one that the plan was made on; None for the bundled broker of this directory."""
    return bootstrap_servers or load_plan(directory).bootstrap_servers or None


def _time_ms(text: str) -> int:
    """A time as milliseconds since 1970."""
    try:
        return utc_ms(text)
    except ValueError:
        raise ConfigError(f"--lake-until {text}: give a time as 2026-03-01 or 2026-03-01T12:00:00Z") from None


def _of_lakes(option: str, form: str, given: Sequence[str], lakes: Collection[str]) -> dict[str, dict[str, str]]:
    """What is given for something of a topic's lake, by topic."""
    found: dict[str, dict[str, str]] = {}
    for target, value in key_value_pairs(given, option).items():
        # Topics and options may both have dots in their names.
        topic = max((name for name in lakes if target.startswith(f"{name}.")), key=len, default=None)
        if topic is None:
            raise ConfigError(f"{option} {target}: give TOPIC.{form} for a topic that has a --lake")
        found.setdefault(topic, {})[target.removeprefix(f"{topic}.")] = value
    return found


def _show_plan(made: BackfillPlan, directory: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(made.model_dump(mode="json"))
        return
    rows = [
        {
            "topic": source.topic,
            "partition": source.partition,
            "from": source.start,
            "to": source.end,
            "archived": source.archived_records,
            "files": len(source.archive) + source.lake_files,
        }
        for source in made.sources()
    ]
    print_rows(["topic", "partition", "from", "to", "archived", "files"], rows, as_json=False)
    for lake in made.lakes:
        if lake.days:
            note(_days_of(lake))
    for warning in made.warnings:
        note(f"warning: {warning}")
    if made.copied is not None:
        show_copied(made.application_id, made.copied)
    if made.repair is not None:
        others = ", ".join(made.repair.feeding) or "none"
        note(
            f"store {made.repair.store} of {made.application_id} is rebuilt from what the application has read; stores that "
            f"it is computed from, which commit compares with the cluster: {others}"
        )
        _note_fed(made)
        if made.repair.beside:
            note(
                f"application {made.application_id} is running: the store is computed up to here. When the run has ended, "
                f"stop it, and continue with plan --store {made.repair.store} --after {directory}, which reads the rest"
            )
    for subtopology, count in made.slices.items():
        note(f"tasks of subtopology {subtopology} are divided into {count} slices each")
    note(
        f"plan {made.id} of {counted(len(made.tasks), 'task')} is in {directory}; "
        f"streamsrt backfill run --dir {directory} runs it"
    )


def _days_of(lake: LakePlan) -> str:
    """How the records of a lake spread over days; where there are many, over months."""
    count, days = sum(lake.days.values()), lake.days
    if len(days) > MOST_DAYS:
        months: dict[str, int] = {}
        for day, records in days.items():
            months[day[:7]] = months.get(day[:7], 0) + records
        days = months
    listed = ", ".join(f"{day} {records}" for day, records in days.items())
    return f"lake of {lake.topic}: {counted(count, 'record')} of {counted(len(lake.days), 'day')} in UTC: {listed}"


@app.command("operators")
def operators(as_json: AsJson = False) -> None:
    """Show how a backfill treats each operation: as live, again (the function is called for the whole history), one
    order (one of those possible in a live run), as of plan (as if the application had been started when the plan was made),
    or refused by the plan; and whether it allows --slices."""
    rows = [
        {
            "operation": operation.__name__,
            "offline": operator.offline.outcome,
            "slices": operator.slices.allowed,
            "note": operator.offline.note,
        }
        for operation, operator in OPERATIONS.items()
    ]
    print_rows(["operation", "offline", "slices", "note"], rows, as_json=as_json)


@app.command("bundle")
def write_bundle(
    application: Annotated[str, typer.Argument(help="MODULE:ATTRIBUTE of the topology, as the plan has it")],
    output: Annotated[Path, typer.Option("--output", "-o", help="archive to write")] = Path("streamsrt-bundle.zip"),
    also: Annotated[
        list[str] | None,
        typer.Option("--with", help="distribution that the application imports only later; repeatable"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pack the application and all it needs into one archive, which Spark ships to the workers of a cluster.

    The archive is for nodes with the same system and the same version of Python. The nodes need Python and Spark.
    """
    about = write_environment(output, application, also or ())
    if as_json:
        print_json({"path": str(output), "size_bytes": output.stat().st_size, **about.model_dump(mode="json")})
        return
    print_rows(["distribution"], [{"distribution": each} for each in about.distributions], as_json=False)
    note(
        f"{output} ({output.stat().st_size >> 20} MB) has {', '.join(about.local)} and {len(about.distributions)} "
        f"distributions, for Python {about.python} on {about.platform}; streamsrt backfill run --engine spark --master URL "
        f"--bundle {output} ships it"
    )


@app.command("run")
def run(
    bootstrap_servers: BootstrapServers = None,
    engine: EngineOption = "local",
    workers: Workers = 2,
    master: Master = None,
    conf: Conf = None,
    bundle: Bundle = None,
    py_files: PyFiles = None,
    results: Results = "auto",
    directory: Directory = DEFAULT_DIRECTORY,
    progress_interval_s: ProgressInterval = 5.0,
    as_json: AsJson = False,
) -> None:
    """Run the tasks of the plan. Finished tasks are kept if the run is interrupted."""
    if engine not in ("local", "spark"):
        raise ConfigError(f"--engine {engine}: give local or spark")
    if workers < 1:
        raise ConfigError(f"--workers {workers}: give at least 1")
    if engine == "local" and (bundle or py_files):
        raise ConfigError("--bundle and --py-files are for engine spark: give --engine spark and --master")
    way = next((each for each in get_args(ResultsWay) if each == results), None)
    if way is None:
        raise ConfigError(f"--results {results}: give {', '.join(get_args(ResultsWay))}")
    left = said_if_interrupted(f"finished tasks are kept; streamsrt backfill resume --dir {directory} goes on")
    with left, bootstrap(_planned(directory, bootstrap_servers), begins=True) as address:
        job = Backfill(directory, bootstrap_servers=address)
        stop = threading.Event()
        reporter = threading.Thread(target=_report, args=(job, progress_interval_s, stop), daemon=True)
        if progress_interval_s > 0:
            reporter.start()
        try:
            manifests = job.run(
                "spark" if engine == "spark" else "local",
                workers=workers,
                master=master,
                conf=key_value_pairs(conf or (), "--conf"),
                bundle=bundle,
                py_files=py_files or (),
                results=way,
                on_task=lambda task: _show_task(task, as_json=as_json),
                on_damage=note,
                on_note=note,
            )
        finally:
            stop.set()
    records = sum(manifest.records for manifest in manifests)
    overtaken = sum(manifest.overtaken for manifest in manifests)
    if overtaken:
        note(
            f"{overtaken} records are older than what other partitions had when the earlier backfill ended. They are "
            "processed behind it, as they would be live; one backfill over everything would have processed them before"
        )
    for text in notes_on_places(load_plan(directory), manifests):
        note(f"warning: {text}")
    note(
        f"finished: {counted(len(manifests), 'task')}, {counted(records, 'record')}; streamsrt backfill commit hands over"
    )


app.command("resume", help="Resume an interrupted run; the same as run.")(run)


def _report(job: Backfill, interval_s: float, stop: threading.Event) -> None:
    while not stop.wait(interval_s):
        try:
            note(progress_line(job.status()))
        except BackfillError as error:
            note(f"no progress to show: {error}")
            return


def _show_task(task: TaskManifest, *, as_json: bool) -> None:
    rate = task.records / task.seconds if task.seconds else 0
    if as_json:
        print_json(
            {
                "task": task.task,
                "records": task.records,
                "seconds": task.seconds,
                "counters": task.counters,
                "peak_memory_bytes": task.peak_memory_bytes,
            }
        )
    else:
        memory = f", {task.peak_memory_bytes >> 20} MB of memory at most" if task.peak_memory_bytes else ""
        note(f"task {task.task}: {counted(task.records, 'record')} in {task.seconds:.1f} s ({rate:.0f}/s){memory}")


@app.command("status")
def status(directory: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Show the tasks and the progress of the hand-over, on any machine that can read the directory."""
    found = Backfill(directory).status()
    rows = [
        {"task": task.task, "level": task.level, "state": task.state, "records": task.records, "seconds": task.seconds}
        for task in found.tasks
    ]
    if as_json:
        print_json(
            {
                "plan": found.plan.id,
                "application_id": found.plan.application_id,
                "computed": found.is_computed,
                "hand_over": found.step,
                "records": found.records,
                "records_total": found.records_total,
                "spark_ui": found.spark.ui,
                "tasks": rows,
            }
        )
        return
    shown = [{**row, "seconds": f"{row['seconds']:.1f}"} for row in rows]
    print_rows(["task", "level", "state", "records", "seconds"], shown, as_json=False)
    note(f"{progress_line(found)}; hand-over: {found.step}")


@app.command("report")
def report(
    html: Annotated[Path | None, typer.Option("--html", help="write the report as a page of HTML to this file")] = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Show what the finished tasks have read, computed and dropped: by source and day, task, store and topic."""
    found = Backfill(directory).report()
    if html is not None:
        html.write_text(page(found), encoding="utf-8")
        note(f"the report is in {html}")
    if as_json:
        print_json(found.model_dump(mode="json"))
    elif html is None:
        show_report(found)


@app.command("verify")
def verify(
    bootstrap_servers: BootstrapServers = None,
    recompute: Annotated[int, typer.Option(min=0, help="recompute this many tasks, chosen at random, and compare")] = 0,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Check the results of all tasks: files, counts, digests; with --recompute, also a recomputed sample."""
    if recompute:
        with bootstrap(_planned(directory, bootstrap_servers), begins=True) as address:
            manifests = Backfill(directory, bootstrap_servers=address).verify(recompute=recompute)
    else:
        manifests = Backfill(directory).verify()
    stores = sorted({store.name for manifest in manifests for store in manifest.stores})
    rows = []
    for name in stores:
        results = [store for manifest in manifests for store in manifest.stores if store.name == name]
        digests = [store.changelog_digest for store in results if store.changelog_digest]
        entries = sum(store.entries for store in results)
        rows.append({"store": name, "partitions": len(results), "entries": entries, "digest": merged(digests)})
    print_rows(["store", "partitions", "entries", "digest"], rows, as_json=as_json)
    for text in notes_on_places(load_plan(directory), manifests):
        note(f"warning: {text}")
    records = sum(manifest.records for manifest in manifests)
    note(f"{counted(len(manifests), 'task')}, {counted(records, 'record')}: all results are whole")


@app.command("commit")
def commit(
    bootstrap_servers: BootstrapServers = None,
    directory: Directory = DEFAULT_DIRECTORY,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            "--state-dir",
            help="state directory of an instance on this machine, to which the stores are written as files",
        ),
    ] = None,
    transactions: Annotated[
        bool,
        typer.Option(
            help="write to the logs in transactions; without them, nobody else may write to the output topics"
        ),
    ] = True,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Hand over: changelogs and outputs, then the offsets. Run it again after an interruption."""
    found = Backfill(directory).status()
    _note_changes(found.plan)
    _note_fed(found.plan)
    if not execute:
        with bootstrap(_planned(directory, bootstrap_servers), begins=True) as address:
            state = Backfill(directory, bootstrap_servers=address).check_commit(
                state_dir=state_dir, on_step=lambda _, text: note(text), transactions=transactions
            )
        if state.step == "done":
            return
        repair, application_id = found.plan.repair, found.plan.application_id
        what = f"hand plan {found.plan.id} over to application {application_id}"
        if repair is not None:
            what = f"write the changelog of store {repair.store} of {application_id}, and nothing else"
        note(f"would {what} (reached so far: {found.step}); use --execute to do it")
        return
    left = said_if_interrupted(
        "commit again to finish the hand-over, or abort it; the application waits for one of them"
    )
    with left, bootstrap(_planned(directory, bootstrap_servers), begins=True) as address:
        state = Backfill(directory, bootstrap_servers=address).commit(
            state_dir=state_dir, on_step=_note_step, transactions=transactions
        )
    if as_json:
        print_json({"plan": found.plan.id, "hand_over": state.step, "changelog_ends": state.ends})


def _note_step(step: Step, text: str) -> None:
    note(text if step == "none" else f"{step}: {text}")


def _note_fed(plan: BackfillPlan) -> None:
    """Says which other stores have results of what is repaired."""
    if plan.repair is not None and plan.repair.fed:
        note(
            f"computed from store {plan.repair.store}: {', '.join(plan.repair.fed)}. If its rows were wrong, and not only "
            "lost, repair these stores next, in this order, before the application is started"
        )


def _note_changes(plan: BackfillPlan) -> None:
    """Says so if the program here is another one than was backfilled: the results are those of the planned one."""
    # First: this makes the folders known in which the modules are looked for.
    digest = module_digest(plan.application)
    changed = [module for module in changed_modules(plan.module_digests) if is_here(module)]
    if digest and digest != plan.code_digest:
        changed.insert(0, plan.application)
    if changed:
        note(
            f"the source of {', '.join(changed)} has changed since the plan was made. The state was computed by the planned "
            "version: start the application only if the changed one may continue it"
        )


@app.command("abort")
def abort(
    bootstrap_servers: BootstrapServers = None,
    directory: Directory = DEFAULT_DIRECTORY,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Abort an unfinished hand-over. Computed results stay in the directory."""
    with bootstrap(_planned(directory, bootstrap_servers), begins=True) as address:
        actions = Backfill(directory, bootstrap_servers=address).abort(execute=execute)
    for action in actions:
        if as_json:
            print_json({"action": action, "done": execute})
        else:
            note(action if execute else f"would {action}")
    if not actions:
        note("nothing was handed over: there is nothing to abort")
    elif not execute:
        note("use --execute to do it")
