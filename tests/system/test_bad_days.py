"""What may go wrong around an application: a message that says what and what to do, or none and the right results."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.system.cluster import Cluster, Row, last_values
from tests.system.processes import AppProcess, Joining, run_command, wait_until

WORDS = """
import resource
import sys

from topology import StreamsBuilder, serdes

if {limit}:
    # What a disk with no space left says: a file can't grow any more.
    resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))

builder = StreamsBuilder()
words = builder.stream("words", key=serdes.string, value=serdes.string)
words.group_by(lambda _, word: word, key=serdes.string, value=serdes.string).count(store="counts")
topology = builder.build()
"""
LOUD = """
from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
words = builder.stream("words", key=serdes.string, value=serdes.string)
words.map_values(str.upper).to("loud", key=serdes.string, value=serdes.string)
topology = builder.build()
"""
QUICK = {"commit.interval.ms": 100, "metadata.max.age.ms": 300}


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "loud_app.py").write_text(LOUD, encoding="utf-8")
    (folder / "words_app.py").write_text(WORDS.format(limit=0), encoding="utf-8")
    (folder / "full_app.py").write_text(WORDS.format(limit=60_000), encoding="utf-8")
    return folder


def rows(count: int, times: int = 1) -> list[Row]:
    return [Row(b"k", b"word-%06d" % (index % count), 1_000) for index in range(count * times)]


def counts(cluster: Cluster, application_id: str) -> dict[str, int]:
    found = last_values(cluster.read(f"{application_id}-counts-changelog"))
    return {(word or b"").decode(): int.from_bytes(value or b"", "big") for word, value in found.items()}


def expected(*written: list[Row]) -> dict[str, int]:
    return dict(Counter((row.value or b"").decode() for some in written for row in some))


# --------------------------------------------------------------------------------------------------------- the disk


def test_the_disk_is_full(bundled: Cluster, tmp_path: Path, modules: Path, application_id: str) -> None:
    bundled.make_topics(1, "words")
    written = rows(5_000)
    bundled.write("words", written, 1)
    app = AppProcess(tmp_path / "app", "full_app", application_id, bundled.address, QUICK, until="quiet", cwd=modules)
    with app:
        assert app.wait_end() == 4
        assert "the disk is full. Free space there, or move state.dir to a larger disk, and restart" in app.last_words
        assert str(app.state_dir) in app.last_words
    # With space it goes on where it was.
    with AppProcess(
        tmp_path / "app", "words_app", application_id, bundled.address, QUICK, until="quiet", cwd=modules
    ) as again:
        assert again.wait_end() == 0
    assert counts(bundled, application_id) == expected(written)


def test_the_state_directory_can_not_be_written(bundled: Cluster, modules: Path, application_id: str) -> None:
    bundled.make_topics(1, "words")
    # Nobody makes directories there, not even root.
    where = ("--state-dir", "/sys/kernel/streamsrt")
    done = run_command("run", "words_app", "-a", application_id, "-b", bundled.address, *where, cwd=modules)
    assert done.returncode == 4
    assert "/sys/kernel/streamsrt" in done.stderr
    assert "this user may not write there. Make it writable, or point state.dir elsewhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_state_file_is_damaged(bundled: Cluster, tmp_path: Path, modules: Path, application_id: str) -> None:
    bundled.make_topics(1, "words")
    written = rows(3_000)
    bundled.write("words", written, 1)
    with AppProcess(
        tmp_path / "app", "words_app", application_id, bundled.address, QUICK, until="quiet", cwd=modules
    ) as app:
        assert app.wait_end() == 0
        (file,) = (app.state_dir / application_id / "stores" / "counts" / "0").glob("*.sst")
        data = bytearray(file.read_bytes())
        for at in range(100, len(data) // 2, 512):
            data[at] ^= 0xFF
        file.write_bytes(data)
        bundled.write("words", written, 1)
        app.start()
        assert app.wait_end() == 0
        assert "its store counts is wiped and restored" in app.stderr
        assert "its files are damaged" in app.stderr
        assert "Traceback" not in app.stderr
    assert counts(bundled, application_id) == expected(written, written)


# -------------------------------------------------------------------------------------------------------- the topics


def test_a_changelog_has_another_number_of_partitions(
    cluster: Cluster, tmp_path: Path, modules: Path, application_id: str
) -> None:
    cluster.make_topics(2, "words")
    changelog = f"{application_id}-counts-changelog"
    cluster.make_topics(3, changelog)
    with AppProcess(tmp_path / "app", "words_app", application_id, cluster.address, QUICK, cwd=modules) as app:
        assert app.wait_end() == 2
        assert changelog in app.last_words
        assert re.search(r"expected 2, found 3", app.last_words)
        assert "need the same number of partitions: recreate them" in app.last_words
        assert "Traceback" not in app.stderr


def grow(cluster: Cluster, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.address})
    for done in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        done.result(300)


def test_a_source_topic_grows_while_it_is_read(
    cluster: Cluster, tmp_path: Path, modules: Path, application_id: str
) -> None:
    cluster.make_topics(1, "words", "loud")
    cluster.write("words", rows(3), 1)
    with AppProcess(tmp_path / "app", "loud_app", application_id, cluster.address, QUICK, cwd=modules) as app:
        cluster.wait_all_committed(application_id, "words")
        grow(cluster, "words", 2)
        cluster.write("words", rows(5), 2, partition=1)
        app.wait_running(tasks=2)
        wait_until(lambda: len(cluster.ends("words")) == 2, "every broker knows of the new partition")
        cluster.wait_all_committed(application_id, "words")
        assert app.terminate() == 0
    assert Counter(record.value for record in cluster.read("loud")) == Counter(
        (row.value or b"").upper() for row in rows(3) + rows(5)
    )


def test_a_source_topic_of_state_grows(cluster: Cluster, tmp_path: Path, modules: Path, application_id: str) -> None:
    """The state of a key would be in another partition than its records: that is nothing to go on with."""
    cluster.make_topics(1, "words")
    cluster.write("words", rows(3), 1)
    with AppProcess(tmp_path / "app", "words_app", application_id, cluster.address, QUICK, cwd=modules) as app:
        app.wait_running()
        cluster.wait_all_committed(application_id, "words", f"{application_id}-counts-repartition")
        grow(cluster, "words", 2)
        assert app.wait_end() == 2
        assert re.search(r"expected 2, found 1", app.last_words)
        assert "need the same number of partitions: recreate them" in app.last_words


@pytest.mark.slow
def test_a_source_topic_is_deleted_while_it_is_read(
    cluster: Cluster, tmp_path: Path, modules: Path, application_id: str
) -> None:
    cluster.make_topics(1, "words", "loud")
    cluster.write("words", rows(3), 1)
    with AppProcess(tmp_path / "app", "loud_app", application_id, cluster.address, QUICK, cwd=modules) as app:
        cluster.wait_all_committed(application_id, "words")
        cluster.delete_topics("words")
        assert app.wait_end() == 2
        assert "words" in app.last_words
        assert "can't run without its source topics" in app.last_words
        assert "Traceback" not in app.stderr


@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_a_first_version_without_its_source_topics_may_be_corrected(
    cluster: Cluster, tmp_path: Path, modules: Path, application_id: str, protocol: str
) -> None:
    (modules / "other_app.py").write_text(
        WORDS.format(limit=0).replace('stream("words"', 'stream(["words", "absent"]'), encoding="utf-8"
    )
    cluster.make_topics(1, "words")
    cluster.write("words", rows(3), 1)
    configs = {**QUICK, "group.protocol": protocol}
    with AppProcess(tmp_path / "app", "other_app", application_id, cluster.address, configs, cwd=modules) as app:
        assert app.wait_end() == 2
        assert "Source topics absent are missing" in app.last_words
    with AppProcess(tmp_path / "app", "words_app", application_id, cluster.address, configs, cwd=modules) as app:
        cluster.wait_all_committed(application_id, "words")
        cluster.wait_all_committed(application_id, f"{application_id}-counts-repartition")
        assert app.terminate() == 0
    assert counts(cluster, application_id) == expected(rows(3))


def test_an_internal_topic_is_deleted_while_it_is_used(
    cluster: Cluster, tmp_path: Path, modules: Path, application_id: str
) -> None:
    """The coordinator or leader makes it again; what was in it and not processed is lost, all else goes on. In a classic
    group nobody has to be told: the leader makes it as soon as it is missed."""
    cluster.make_topics(1, "words")
    first, second = rows(3), rows(7)
    cluster.write("words", first, 1)
    repartition = f"{application_id}-counts-repartition"
    with AppProcess(tmp_path / "app", "words_app", application_id, cluster.address, QUICK, cwd=modules) as app:
        app.wait_running()
        cluster.wait_all_committed(application_id, "words", repartition)
        cluster.delete_topics(repartition)
        if Joining.protocol == "classic":
            wait_until(lambda: bool(cluster.network.admin.topics([repartition])), "it is there again")
        else:
            wait_until(lambda: app.stderr.count("MISSING_INTERNAL_TOPICS") >= 2, "the application is told")
            assert f"Internal topics are missing: {repartition}" in app.stderr
        cluster.write("words", second, 1)
        wait_until(lambda: counts(cluster, application_id) == expected(first, second), "nothing is missing")
        assert app.terminate() == 0
        assert "Traceback" not in app.stderr


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_input_that_comes_while_an_internal_topic_is_deleted_is_not_lost(
    bundled: Cluster, tmp_path: Path, modules: Path, application_id: str, protocol: str
) -> None:
    """Who reads the topic was further in the old one than where the new one's records begin."""
    bundled.make_topics(1, "words")
    first, second = rows(3), rows(7)
    bundled.write("words", first, 1)
    repartition = f"{application_id}-counts-repartition"
    configs = {**QUICK, "group.protocol": protocol}
    with AppProcess(tmp_path / "app", "words_app", application_id, bundled.address, configs, cwd=modules) as app:
        app.wait_running()
        bundled.wait_all_committed(application_id, "words", repartition)
        bundled.delete_topics(repartition)
        bundled.write("words", second, 1)
        wait_until(lambda: counts(bundled, application_id) == expected(first, second), "nothing is missing")
        assert app.terminate() == 0
        assert "Traceback" not in app.stderr
