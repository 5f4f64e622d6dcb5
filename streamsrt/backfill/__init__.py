"""Backfill: the state of an application computed offline from history, then handed over to the live application.

    from streamsrt.backfill import Archive, Backfill

    # A module of its own: workers import it, and not this program.
    backfill = Backfill(".streamsrt/backfill/shop")
    backfill.plan("shop.app:topology", application_id="shop", bootstrap_servers="127.0.0.1:9092",
                  sources={"orders": Archive("/lake/orders")})
    backfill.run(engine="local", workers=4)
    backfill.commit()

==================  =====================================================================
``plan``            what is read and which tasks there are: one frozen document
``planning``        makes it: the cluster, the archives, the application
``order``           the one order in which a task replays its partitions
``replay``          the live task over frozen inputs
``run_task``        one task from its inputs to its published result
``manifest``        what a finished task says about itself
``sources``         the cluster's log and repartition results; ``archive``, ``lake``: Parquet files
``engine_local``    tasks in processes of this machine
``engine_spark``    tasks on Spark; ``engine_spark_lake``: with a lake put in order
``spark_source``    state as a Spark data frame
``handover``        results into the cluster, exactly once, offsets last
``log_writer``      one partition's records into its log, exactly once
``parquet_files``   what the columns of Parquet files must be
``verify``          whether everything is there and equal
``bundle``          state files into the state directory of an instance
``job``             all of it together
==================  =====================================================================
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamsrt.backfill.job import Backfill
    from streamsrt.backfill.lake import Lake
    from streamsrt.backfill.sources import Archive, KafkaLog

__all__ = ["Archive", "Backfill", "KafkaLog", "Lake"]

_PLACES = {"Archive": "sources", "Backfill": "job", "KafkaLog": "sources", "Lake": "lake"}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
