"""What the registry keeps over restarts, and over deaths in the middle of a change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coordinator.broker.keyed_log import KeyedLog
from coordinator.broker.topics import METADATA_TOPIC
from coordinator.log import Fsync, LogDirectory, LogFullError
from streamsrt.wire import types
from tests.coordinator.broker.in_process import InProcessBroker, creation


def without(broker: InProcessBroker, *names: str) -> None:
    """Takes topics out of the registry's log while the broker is down, as a death before the next step leaves it."""
    directory = LogDirectory(broker.path)
    rows = KeyedLog(directory, METADATA_TOPIC, fsync=Fsync.NEVER)
    for name in names:
        rows.put(name, None)
    directory.close()


def test_topics_records_and_ids_are_kept(broker: InProcessBroker) -> None:
    topic_id = broker.create("t", 3, retention_ms="99999999999")
    broker.produce("t", b"v", partition=2)
    broker.restart()
    assert broker.topic_id("t") == topic_id
    assert broker.values("t", 2) == [b"v"]
    topic = broker.broker.topics.get("t")
    assert topic is not None
    assert topic.configs == {"retention.ms": "99999999999"}
    assert [log.config.retention_ms for log in topic.partitions] == [99999999999] * 3


def test_a_deletion_that_was_interrupted_is_finished(broker: InProcessBroker) -> None:
    broker.create("t", 2)
    broker.produce("t", b"old", partition=1)
    broker.close()
    without(broker, "t")
    broker._open()
    assert not list(broker.path.glob("t-?"))
    broker.create("t", 2)
    assert broker.values("t", 1) == []


def test_directories_of_a_creation_that_was_interrupted_are_removed(broker: InProcessBroker) -> None:
    broker.broker.directory.partition("t", 0)
    broker.restart()
    assert not (broker.path / "t-0").exists()


def test_partitions_of_a_growth_that_was_interrupted_are_removed(broker: InProcessBroker) -> None:
    broker.create("t")
    broker.produce("t", b"v")
    broker.broker.directory.partition("t", 1)
    broker.restart()
    assert not (broker.path / "t-1").exists()
    assert broker.values("t") == [b"v"]


def test_records_of_a_topic_that_was_never_known_are_set_aside(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create("t")
    broker.produce("t", b"v")
    broker.close()
    shutil.rmtree(broker.path / f"{METADATA_TOPIC}-0")
    broker._open()
    assert (broker.path / "t-0.stray").is_dir()
    assert "t-0.stray" in caplog.text
    broker.create("t")
    assert broker.values("t") == []


def test_a_directory_that_could_not_be_deleted_is_not_taken_over(broker: InProcessBroker) -> None:
    broker.create("t")
    broker.produce("t", b"old")
    left = broker.path / "left"
    shutil.copytree(broker.path / "t-0", left)
    broker.ask(types.DeleteTopicsRequest(topics=[types.DeleteTopicsRequest.DeleteTopicState(name="t")]))
    left.rename(broker.path / "t-0")
    broker.create("t")
    assert broker.values("t") == []


class TestFailingDisk:
    """A change that can't be written did not happen: not now, and not after a restart."""

    def test_the_registry_can_not_be_written(self, broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(key: str, value: bytes | None) -> None:
            raise LogFullError(broker.path, None, "no space is left")

        broker.create("old")
        with monkeypatch.context() as patch:
            patch.setattr(broker.broker.topics._rows, "put", refuse)
            result = broker.ask(creation("t", 3)).topics[0]
            assert (result.error_code, "no space" in result.error_message) == (56, True)
            growth = types.CreatePartitionsRequest.CreatePartitionsTopic(name="old", count=4, assignments=None)
            assert broker.ask(types.CreatePartitionsRequest(topics=[growth])).results[0].error_code == 56
            deletion = types.DeleteTopicsRequest.DeleteTopicState(name="old")
            assert broker.ask(types.DeleteTopicsRequest(topics=[deletion])).responses[0].error_code == 56
        for _ in range(2):
            assert broker.broker.topics.get("t") is None
            old = broker.broker.topics.get("old")
            assert old is not None
            assert len(old.partitions) == 1
            broker.produce("old", b"v")
            assert not list(broker.path.glob("t-?"))
            broker.restart()

    def test_a_directory_can_not_be_made(self, broker: InProcessBroker, tmp_path: Path) -> None:
        (broker.path / "t-1").write_bytes(b"a file in the way")
        result = broker.ask(creation("t", 3)).topics[0]
        assert result.error_code == 0, "what is in the way of a new topic is moved out of it"
        broker.broker.directory.path = tmp_path / "gone"
        result = broker.ask(creation("u", 1)).topics[0]
        broker.broker.directory.path = broker.path
        assert result.error_code == 56
        assert broker.broker.topics.get("u") is None
