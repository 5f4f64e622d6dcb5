"""``streamsrt demo``: right tables from the data of the package, in an empty folder, and nothing left behind."""

from __future__ import annotations

import signal
import subprocess
from itertools import islice
from pathlib import Path

import pytest

from examples import flights
from streamsrt.cli.demo.command import read_airlines, read_departures
from streamsrt.runtime.bundled_broker import find_broker
from tests.streamsrt.cli.conftest import Command
from tests.system.processes import COMMAND_LINE, PATIENCE_S, environment, wait_until

DEPARTURES = 12_208


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    temporary = folder / "tmp"
    temporary.mkdir()
    return subprocess.Popen(
        [*COMMAND_LINE, "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**environment(folder), "COLUMNS": "140", "TERM": "dumb", "TMPDIR": str(temporary)},
    )


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path != folder / "tmp"]


def test_its_data_is_the_beginning_of_the_whole_data() -> None:
    assert list(read_airlines()) == list(flights.read_airlines())
    found = list(read_departures())
    assert len(found) == DEPARTURES
    assert found == list(islice(flights.read_departures(), DEPARTURES))


@pytest.mark.system
def test_it_shows_tables_and_leaves_nothing(tmp_path: Path) -> None:
    said, _ = (demo := started(tmp_path)).communicate(timeout=PATIENCE_S)
    assert demo.returncode == 0, said
    united = [row.value["delay"] for row in read_departures() if row.key == "UA" and row.value["delay"] is not None]
    rows = [" ".join(line.replace("│", " ").split()) for line in said.splitlines()]
    late = sum(delay >= 15 for delay in united) / len(united)
    assert f"United Air Lines Inc. {len(united):,} {late:.1%} {sum(united) / len(united):.1f}" in rows
    assert files(tmp_path) == []


@pytest.mark.system
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_and_its_broker(tmp_path: Path, number: signal.Signals, code: int) -> None:
    demo = started(tmp_path)

    def homes() -> list[Path]:
        return list((tmp_path / "tmp").glob("streamsrt-demo-*"))

    wait_until(lambda: any(find_broker(home) for home in homes()), "the broker runs", pause_s=0.02)
    (address,) = map(find_broker, homes())
    demo.send_signal(number)
    said, _ = demo.communicate(timeout=PATIENCE_S)
    assert (demo.returncode, "Traceback" in said) == (code, False), said
    assert "streamsrt: stopped before the application had started" in said, "the data were being loaded"
    assert files(tmp_path) == []
    # Nothing listens where the broker did.
    (tmp_path / "broker.address").write_text(str(address), encoding="utf-8")
    assert find_broker(tmp_path) is None


@pytest.mark.system
def test_a_directory_keeps_the_data_and_the_next_run_resumes(tmp_path: Path) -> None:
    said, _ = (demo := started(tmp_path, "--directory", "kept")).communicate(timeout=PATIENCE_S)
    assert demo.returncode == 0, said
    (tmp_path / "tmp").rmdir()
    said, _ = (demo := started(tmp_path, "--directory", "kept")).communicate(timeout=PATIENCE_S)
    assert demo.returncode == 0, said
    assert f"Resuming an earlier run: {DEPARTURES:,} departures are already processed." in said


def test_a_file_is_no_directory(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = command("demo", "--directory", tmp_path / "file")
    assert done.code == 2
    assert "is a file: give a directory" in done.err
