"""The Spark session that a backfill runs in.

1. A session that is active in this process is used as it is, and left running. Else one is made: local, unless a master is
   given; ``sc://HOST`` is Spark Connect.
2. Only DataFrame calls are made, so any session will do. Workers need this package and the application: installed on the
   nodes, or shipped (:class:`Shipment`).
3. A local master gets several attempts for each task: Spark's own default there is one.
4. Workers of a local master run this interpreter and see its ``sys.path``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamsrt.backfill.application_bundle import FOLDER
from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.java import find_java
from streamsrt.backfill.lake_formats import VERIFY_CHECKSUMS
from streamsrt.backfill.manifest import IDLE, SparkActivity, StageProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_ATTEMPTS = 3
INSTALL = "pip install 'streamsrt[spark]'"
_WORKERS_PATH = "spark.executorEnv.PYTHONPATH"
_WORKERS_PYTHON = "spark.pyspark.python"
_LOCAL = re.compile(r"local(?:\[([^,\]]+)\])?$")
UTC_OPTION = "-Duser.timezone=UTC"
UTC_SETTINGS = {
    # Before the options for Java that somebody gives: those count.
    "spark.driver.defaultJavaOptions": UTC_OPTION,
    "spark.executor.defaultJavaOptions": UTC_OPTION,
    "spark.executorEnv.TZ": "UTC",
}
"""Settings of Spark's for a session in which every clock is UTC. They count only where its JVMs start."""

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    # Every stage has as many partitions as it has tasks of the plan: there is nothing to adapt.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # For tables of versions, whose readers don't pass options on.
    f"spark.hadoop.{VERIFY_CHECKSUMS}": "true",
    # Results on the disks of workers, when the driver has fetched them.
    "spark.cleaner.periodicGC.interval": "1min",
    **UTC_SETTINGS,
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
QUICK_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For a JVM that only hands out tasks: a third less processor time until it does."""
_LOGGERS_OF_ERRORS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# Without an appender Spark takes its own settings, which write to the terminal.
_SILENT_LOG = """rootLogger.level = off
rootLogger.appenderRef.none.ref = none
appender.none.type = Null
appender.none.name = none
"""


@dataclass(frozen=True, slots=True)
class Shipment:
    """The files that Spark ships to the workers of a cluster. ``bundle``: an archive of
    :mod:`streamsrt.backfill.application_bundle`; ``py_files``: modules and archives of modules, as Spark takes them."""

    bundle: Path | None = None
    py_files: tuple[str, ...] = ()


NOTHING = Shipment()


def check_installed() -> None:
    """Raises BackfillError where a package that the engine needs is missing."""
    missing = [name for name in ("pyspark", "pandas", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise BackfillError(
            f"engine spark needs {', '.join(missing)}, which is not installed: {INSTALL} (about 700 MB, Java included), "
            "or run with --engine local"
        )


def with_attempts(master: str) -> str:
    """A master under which a task that lost its worker is tried again."""
    local = _LOCAL.match(master)
    return master if local is None else f"local[{local[1] or 1},{LOCAL_ATTEMPTS}]"


def is_local(master: str) -> bool:
    """Whether Spark's workers are processes of this machine, with its files and packages."""
    return master.startswith("local")


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, which has no driver in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


class SparkSessionHandle:
    """A session, and whether it is ours. To be closed."""

    def __init__(self, spark: SparkSession, *, ours: bool, folder: tempfile.TemporaryDirectory[str] | None) -> None:
        self.spark = spark
        self._ours = ours
        self._folder = folder

    @property
    def python_path(self) -> tuple[str, ...]:
        """The paths that workers import from."""
        if not is_local(self.spark.conf.get("spark.master", "") or ""):
            return ()
        return _python_path()

    @property
    def master(self) -> str:
        """Spark's master."""
        return self.spark.conf.get("spark.master", "") or "Spark Connect"

    def activity(self) -> SparkActivity:
        """Returns what Spark is doing; nothing for a session of Spark Connect, which does not report it."""
        if is_connect(self.spark):
            return IDLE
        tracker = self.spark.sparkContext.statusTracker()
        found = [(stage, tracker.getStageInfo(stage)) for stage in sorted(tracker.getActiveStageIds())]
        stages = tuple(
            StageProgress(stage=stage, done=info.numCompletedTasks, running=info.numActiveTasks, total=info.numTasks)
            for stage, info in found
            if info is not None
        )
        return SparkActivity(stages=stages, ui=self.spark.sparkContext.uiWebUrl)

    def close(self) -> None:
        """Stops a session that was made here."""
        if self._ours:
            self.spark.stop()
            self._ours = False
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def open_session(
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    shipment: Shipment = NOTHING,
) -> SparkSessionHandle:
    """The active session, or a new one with ``settings``. ``conf``: what the user wants, which goes over everything else.
    Raises BackfillError where it can't be had."""
    check_installed()
    if shipment != NOTHING:
        _check_shipment(shipment, master or (conf or {}).get("spark.master"))
    with quiet():
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        if active is not None and master is None:
            _check_settings(active, conf or {})
            return SparkSessionHandle(active, ours=False, folder=None)
        chosen = with_attempts(master or "local[*]")
        try:
            if chosen.startswith("sc://"):
                return _connected(chosen, conf or {})
            found = _started(chosen, {**(settings or {}), **_shipped(shipment, conf or {})})
            for path in shipment.py_files:
                found.spark.sparkContext.addPyFile(path)
            return found
        except BackfillError:
            raise
        except Exception as error:
            packages = {**(settings or {}), **(conf or {})}.get("spark.jars.packages")
            wanted = f", and that Spark can download {packages}" if packages else ""
            raise BackfillError(
                f"Spark can't be used with master {chosen}: {first_line(error)} Check --master, and that Java runs{wanted}; "
                "--engine local needs neither"
            ) from error


