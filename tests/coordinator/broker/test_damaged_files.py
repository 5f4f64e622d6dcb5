"""Every file that the broker writes, torn, with a flipped bit, and on a disk that is full: recovered, or refused by name.

The kinds of files are those that a broker leaves which has done everything once. A file of a new kind fails the first test
until it is among the ones that are damaged here.
"""

from __future__ import annotations

import re
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coordinator.broker.topics import INTERNAL_LOGS, INTERNAL_TOPICS
from coordinator.log.compaction.rewriting import CLEANED_SUFFIX
from coordinator.log.errors import LogError, NewerLogError
from coordinator.log.segment import DELETED_SUFFIX
from streamsrt.wire import types
from streamsrt.wire.messages import encode_record_key
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import encode_batch
from tests.coordinator.broker.in_process import START_MS, InProcessBroker, batch, creation, fetching, production
from tests.coordinator.broker.test_configs import alter, describe
from tests.coordinator.broker.test_groups import commit
from tests.coordinator.broker.transactional import TransactionalProducer, fetched_offset

pytestmark = pytest.mark.waits

SMALL = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
TOPIC, BROKER, GROUP = 2, 4, 32
SET = 0
OF_A_LOG = ("log", "index", "snapshot", "checkpoint")
OF_A_DIRECTORY = (".lock", "format-version", "clean-shutdown")
LOGS = sorted({*INTERNAL_LOGS, *INTERNAL_TOPICS, "records"})
KINDS = [*OF_A_DIRECTORY, *(f"{log} {kind}" for log in LOGS for kind in OF_A_LOG)]


def kind_of(file: Path, directory: Path) -> str:
    """The log that a file belongs to and its suffix; the name of one that belongs to no log."""
    if file.parent == directory:
        return file.name
    topic = re.sub(r"-\d+$", "", file.parent.name)
    return f"{topic if topic in LOGS else 'records'} {file.suffix[1:] or file.name}"


