"""Which cases of the oracle are run: those of ``tests/golden/oracle``, or of the directory given with ``--oracle-dir``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.oracle.programs import GOLDEN, case_name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--oracle-dir", default=None, help="directory of families of cases to replay instead of the golden ones"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "oracle_case" not in metafunc.fixturenames:
        return
    directory = metafunc.config.getoption("oracle_dir", default=None)
    paths = sorted(Path(directory or GOLDEN).glob("*/*.json"))
    found = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    replayed = [case for case in found if case.get("input")]
    metafunc.parametrize("oracle_case", replayed, ids=[case_name(case) for case in replayed])
