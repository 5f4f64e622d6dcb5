"""What ``streamsrt run`` says now and then of what it does."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from streamsrt.cli.run import _refuse_two_values, _show, open_door
from streamsrt.errors import ConfigError
from streamsrt.runtime.task_table import task_table
from streamsrt.runtime.values import Progress, RestoreProgress, State, TaskProgress
from tests.system.processes import run_command

pytestmark = pytest.mark.waits


def restoring(eta_s: float | None) -> Progress:
    store = RestoreProgress("counts", 300, 9_000, 700, 300, 100.0, eta_s)
    return Progress(tasks=(TaskProgress("0_1", "active", "restoring", 0, 0, {}, (store,)),), restored_records=5)


def test_what_is_left_to_restore_and_how_long_that_takes(capsys: pytest.CaptureFixture[str]) -> None:
    _show(restoring(7.2), State.REBALANCING, as_json=False)
    assert "5 restored, 700 to restore, about 7 s left" in capsys.readouterr().err
    _show(restoring(None), State.REBALANCING, as_json=False)
    assert "s left" not in capsys.readouterr().err, "its speed is not known yet"


def test_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    _show(restoring(7.2), State.REBALANCING, as_json=True)
    told = orjson.loads(capsys.readouterr().out)
    assert (told["restoring_records"], told["restore_eta_s"]) == (700, 7.2)


@pytest.mark.parametrize(
    ("calls", "told"), [((0, 0), ""), ((1, 0), "1 asynchronous call pending"), ((200, 56), "256 ")]
)
def test_how_many_calls_are_pending_beside_the_processed_records(
    capsys: pytest.CaptureFixture[str], calls: tuple[int, int], told: str
) -> None:
    tasks = (TaskProgress(f"0_{at}", "active", "running", 0, 0, {}, (), count) for at, count in enumerate(calls))
    progress = Progress(tasks=tuple(tasks), processed_records=12_000)
    _show(progress, State.RUNNING, as_json=False)
    line = capsys.readouterr().err
    assert f"12,000 records processed, {told}" in line
    assert ("pending" in line) == bool(told)
    assert task_table(State.RUNNING, progress).title.startswith(f"RUNNING: 12,000 records processed, {told}")
    _show(progress, State.RUNNING, as_json=True)
    assert orjson.loads(capsys.readouterr().out)["pending_calls"] == sum(calls)


@pytest.mark.parametrize("arguments", [("-b", "not-a-host"), ("-b", "127.0.0.1:1", "--state-dir", "/proc/nope")])
def test_what_is_refused_at_the_start_is_the_only_line(arguments: tuple[str, ...]) -> None:
    done = run_command("run", "tests.streamsrt.cli.stopped_app:topology", "-a", "refused", *arguments)
    assert done.returncode in (2, 4)
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_neither_of_two_options_wins_silently() -> None:
    given = ("-b", "127.0.0.1:1", "--config", "bootstrap.servers=127.0.0.1:2")
    done = run_command("run", "tests.streamsrt.cli.stopped_app:topology", "-a", "refused", *given)
    assert (done.returncode, done.stderr.splitlines()) == (
        2,
        [
            "streamsrt: bootstrap.servers is given twice: --bootstrap-servers (-b, or STREAMSRT_BOOTSTRAP_SERVERS) says "
            "127.0.0.1:1, and --config says 127.0.0.1:2. Leave one of them out"
        ],
    )


@pytest.mark.parametrize(
    ("name", "key", "value", "other"),
    [
        ("state.dir", "state.dir", Path("here"), "there"),
        ("application.id", "application_id", "shop", "store"),
        ("num.stream.threads", "num.stream.threads", 2, "3"),
        ("upgrade.lose.in.flight", "upgrade.lose.in.flight", True, "false"),
    ],
)
def test_two_options_may_say_the_same(name: str, key: str, value: object, other: str) -> None:
    _refuse_two_values({key: str(value)}, {name: value})
    _refuse_two_values({key: other}, {name: None})
    with pytest.raises(ConfigError, match=f"^{name} is given twice: --"):
        _refuse_two_values({key: other}, {name: value})


def test_an_address_for_http_that_others_reach_is_warned_of() -> None:
    listen = ("--http", "192.0.2.1:8080", "-b", "127.0.0.1:1", "--state-dir", "/proc/nope")
    done = run_command("run", "tests.streamsrt.cli.stopped_app:topology", "-a", "refused", *listen)
    assert "http.listen=192.0.2.1:8080: everyone who can reach this address can read all state" in done.stderr


def test_a_setting_without_effect_is_warned_of_once() -> None:
    given = ("--config", "group.protocol=streams", "--config", "session.timeout.ms=9000")
    unreachable = ("-b", "127.0.0.1:1", "--state-dir", "/proc/nope")
    done = run_command("run", "tests.streamsrt.cli.stopped_app:topology", "-a", "refused", *given, *unreachable)
    assert done.stderr.count("session.timeout.ms has no effect") == 1, done.stderr


def test_which_addresses_others_reach() -> None:
    assert not any(map(open_door, ("", "127.0.0.1:80", "127.9.9.9:0", "[::1]:80", "localhost:80")))
    assert all(map(open_door, ("0.0.0.0:80", "[::]:80", ":80", "10.0.0.1:80", "shop.example:80")))
