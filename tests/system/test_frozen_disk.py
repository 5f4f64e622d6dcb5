"""A directory that is frozen: the kernel's own calls wait, others go on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system import frozen_disk

PROGRAM = """
import os
import pathlib
import sys

disk, other = map(pathlib.Path, sys.argv[1:])
file = os.open(disk / "open", os.O_RDWR | os.O_CREAT)
print("ready", flush=True)
sys.stdin.readline()
other.write_text("not frozen")
print("others go on", flush=True)
{call}
print("done", flush=True)
"""
CALLS = (
    "os.write(file, b'x')",
    "os.pwrite(file, b'x', 0)",
    "os.pread(file, 1, 0)",
    "os.fsync(file)",
    "os.mkdir(disk / 'new')",
    "os.rename(disk / 'open', disk / 'renamed')",
    "os.unlink(disk / 'open')",
    "(disk / 'new').touch()",
)


@pytest.mark.skipif(frozen_disk.COMPILER is None, reason="a C compiler is not installed")
@pytest.mark.parametrize("call", CALLS)
def test_what_reaches_a_frozen_directory_waits(tmp_path: Path, call: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [sys.executable, "-c", PROGRAM.format(call=call), str(disk), str(tmp_path / "other")]
    environment = {**os.environ, **frozen_disk.surroundings(tmp_path, disk)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with frozen_disk.frozen(disk):
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline() == "others go on\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
        assert process.stdout.readline() == "done\n"
        assert process.wait(300) == 0
