"""What fails beside others may pass alone; what fails again, and many failures, fail the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rerun_failures import MOST, run

pytestmark = pytest.mark.system

ONCE = """
from pathlib import Path
def test_first():
    seen = Path(__file__).with_name("seen-{name}")
    was_there = seen.exists()
    seen.touch()
    assert was_there
"""
ALWAYS = "def test_it():\n    assert 1 == 2\n"
NEVER = "def test_it():\n    assert 1 == 1\n"


def in_folder(folder: Path, **modules: str) -> int:
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in modules.items():
        (folder / f"test_{name}.py").write_text(text.replace("{name}", name))
    return run(folder, ["-q", "-p", "no:randomly"], beside=())


@pytest.mark.parametrize(
    ("modules", "code"),
    [
        ({"never": NEVER}, 0),
        ({"never": NEVER, "once": ONCE}, 0),
        ({"once": ONCE, "always": ALWAYS}, 1),
        ({f"once_{number}": ONCE for number in range(MOST)}, 0),
        ({f"once_{number}": ONCE for number in range(MOST + 1)}, 1),
        ({"broken": "import nothing_of_that_name\n"}, 2),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_run_passes_if_its_few_failures_pass_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: dict[str, str], code: int
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    assert in_folder(tmp_path, **modules) == code


def test_what_passed_alone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    in_folder(tmp_path, never=NEVER, once=ONCE)
    last = capfd.readouterr().out.splitlines()[-1]
    assert last == "Failed beside other tests, passed alone; to be mended: test_once.py::test_first"
