"""The pictures in the documentation: each of them is shown, small, and can be taken anew."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from tests.interop.test_other_clients import require
from tests.streamsrt.cli.console.test_console import VIEWS
from tests.tools.screenshots import FOLDER, HEIGHT_MAX, PICTURES, main

PAGE = FOLDER.parent / "running.md"
LARGEST_BYTES = 150_000
NAMES = sorted(picture.name for picture in PICTURES)


def test_every_view_has_a_picture_and_every_picture_a_place() -> None:
    assert {*VIEWS, "applications", "dead-letters"} <= set(NAMES)
    assert sorted(re.findall(r"!\[[^\]]+\]\(console/([\w-]+)\.png\)", PAGE.read_text(encoding="utf-8"))) == NAMES
    assert sorted(path.stem for path in FOLDER.iterdir()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_small(name: str) -> None:
    check(FOLDER / f"{name}.png")


def check(path: Path) -> None:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(data) < LARGEST_BYTES
    _, height = struct.unpack(">II", data[16:24])
    assert 150 < height <= HEIGHT_MAX


@pytest.mark.full
@pytest.mark.long
@pytest.mark.system
def test_pictures_are_taken(tmp_path: Path) -> None:
    require("chromium", "chromium")
    main(tmp_path)
    for name in NAMES:
        check(tmp_path / f"{name}.png")
