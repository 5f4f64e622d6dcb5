"""Rows that an earlier version of a program wrote are upcast where backfills read changelogs, for every kind of store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamsrt.backfill.sources import connected
from streamsrt.backfill.spark.session import quiet
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.backfill.two_versions import TwoVersions
from topology.graph.store_kinds import StoreKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", StoreKind)
def test_a_data_frame_has_rows_of_two_versions_as_the_program_reads_them(
    spark: SparkSession, bundled_broker: BundledBroker, kind: StoreKind
) -> None:
    servers, name = bundled_broker.bootstrap_servers, f"frame-{kind.name.lower()}"
    with connected(servers) as network:
        store = TwoVersions(network, kind, name)
    assert store.versions == {1, 2}
    with quiet():
        from streamsrt.backfill.spark_source import register

        register(spark)
        reader = spark.read.format("streamsrt-state").options(application=store.program, application_id=name)
        frame = reader.options(store=store.spec.name, bootstrap_servers=servers).load()
    assert store.has(row.value for row in frame.collect())
