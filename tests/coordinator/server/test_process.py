"""The broker as a process: what it keeps over stops and kills, and what bad clients and full disks do to it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamsrt.wire import types
from streamsrt.wire.messages import encode_request
from tests.coordinator.broker.in_process import batch, creation, fetching, production, values_of
from tests.coordinator.broker.test_groups import commit, heartbeat
from tests.coordinator.server.processes import BrokerProcess, Wire, refused

pytestmark = pytest.mark.system


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as process:
        yield process


def produce(wire: Wire, topic: str, *values: bytes, partition: int = 0) -> int:
    """The error code."""
    answer = wire.ask(production(topic, {partition: batch(*values)}), 12)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def values(wire: Wire, topic: str, offset: int = 0) -> list[bytes | None]:
    """Every value of partition 0 from ``offset`` on."""
    found: list[bytes | None] = []
    while True:
        data = wire.ask(fetching(topic, {0: offset}), 12).responses[0].partitions[0]
        assert data.error_code == 0
        page = values_of(data.records, offset)
        if not page:
            return found
        found += page
        offset += len(page)


class TestProtocol:
    def test_garbage_ends_its_own_connection_only(self, broker: BrokerProcess) -> None:
        garbage = [
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),
            b"\x7f\xff\xff\xff" + bytes(100),
            b"\xff\xff\xff\xff",
            b"\x00\x00\x00\x0a" + b"\x00\x12" + b"\x00\x04" + b"\x00\x00\x00\x01" + b"\x7f\xff",
            b"\x00\x00\x00\x0e" + b"\x03\xe7" + b"\x00\x00" + b"\x00\x00\x00\x01" + bytes(6),
            encode_request(types.ShareGroupDescribeRequest(group_ids=["g"]), 1, 1, "x"),
            encode_request(types.MetadataRequest(topics=[]), 13, 1, "x").replace(b"\x00\x0d", b"\x00\x63", 1),
        ]
        with Wire(broker.port) as good:
            for data in garbage:
                with Wire(broker.port) as bad:
                    bad.socket.sendall(data)
                    assert bad.is_closed()
            assert good.ask(types.DescribeClusterRequest(endpoint_type=1)).error_code == 0
        assert broker.log.count("closed the connection from 127.0.0.1") == len(garbage)
        assert "Traceback" not in broker.log

    @pytest.mark.parametrize("version", [6, 99, -1])
    def test_an_unknown_version_of_api_versions_is_answered_with_the_list(
        self, broker: BrokerProcess, version: int
    ) -> None:
        with Wire(broker.port) as wire:
            frame = bytearray(encode_request(types.ApiVersionsRequest(), 4, 1, "x"))
            frame[6:8] = version.to_bytes(2, "big", signed=True)
            wire.socket.sendall(frame)
            answer = wire.receive((18, 0))
            assert answer.error_code == 35
            assert {each.api_key for each in answer.api_keys} >= {0, 1, 3, 18, 88}
            assert wire.ask(types.ApiVersionsRequest(), 4).error_code == 0

    def test_a_waiting_fetch_holds_up_its_own_connection_only(self, broker: BrokerProcess) -> None:
        with Wire(broker.port) as one, Wire(broker.port) as other:
            one.ask(creation("t"))
            fetch = one.send(fetching("t", {0: 0}, max_wait_ms=20_000), 12)
            cluster = one.send(types.DescribeClusterRequest(endpoint_type=1))
            assert produce(other, "t", b"v") == 0
            assert values_of(one.receive(fetch).responses[0].partitions[0].records) == [b"v"]
            assert one.receive(cluster).error_code == 0


class TestStops:
    def test_a_restart_keeps_topics_records_ids_and_groups(self, tmp_path: Path) -> None:
        with BrokerProcess(tmp_path / "data") as broker, Wire(broker.port) as wire:
            topic_id = wire.ask(creation("t", 2)).topics[0].topic_id
            assert produce(wire, "t", b"a", b"b") == 0
            wire.ask(commit("g", "t", {0: 2}), 9)
            joined = wire.ask(heartbeat("app"))
            cluster_id = wire.ask(types.DescribeClusterRequest(endpoint_type=1)).cluster_id
            assert broker.stop() == 0
        assert (tmp_path / "data" / "clean-shutdown").exists()
        with BrokerProcess(tmp_path / "data") as broker, Wire(broker.port) as wire:
            assert "not closed cleanly" not in broker.log
            topic = wire.ask(types.MetadataRequest(topics=None)).topics[-1]
            assert (topic.name, topic.topic_id, len(topic.partitions)) == ("t", topic_id, 2)
            assert values(wire, "t") == [b"a", b"b"]
            group = types.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
            answer = wire.ask(types.OffsetFetchRequest(groups=[group]), 9)
            assert answer.groups[0].topics[0].partitions[0].committed_offset == 2
            app = wire.ask(types.StreamsGroupDescribeRequest(group_ids=["app"])).groups[0]
            assert [(each.member_id, each.member_epoch) for each in app.members] == [("m", joined.member_epoch)]
            assert wire.ask(types.DescribeClusterRequest(endpoint_type=1)).cluster_id == cluster_id

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_stop_answers_what_arrived_before_it_ends(self, broker: BrokerProcess, number: signal.Signals) -> None:
        with Wire(broker.port) as waiting, Wire(broker.port) as wire:
            wire.ask(creation("t"))
            fetch = waiting.send(fetching("t", {0: 0}, max_wait_ms=600_000), 12)
            produced = [wire.send(production("t", {0: batch(b"v%d" % i)}), 12) for i in range(50)]
            assert all(wire.receive(each).responses[0].partition_responses[0].error_code == 0 for each in produced[:1])
            started = time.monotonic()
            broker.process.send_signal(number)
            assert waiting.receive(fetch).error_code == 0
            assert waiting.is_closed()
            assert broker.wait() == 0
            assert time.monotonic() - started < 9, "the fetch was not waited for"

    def test_a_stop_answers_who_waits_in_a_rebalance(self, tmp_path: Path) -> None:
        """It is told to look for the coordinator again."""
        first = types.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[types.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        )
        patient = ("--config", "group.initial.rebalance.delay.ms=600000")
        with BrokerProcess(tmp_path / "data", *patient) as broker, Wire(broker.port) as waiting:
            first.member_id = waiting.ask(first).member_id
            parked = waiting.send(first)
            with Wire(broker.port) as wire:
                while wire.ask(types.ListGroupsRequest()).groups[0].group_state != "PreparingRebalance":
                    pass  # the request has not arrived yet
            broker.process.send_signal(signal.SIGTERM)
            assert waiting.receive(parked).error_code == 16
            assert broker.wait() == 0
        with BrokerProcess(tmp_path / "data") as broker, Wire(broker.port) as wire:
            (group,) = wire.ask(types.DescribeGroupsRequest(groups=["g"])).groups
            assert (group.group_state, group.members) == ("Empty", [])

    @pytest.mark.parametrize("fsync", ["never", "group"])
    def test_a_kill_under_load_keeps_every_acknowledged_record(self, tmp_path: Path, fsync: str) -> None:
        expected: list[bytes | None] = []
        for round_number in range(4):
            with BrokerProcess(tmp_path / "data", "--config", f"log.fsync={fsync}") as broker:
                with Wire(broker.port) as wire:
                    if not round_number:
                        wire.ask(creation("t"))
                    found = values(wire, "t")
                assert found[: len(expected)] == expected, "an acknowledged record is gone"
                assert len(set(found)) == len(found)
                acknowledged: list[int] = []
                enough = threading.Barrier(2, timeout=30)
                loading = threading.Thread(target=self.load, args=(broker.port, round_number, acknowledged, enough))
                loading.start()
                enough.wait()
                broker.process.kill()
                loading.join()
                expected = [*found, *(b"%d-%d" % (round_number, i) for i in acknowledged)]

    def load(self, port: int, round_number: int, acknowledged: list[int], enough: threading.Barrier) -> None:
        """Produces with several requests under way until the broker is gone, and says when that may be."""
        with Wire(port) as wire:
            sent: list[tuple[int, tuple[int, int]]] = []
            number = 0
            try:
                while True:
                    while len(sent) < 5:
                        records = batch(b"%d-%d" % (round_number, number))
                        sent.append((number, wire.send(production("t", {0: records}), 12)))
                        number += 1
                    first, request = sent.pop(0)
                    if wire.receive(request).responses[0].partition_responses[0].error_code == 0:
                        acknowledged.append(first)
                    if len(acknowledged) == 300 * (round_number + 1):
                        enough.wait()
            except OSError:
                return


class TestMemory:
    def test_a_client_that_does_not_read_costs_bounded_memory(self, broker: BrokerProcess) -> None:
        with Wire(broker.port) as wire:
            wire.ask(creation("t"))
            for _ in range(20):
                assert produce(wire, "t", b"x" * 1_000_000) == 0
            before = resident_bytes(broker.process.pid)
            with Wire(broker.port) as lazy:
                for _ in range(200):
                    lazy.send(fetching("t", {0: 0}, max_bytes=20 << 20, partition_max_bytes=20 << 20), 12)
                assert wire.ask(types.DescribeClusterRequest(endpoint_type=1)).error_code == 0
                grown = resident_bytes(broker.process.pid) - before
                assert grown < 150 << 20, f"200 answers of 20 MB cost {grown >> 20} MiB"

    def test_announced_frames_cost_little(self, broker: BrokerProcess) -> None:
        with Wire(broker.port) as wire:
            wire.ask(types.DescribeClusterRequest(endpoint_type=1))
            before = resident_bytes(broker.process.pid)
            boasters = [Wire(broker.port) for _ in range(20)]
            for boaster in boasters:
                boaster.socket.sendall((100 << 20).to_bytes(4, "big") + b"x" * 100)
            assert wire.ask(types.DescribeClusterRequest(endpoint_type=1)).error_code == 0
            assert resident_bytes(broker.process.pid) - before < 60 << 20
            for boaster in boasters:
                boaster.close()

    def test_thousands_of_idle_and_slow_connections(self, broker: BrokerProcess) -> None:
        """Some say nothing, some send half of a frame: the others are served, and memory stays small."""
        half = encode_request(types.MetadataRequest(topics=[]), 12, 1, "x")[:-3]
        with Wire(broker.port) as wire:
            wire.ask(types.DescribeClusterRequest(endpoint_type=1))
            before = resident_bytes(broker.process.pid)
            crowd = [Wire(broker.port) for _ in range(2000)]
            for one in crowd[:200]:
                one.socket.sendall(half)
            assert wire.ask(creation("t")).topics[0].error_code == 0
            assert produce(wire, "t", b"x") == 0
            grown = resident_bytes(broker.process.pid) - before
            assert grown < 70 << 20, f"2000 connections cost {grown >> 20} MiB"
            for one in crowd[:200]:
                one.socket.sendall(encode_request(types.MetadataRequest(topics=[]), 12, 1, "x")[-3:])
                assert int.from_bytes(one.read(4), "big") > 0
            for one in crowd:
                one.close()
            assert values(wire, "t") == [b"x"]


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class TestFullDisk:
    """The log is on a file system that runs full: reads go on, and so do writes once there is space again."""

    def check(self, broker: BrokerProcess, make_space: object) -> None:
        with Wire(broker.port) as wire:
            assert wire.ask(creation("t")).topics[0].error_code == 0
            kept: list[bytes] = []
            code = 0
            while not code:
                value = b"%06d" % len(kept) + os.urandom(50_000)
                code = produce(wire, "t", value)
                if not code:
                    kept.append(value)
                assert len(kept) < 1000, "the disk never got full"
            assert code == 56
            assert kept
            assert produce(wire, "t", b"x" * 60_000) == 56
            assert values(wire, "t") == kept
            assert wire.ask(creation("u", 50)).topics[0].error_code in {0, 56}
            make_space()  # type: ignore[operator]
            assert produce(wire, "t", b"after") == 0
            assert values(wire, "t") == [*kept, b"after"]
        assert "Traceback" not in broker.log

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
    def test_a_small_file_system(self, tmp_path: Path) -> None:
        mounted = tmp_path / "small"
        mounted.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(mounted)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("mounting is not permitted here")
        try:
            ballast = mounted / "ballast"
            ballast.write_bytes(b"x" * 1_000_000)
            (mounted / "data").mkdir()
            with BrokerProcess(mounted / "data") as broker:
                self.check(broker, ballast.unlink)
                assert broker.stop() == 0
        finally:
            subprocess.run(["umount", str(mounted)], check=True)

    def test_a_limit_of_the_size_of_files(self, tmp_path: Path) -> None:
        limited = (
            "import os, resource, signal, sys\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))\n"
            "os.execv(sys.argv[1], sys.argv[1:])"
        )
        with BrokerProcess(tmp_path / "data", prefix=(sys.executable, "-c", limited)) as broker:

            def make_space() -> None:
                unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
                resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, unlimited)

            self.check(broker, make_space)
            assert broker.stop() == 0


def test_idle_connections_end(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", "--config", "connections.max.idle.ms=100") as broker,
        Wire(broker.port) as wire,
    ):
        assert wire.is_closed()


def test_metrics_for_prometheus(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--metrics", "127.0.0.1:0") as broker:
        address = broker.log.split("metrics at ")[1].split()[0]
        with urllib.request.urlopen(address, timeout=30) as answer:
            text = answer.read().decode()
        assert 'kafka_server_group_coordinator_metrics_group_count{protocol="streams"} 0' in text
        port = address.split(":")[2].split("/")[0]
        code, message = refused(tmp_path / "other", "--metrics", f"127.0.0.1:{port}")
        assert (code, "can't listen on 127.0.0.1:" in message, "Traceback" in message) == (3, True, False)
        assert broker.stop() == 0
