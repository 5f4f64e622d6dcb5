"""What a wheel is looked through for before it is published (``make dist``)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.tools.wheel_contents import COMMAND, DATA, PACKAGES, PYTHONS, ROOT, main, missing

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
METADATA = [
    "Metadata-Version: 2.4",
    "Name: streamsrt",
    f"Version: {VERSION}",
    "License-Expression: Apache-2.0",
    "Project-URL: Kafka Streams, https://kafka.apache.org/documentation/streams/",
    "Project-URL: Streams rebalance protocol (KIP-1071), https://cwiki.apache.org/confluence/display/KAFKA/"
    "KIP-1071%3A+Streams+Rebalance+Protocol",
    "Requires-Python: >=3.11",
    *(f"Classifier: Programming Language :: Python :: {version}" for version in PYTHONS),
]
FOLDER = "streamsrt-0.1.0.dist-info"


def files() -> dict[str, str]:
    """Those of a wheel that lacks nothing."""
    return {
        f"{FOLDER}/METADATA": "\n".join([*METADATA, "", "# streamsrt"]),
        f"{FOLDER}/licenses/LICENSE": (ROOT / "LICENSE").read_text(encoding="utf-8"),
        f"{FOLDER}/entry_points.txt": f"[console_scripts]\n{COMMAND}\n",
        **{f"{name}/py.typed": "" for name in PACKAGES},
        **dict.fromkeys(DATA, ""),
    }


def wheel(folder: Path, contents: Mapping[str, str]) -> Path:
    path = folder / "streamsrt-0.1.0-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        for name, text in contents.items():
            archive.writestr(name, text)
    return path


def test_a_wheel_that_lacks_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(wheel(tmp_path, files()))]) == 0
    assert capsys.readouterr().out == "1 wheels have all that is needed\n"
    assert main([]) == 1


@pytest.mark.parametrize("line", range(2, len(METADATA)))
def test_each_line_of_metadata_is_needed(tmp_path: Path, line: int) -> None:
    there = [*METADATA[:line], *METADATA[line + 1 :]]
    found = list(missing(wheel(tmp_path, {**files(), f"{FOLDER}/METADATA": "\n".join(there)})))
    assert found == [METADATA[line]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (f"{FOLDER}/licenses/LICENSE", "the text of LICENSE"),
        (f"{FOLDER}/entry_points.txt", f"the command {COMMAND}"),
        ("topology/py.typed", "topology/py.typed"),
        *((name, name) for name in DATA),
    ],
)
def test_each_file_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str) -> None:
    path = wheel(tmp_path, {key: value for key, value in files().items() if key != name})
    assert main([str(path)]) == 1
    assert capsys.readouterr().out == f"{path} lacks {text}\n"


def test_another_licence_is_none(tmp_path: Path) -> None:
    assert list(missing(wheel(tmp_path, {**files(), f"{FOLDER}/licenses/LICENSE": "Do as you like"}))) == [
        "the text of LICENSE"
    ]
