"""``streamsrt state export`` reads the rows of every kind of store as the program has them, whichever version wrote them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streamsrt.backfill.sources import connected
from streamsrt.client.values import NewTopic
from streamsrt.wire.records import encode_batch
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


def test_an_integer_of_more_than_64_bits_is_exported_as_text_and_refused_as_a_number(
    command: Command, bundled_broker: BundledBroker, tmp_path: Path
) -> None:
    servers, name = bundled_broker.bootstrap_servers, "export-large"
    value = b'{"account":{"wei":18446744073709551616}}'
    with connected(servers) as network:
        network.admin.create_topics([NewTopic(name=f"{name}-events-changelog", partitions=1)])
        network.producer.send(f"{name}-events-changelog", 0, encode_batch([b"a"], [value], [1]), 1)
        network.producer.flush()
    application = ("--application", "tests.streamsrt.cli.large_integers_app:topology", "-a", name, "-b", servers)
    export = ("state", "export", "events", *application, "--parquet", tmp_path)
    done = command(*export)
    assert done.code == 0, done.err
    (file,) = tmp_path.glob("*.parquet")
    assert pq.read_table(file).column("value").to_pylist() == [value.decode()]
    refused = command(*export, "--typed")
    assert refused.code == 5
    assert "does not fit into column value.account.wei: the integer 18446744073709551616" in refused.err
    assert "Leave out the types" in refused.err
    assert "not what its serde reads" not in refused.err
    skipped = command(*export, "--typed", "--skip-unreadable")
    assert (skipped.code, ", or that do not fit into their columns: key 0x61" in skipped.err) == (10, True)
