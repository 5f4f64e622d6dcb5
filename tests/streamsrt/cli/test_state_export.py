"""``streamsrt state export`` reads the rows of every kind of store as the program has them, whichever version wrote them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streamsrt.backfill.sources import connected
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.backfill.two_versions import TwoVersions
from tests.streamsrt.cli.conftest import Command
from topology.graph.store_kinds import StoreKind


@pytest.mark.parametrize("kind", StoreKind)
def test_rows_of_two_versions_are_exported_as_the_program_reads_them(
    command: Command, bundled_broker: BundledBroker, tmp_path: Path, kind: StoreKind
) -> None:
    servers, name = bundled_broker.bootstrap_servers, f"export-{kind.name.lower()}"
    with connected(servers) as network:
        store = TwoVersions(network, kind, name)
    assert store.versions == {1, 2}
    assert store.expected
    application = ("--application", store.program, "-a", name, "-b", servers)
    done = command("state", "export", store.spec.name, *application, "--parquet", tmp_path)
    assert done.code == 0, done.err
    (file,) = tmp_path.glob("*.parquet")
    assert store.has(pq.read_table(file).column("value").to_pylist())