def scram(broker: InProcessBroker, user: str) -> int:
    request = types.AlterUserScramCredentialsRequest
    added = request.ScramCredentialUpsertion(name=user, mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
    return int(broker.ask(request(upsertions=[added])).results[0].error_code)


def committed(broker: InProcessBroker, offset: int) -> int:
    return int(broker.ask(commit("g", "records", {0: offset}), 9).topics[0].partitions[0].error_code)


def written(broker: InProcessBroker, value: bytes) -> int:
    answer = broker.ask(production("records", {0: batch(value)}), 12)
    return int(answer.responses[0].partition_responses[0].error_code)


WRITES: dict[str, Callable[[InProcessBroker, int], int]] = {
    "records": lambda broker, n: written(broker, b"more %d" % n),
    "__consumer_offsets": committed,
    "__cluster_metadata": lambda broker, n: int(broker.ask(creation(f"new-{n}")).topics[0].error_code),
    "__broker": lambda broker, n: scram(broker, f"user-{n}"),
    "__group_configs": lambda broker, n: alter(
        broker, GROUP, "g", ("consumer.session.timeout.ms", SET, str(46_000 + n))
    )[0],
    "__transaction_state": lambda broker, n: TransactionalProducer(broker, f"writer-{n}").init(),
    "__producer_ids": lambda broker, n: int(broker.ask(types.InitProducerIdRequest(transactional_id=None)).error_code),
}
"""By log: a request that writes to it, with a number that makes it another one each time; its error code."""


def picture(broker: InProcessBroker) -> dict[str, Any]:
    """All that clients may rely on."""
    scrams = broker.ask(types.DescribeUserScramCredentialsRequest(users=None)).results
    return {
        "cluster": broker.broker.cluster_id,
        "topics": {topic.name: (topic.id, len(topic.partitions)) for topic in broker.broker.topics},
        "retention": describe(broker, TOPIC, "records", "retention.ms"),
        "records": broker.values("records"),
        "offset": fetched_offset(broker, "g", "records"),
        "settings": describe(broker, GROUP, "g", "consumer.session.timeout.ms"),
        "broker": describe(broker, BROKER, "1", "log.retention.ms"),
        "users": sorted(each.user for each in scrams),
        "transactions": sorted(
            (each.transactional_id, each.transaction_state)
            for each in broker.ask(types.ListTransactionsRequest()).transaction_states
        ),
    }


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The directory of a broker that has done everything and was closed, and what its clients may rely on."""
    path = tmp_path_factory.mktemp("damaged") / "data"
    broker = InProcessBroker(path, SMALL)
    broker.create("records", retention_ms="-1", segment_bytes="300")
    alter(broker, BROKER, "", ("log.retention.ms", SET, "86400000"))
    for n in range(4):
        for write in WRITES.values():
            assert write(broker, n) == 0
    producer = TransactionalProducer(broker, "x")
    producer.init()
    assert producer.send("records", 0, b"in a transaction") == 0
    assert producer.commit() == 0
    broker.restart()
    before = picture(broker)
    broker.close()
    return path, before


def test_no_kind_of_file_is_forgotten(left: tuple[Path, dict[str, Any]]) -> None:
    path, _ = left
    assert sorted({kind_of(file, path) for file in path.rglob("*") if file.is_file()}) == sorted(KINDS)
    assert sorted(WRITES) == LOGS


def torn(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def flipped(file: Path) -> None:
    """Not in the offset or the leader epoch of a batch: no checksum covers them, for a broker sets them."""
    data = bytearray(file.read_bytes())
    if data:
        at = len(data) // 2
        data[at + 16 if at + 16 < len(data) else at] ^= 4
    file.write_bytes(data)


def is_recovered(path: Path, expected: dict[str, Any], caplog: pytest.LogCaptureFixture, *names: Path) -> bool:
    """Whether a start finds everything; False if it is refused by the name of a file or directory."""
    refusal = ""
    try:
        broker = InProcessBroker(path, SMALL)
    except (LogError, OSError) as error:
        refusal = str(error)
    if refusal:
        assert any(str(name) in refusal for name in names), refusal
        return False
    answer = broker.ask(fetching("records", {0: 0}), 12).responses[0].partitions[0]
    if answer.error_code:
        broker.close()
        assert answer.error_code == 56
        assert str(names[0]) in caplog.text
        return False
    try:
        found = picture(broker)
    except DecodeError as error:
        refusal = str(error)
    broker.close()
    if refusal:
        assert "batch at offset" in refusal
        return False
    assert found == expected
    return True


@pytest.mark.parametrize("damage", [torn, flipped])
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file(
    left: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    damage: Callable[[Path], None],
) -> None:
    for ends in ("closed", "killed"):
        path = tmp_path / ends
        shutil.copytree(left[0], path)
        of_this_kind = [each for each in path.rglob("*") if each.is_file() and kind_of(each, path) == kind]
        file = max(of_this_kind, key=lambda each: each.stat().st_size)
        damage(file)
        if ends == "killed":
            (path / "clean-shutdown").unlink()
        is_needed = kind.endswith(" log") or kind == "format-version"
        assert is_recovered(path, left[1], caplog, file, file.parent) is not is_needed


@pytest.mark.parametrize("suffix", [".new", DELETED_SUFFIX, CLEANED_SUFFIX])
def test_what_a_killed_broker_had_begun_is_removed(
    left: tuple[Path, dict[str, Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    path = tmp_path / "data"
    shutil.copytree(left[0], path)
    (path / "clean-shutdown").unlink()
    for log in LOGS:
        (path / f"{log}-0" / f"00000000000000000000{suffix}").write_bytes(b"half of somethi")
    assert is_recovered(path, left[1], caplog, path)
    assert [each for each in path.glob(f"*-0/*{suffix}") if each.read_bytes() == b"half of somethi"] == []


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process may be written to: any write fails as on a full disk, whatever the file."""
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_while_it_runs(left: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Each log refuses what is to be written, keeps what it has, and goes on when there is space again."""
    path = tmp_path / "data"
    shutil.copytree(left[0], path)
    broker = InProcessBroker(path, SMALL)
    broker.ask(types.InitProducerIdRequest(transactional_id=None))
    with full_disk():
        for log, write in WRITES.items():
            # A block of producer ids is one record: the next request may need none.
            assert write(broker, 50) != 0 or log == "__producer_ids", log
        assert picture(broker) == left[1]
    for write in WRITES.values():
        assert write(broker, 60) == 0
    expected = picture(broker)
    broker.restart()
    assert picture(broker) == expected
    broker.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_full_disk_at_stop_and_start(left: tuple[Path, dict[str, Any]], tmp_path: Path, is_clean: bool) -> None:
    path = tmp_path / "data"
    shutil.copytree(left[0], path)
    if not is_clean:
        (path / "clean-shutdown").unlink()
    broker = InProcessBroker(path, SMALL)
    assert written(broker, b"last") == 0
    expected = picture(broker)
    with full_disk():
        broker.close()
    with full_disk(), pytest.raises((LogError, OSError)) as refused:
        InProcessBroker(path, SMALL)
    assert str(path) in str(refused.value)
    broker = InProcessBroker(path, SMALL)
    assert picture(broker) == expected
    broker.close()


def test_a_full_disk_at_the_very_first_start(tmp_path: Path) -> None:
    with full_disk(), pytest.raises((LogError, OSError), match=str(tmp_path / "data")):
        InProcessBroker(tmp_path / "data", SMALL)
    broker = InProcessBroker(tmp_path / "data", SMALL)
    broker.create("t")
    broker.close()


def test_a_stop_that_can_not_leave_its_marker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = InProcessBroker(tmp_path / "data", SMALL)
    broker.create("t")
    (tmp_path / "data" / "clean-shutdown.new").mkdir()
    broker.close()
    assert "can't be marked as closed" in caplog.text
    (tmp_path / "data" / "clean-shutdown.new").rmdir()
    broker = InProcessBroker(tmp_path / "data", SMALL)
    assert broker.values("t") == []
    broker.close()


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
@pytest.mark.parametrize("is_known", [True, False], ids=["another version", "another type"])
def test_records_of_a_newer_broker_are_no_damage(tmp_path: Path, topic: str, is_known: bool) -> None:
    """They are whole: whoever truncated the log, as for damage, would lose them."""
    broker = InProcessBroker(tmp_path, SMALL)
    registered = broker.broker.topics.get(topic) or broker.broker.topics.create(topic, 1, {})
    name = (
        types.TransactionLogKey(transactional_id="t") if "transaction" in topic else types.GroupMetadataKey(group="g")
    )
    key = encode_record_key(name) if is_known else b"\x7f\x00key"
    registered.partitions[0].append(encode_batch([key], [b"\0\x63value"], [START_MS]), now_ms=START_MS)
    with pytest.raises(NewerLogError, match=f"{topic}-0 holds records that can't be read: .*start that version"):
        broker.restart()