def _check_shipment(shipment: Shipment, master: str | None) -> None:
    """Raises BackfillError where it can't be shipped."""
    if master is None or is_local(master) or master.startswith("sc://"):
        whose = "the server's" if master is not None and master.startswith("sc://") else "of this machine"
        raise BackfillError(
            f"--bundle and --py-files are for workers on a cluster, and those of {master or 'this session'} are {whose}: "
            "give --master, or install what they need there"
        )
    missing = [path for path in shipment.py_files if "://" not in path and not Path(path).exists()]
    if missing:
        raise BackfillError(f"--py-files {', '.join(missing)}: there is no such file")


def _shipped(shipment: Shipment, conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings by which workers get a bundle."""
    if shipment.bundle is None:
        return dict(conf)
    archive = f"{shipment.bundle.absolute()}#{FOLDER}"
    archives, path = conf.get("spark.archives"), conf.get(_WORKERS_PATH)
    return {
        **conf,
        "spark.archives": archive if archives is None else f"{archive},{archives}",
        _WORKERS_PATH: FOLDER if path is None else f"{FOLDER}:{path}",
    }


def _check_settings(active: SparkSession, conf: Mapping[str, str]) -> None:
    """Raises BackfillError where a session that is there already has other settings than are wanted."""
    other = [key for key, value in conf.items() if active.conf.get(key, None) != value]
    if other:
        raise BackfillError(
            f"this program has a session of Spark with other values of {', '.join(other)}: set them where the session is "
            "made, or stop it before"
        )


def _connected(remote: str, conf: Mapping[str, str]) -> SparkSessionHandle:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(remote)
    for key, value in conf.items():
        builder = builder.config(key, value)
    return SparkSessionHandle(builder.getOrCreate(), ours=True, folder=None)


def hadoop_version() -> str:
    """The version of Hadoop that PySpark brings; empty where it brings none."""
    import pyspark

    found = sorted(Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar"))
    return found[0].stem.removeprefix("hadoop-client-api-") if found else ""


def _started(master: str, settings: Mapping[str, str]) -> SparkSessionHandle:
    from pyspark.sql import SparkSession

    local = is_local(master)
    builder = SparkSession.builder.appName("streamsrt backfill").master(master)
    for key, value in {**_SETTINGS, **(_LOCAL_SETTINGS if local else {}), **settings}.items():
        builder = builder.config(key, value)
    with contextlib.ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="streamsrt-spark-", ignore_cleanup_errors=True)
        stack.callback(folder.cleanup)
        with _environment(Path(folder.name), local=local, python=settings.get(_WORKERS_PYTHON)):
            session = SparkSessionHandle(builder.getOrCreate(), ours=True, folder=folder)
        stack.pop_all()
    return session


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Leaves out the warning about versions of pandas, which PySpark demands here but does not use, and what PySpark logs
    of each error beside raising it."""
    logs = [logging.getLogger(name) for name in _LOGGERS_OF_ERRORS]
    disabled = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
            yield
    finally:
        for log, was_disabled in zip(logs, disabled, strict=True):
            log.disabled = was_disabled


@contextlib.contextmanager
def _environment(folder: Path, *, local: bool, python: str | None = None) -> Iterator[None]:
    """Returns the environment of Spark's launcher and its JVM. ``python``: the interpreter of the workers, if a setting
    names one; Spark itself reads that setting in its own launchers only."""
    variables = {"JAVA_HOME": str(find_java(folder / "java").home)}
    defaults = {}
    if local or "SPARK_HOME" not in os.environ:
        # No Spark but that of the package is here, which has no configuration.
        log = folder / "conf" / "log4j2.properties"
        log.parent.mkdir(parents=True)
        log.write_text(_SILENT_LOG, encoding="ascii")
        defaults["SPARK_CONF_DIR"] = str(log.parent)
    if local:
        defaults |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        variables["PYTHONPATH"] = os.pathsep.join(_python_path())
    variables |= {key: value for key, value in defaults.items() if key not in os.environ}
    if python is not None:
        variables["PYSPARK_PYTHON"] = python
    before = {key: os.environ.get(key) for key in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def _python_path() -> tuple[str, ...]:
    return tuple(os.path.abspath(entry) for entry in sys.path)


def first_line(text: object) -> str:
    """Returns the most informative line of a text or an error."""
    return next((line for line in str(text).splitlines() if line.strip()), type(text).__name__)
