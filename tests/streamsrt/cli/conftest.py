"""Running commands in this process, against the bundled broker."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from streamsrt.cli.entry import run_command_line
from tests.fixtures_brokers import BundledBroker

_NUMBERS = itertools.count()


class Done(NamedTuple):
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Command = Callable[..., Done]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs one command."""

    def run(*arguments: object, stdin: str | bytes = b"") -> Done:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run_command_line([str(argument) for argument in arguments])
        said = capsys.readouterr()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 0, said.out, said.err)

    return run


@pytest.fixture
def on_broker(command: Command, bundled_broker: BundledBroker) -> Command:
    """Runs one command with the broker's address."""

    def run(*arguments: object, stdin: str | bytes = b"") -> Done:
        return command(*arguments, "-b", bundled_broker.bootstrap_servers, stdin=stdin)

    return run


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"cli-{next(_NUMBERS)}"
