"""Which commands begin a bundled broker, and which say that there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsrt.cli.session import bootstrap, cluster
from streamsrt.errors import ConfigError
from tests.streamsrt.cli.conftest import Command

pytestmark = pytest.mark.waits

ABOUT_WHAT_RUNS = [
    ("upgrade", "status", "--group", "shop", "--once"),
    ("upgrade", "abort", "tests.streamsrt.cli.stopped_app:topology", "--group", "shop"),
    ("upgrade", "plan", "tests.streamsrt.cli.stopped_app:topology", "--group", "shop"),
    ("topology", "diff", "tests.streamsrt.cli.stopped_app:topology", "--group", "shop"),
    ("groups", "list"),
    ("groups", "describe", "shop"),
    ("groups", "delete", "shop", "--execute"),
    ("groups", "forget-topology", "shop"),
    ("groups", "reset-offsets", "shop", "--to-earliest"),
    ("groups", "remove-members", "shop", "--all"),
    ("top", "--once"),
    ("console", "--http", "127.0.0.1:0"),
    ("dlq", "list", "letters"),
    ("dlq", "show", "letters", "0:0"),
    ("dlq", "replay", "letters"),
    ("dlq", "drop", "letters"),
]


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which no broker has run; the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STREAMSRT_BOOTSTRAP_SERVERS", raising=False)
    return tmp_path


@pytest.mark.parametrize("arguments", ABOUT_WHAT_RUNS, ids=lambda each: "-".join(each[:2]))
def test_a_command_about_a_running_application_begins_no_broker(
    command: Command, empty: Path, arguments: tuple[str, ...]
) -> None:
    done = command(*arguments)
    assert (done.code, done.out) == (2, "")
    assert f"no bundled broker in {empty}: give --bootstrap-servers (-b) HOST:PORT" in done.err
    assert list(empty.iterdir()) == []


def test_a_broker_that_has_data_is_started_again(empty: Path) -> None:
    with bootstrap(None, begins=True) as address:
        assert address
    with cluster(None) as network:
        assert network.admin.cluster().cluster_id
    assert (empty / ".streamsrt" / "broker").is_dir()


def test_a_named_cluster_is_taken_as_it_is(empty: Path) -> None:
    with bootstrap("elsewhere:9092") as address:
        assert address == "elsewhere:9092"
    with pytest.raises(ConfigError, match="no bundled broker"), bootstrap(None):
        pass
