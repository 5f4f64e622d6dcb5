from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("typed_program.py")


def check(path: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(cache),
        "--follow-imports=silent",
        str(path),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_programs_are_checked_by_mypy_in_strict_mode(tmp_path: Path) -> None:
    done = check(PROGRAM, tmp_path / "cache")
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong_program.py"
    text = PROGRAM.read_text()
    wrong.write_text(text + "orders.map_values(lambda order: order.missing)\ngrouped.count().to_stream().to(7)\n")
    done = check(wrong, tmp_path / "cache")
    assert '"Order" has no attribute "missing"' in done.stdout
    assert 'Argument 1 to "to"' in done.stdout


def test_the_typed_program_is_a_topology() -> None:
    done = subprocess.run([sys.executable, str(PROGRAM)], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0
