"""Members over a cluster in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.streamsrt.rig import MakeRig, Rig


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
