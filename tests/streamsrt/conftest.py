"""Members over a cluster in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.streamsrt.rig import MakeRig, Rig
from tests.tools.native import loaded, missing_tools


@pytest.fixture(scope="session")
def load_native(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], object]:
    """Loads a module in C, whether or not the tests run with it. Where there is no compiler, the test is skipped."""
    reason = missing_tools()
    if reason is not None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("native")
    return lambda name: loaded(name, folder)


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[MakeRig]:
    """Makes members; their state directories are ``state-0``, ``state-1`` and so on, or the ``folder`` that is given."""
    made: list[Rig] = []

    def make(folder: str | None = None, **settings: Any) -> Rig:
        rig = Rig(tmp_path / (folder or f"state-{len(made)}"), **settings)
        made.append(rig)
        return rig

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    return make_rig()
