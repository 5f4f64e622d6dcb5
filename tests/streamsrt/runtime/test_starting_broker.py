"""The bundled broker, while another process is starting it."""

from __future__ import annotations

import fcntl
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from streamsrt.errors import BrokerError
from streamsrt.runtime.bundled_broker import ADDRESS_FILE, DATA_FOLDER, BundledBroker, find_starting_broker


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[BinaryIO]:
    """The lock of process 123, which has begun to start a broker."""
    (tmp_path / DATA_FOLDER).mkdir()
    path = tmp_path / DATA_FOLDER / ".lock"
    path.write_text("123\n", encoding="ascii")
    with path.open("rb") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield opened


def test_it_is_found_when_it_answers(tmp_path: Path, lock: BinaryIO) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / ADDRESS_FILE).write_text(address, encoding="utf-8")
        assert find_starting_broker(tmp_path, 60) == address


def test_nobody_waits_for_a_broker_that_has_ended(tmp_path: Path, lock: BinaryIO) -> None:
    lock.close()
    assert find_starting_broker(tmp_path, 60) is None
    assert find_starting_broker(tmp_path / "nowhere", 60) is None


def test_one_that_does_not_answer_in_time_is_named(tmp_path: Path, lock: BinaryIO) -> None:
    broker = BundledBroker(tmp_path, patience_s=0)
    with pytest.raises(BrokerError) as refused:
        broker.find_or_start()
    said = str(refused.value)
    assert said.startswith(f"another process (id 123) uses the data of the bundled broker in {tmp_path / DATA_FOLDER},")
    assert said.endswith(
        "If that broker is still starting, try again later. If it runs, give its address with -b HOST:PORT"
    )
    assert not broker.was_started_here
