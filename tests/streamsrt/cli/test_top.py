"""``streamsrt top``: what is shown of an application that runs, and of one that runs no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from streamsrt.app import KafkaStreams
from streamsrt.cli.top import GroupRow, Overview, next_rows, table
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.cli.conftest import Command, Done
from tests.system.processes import wait_until
from topology import StreamsBuilder, serdes


def application(address: str, name: str, topic: str, folder: Path) -> KafkaStreams:
    builder = StreamsBuilder()
    builder.stream(topic, key=serdes.string, value=serdes.string).group_by_key().count(store="counts")
    config = {"application.id": name, "bootstrap.servers": address, "state.dir": folder, "commit.interval.ms": 100}
    return KafkaStreams(builder.build(), config)


def test_an_application_is_shown_while_it_runs_and_after(
    on_broker: Command, bundled_broker: BundledBroker, topic: str, tmp_path: Path
) -> None:
    name = f"top-{topic}"
    assert on_broker("topics", "create", topic, "--partitions", 2).code == 0
    assert on_broker("produce", topic, "--key-separator", "=", stdin="a=1\nb=2\nc=3\n").code == 0

    def looked(*words: object) -> Done:
        done = on_broker("top", *words, "--once", "--json")
        assert done.code == 0, done.err
        return done

    with application(bundled_broker.bootstrap_servers, name, topic, tmp_path) as streams:
        wait_until(lambda: streams.progress.processed_records == 3, "the records are processed")
        wait_until(lambda: looked(name).rows[0]["lag"] == 0, "they are committed", pause_s=0.2)
        (row,) = looked(name).rows
        assert (row["protocol"], row["topology_epoch"], row["members"]) == ("streams", 0, {"0": 1})
        assert row["tasks"] == {"active": 2, "standby": 0, "warmup": 0}
        assert row["records_per_second"] is None
        assert name in {each["group"] for each in looked().rows}, "without a name: all of them"
        shown = on_broker("top", name, "--once")
        assert f"{name} Stable 0 1@0 2/0/0 0 - 0 -" in " ".join(shown.out.split())
    (row,) = looked(name).rows
    assert (row["members"], row["tasks"]["active"]) == ({}, 0)


def test_a_group_that_is_not_there_is_a_mistake(on_broker: Command) -> None:
    done = on_broker("top", "nobody", "--once")
    assert done.code == 2
    assert "no such group: nobody" in done.err


def test_a_cluster_that_is_away_for_a_while_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker = BundledBroker(tmp_path)
    broker.start()
    network = NetworkThread(ClientConfig(bootstrap_servers=broker.bootstrap_servers))
    network.start()
    overview = Overview(network, ())
    assert next_rows(overview) == []
    assert capsys.readouterr().err == ""
    network.stop()
    broker.stop()
    assert next_rows(overview) == []
    assert "Trying again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rate", "eta_s", "expected"),
    [(None, None, "shop Stable 1 2@1 1@0 4/1/1 1,200 - 5,000 -"),
     (1499.6, 12.2, "shop Stable 1 2@1 1@0 4/1/1 1,200 1,500 5,000 12 s")],
)  # fmt: skip
def test_a_line_of_the_table(rate: float | None, eta_s: float | None, expected: str) -> None:
    tasks = {"active": 4, "standby": 1, "warmup": 1}
    row = GroupRow("shop", "streams", "Stable", 1, {"0": 1, "1": 2}, tasks, 1200, rate, 5000, eta_s)  # type: ignore[arg-type]
    console = Console(width=80)
    with console.capture() as captured:
        console.print(table([row], "the cluster can't be reached"))
    lines = captured.get().splitlines()
    assert " ".join(lines[1].split()) == expected
    assert lines[2].strip() == "the cluster can't be reached"
