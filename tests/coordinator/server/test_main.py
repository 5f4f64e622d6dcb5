"""Starts that can't be, each with one message that says what to do, and the exit code that is documented."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from coordinator.group.settings import InvalidConfigError
from coordinator.log import LogConfig, LogDirectory
from coordinator.server.settings import read_configs
from streamsrt.wire.records import encode_batch
from tests.coordinator.broker.in_process import START_MS, InProcessBroker
from tests.coordinator.server.processes import BrokerProcess, Wire, refused, refused_here
from tests.kafka_server import free_ports

KAFKAS_PROPERTIES = """\
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
default.replication.factor=3
min.insync.replicas=2
offsets.topic.num.partitions=100
offsets.topic.replication.factor=3
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=10000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
listener.name.plaintext.connections.max.reauth.ms=0
"""


class TestSettings:
    def test_the_command_line_goes_over_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "server.properties"
        path.write_text("num.partitions=3\nlog.retention.ms: 5000\ngroup.streams.num.standby.replicas = 1\n")
        configs, group_config = read_configs(path, ["num.partitions=4"])
        assert (configs["num.partitions"], configs["log.retention.ms"]) == (4, 5000)
        assert group_config.defaults.num_standby_replicas == 1

    def test_the_properties_file_of_an_apache_kafka_starts_this_broker(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = tmp_path / "server.properties"
        path.write_text(KAFKAS_PROPERTIES, encoding="utf-8")
        configs, _ = read_configs(path, [])
        assert (configs["broker.id"], configs["log.retention.ms"]) == (7, 168 * 3_600_000)
        assert (configs["default.replication.factor"], configs["offsets.topic.num.partitions"]) == (1, 50)
        ignored, more, more_partitions = caplog.messages
        assert more == "default.replication.factor=3 is more than this broker supports: 1 is used"
        assert more_partitions == "offsets.topic.num.partitions=100 is more than this broker supports: 50 is used"
        assert "listeners (here: --host and --port)" in ignored
        for key in ("offsets.topic.replication.factor", "transaction.abort.timed.out.transaction.cleanup.interval.ms"):
            assert key in ignored

    def test_a_setting_of_kafka_needs_a_value_of_its_type_too(self) -> None:
        with pytest.raises(InvalidConfigError, match="configuration num\\.io\\.threads: not a number of type INT"):
            read_configs(None, ["num.io.threads=many"])

    @pytest.mark.parametrize("given", [["broker.id=-1", "node.id=4"], ["node.id=4"], ["node.id=4", "broker.id=4"]])
    def test_the_id_of_the_node_by_either_name(self, given: list[str]) -> None:
        assert read_configs(None, given)[0]["broker.id"] == 4

    @pytest.mark.requirement("CG-075")
    def test_an_assignor_by_its_import_path(self) -> None:
        path = "coordinator.group.consumer.range_assignor:RangeAssignor"
        _, group_config = read_configs(None, [f"group.consumer.assignors={path},uniform"])
        assert list(group_config.consumer.assignors) == ["range", "uniform"]

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            (
                ["--config", "num.partition=3"],
                "Unknown broker config name: num.partition. Did you mean num.partitions?",
            ),
            (["--config", "group.streams.max.sizes=3"], "Did you mean group.streams.max.size?"),
            (["--config", "num.partitions"], "--config num.partitions: expected KEY=VALUE"),
            (["--config", "num.partitions=0"], "Invalid value 0 for configuration num.partitions: must be at least 1."),
            (["--config", "log.fsync=always"], "expected one of never, interval, group"),
            (["--config", "group.streams.heartbeat.interval.ms=1"], "group.streams.heartbeat.interval.ms"),
            (
                ["--config", "group.consumer.assignors=no_such_module:Assignor"],
                "no_such_module:Assignor cannot be loaded",
            ),
            (["--config", "group.consumer.assignors=json:JSONDecoder"], "it needs a name and a method assign(spec)"),
            (["--properties", "/no/such/file"], "/no/such/file"),
            (["--host", "0.0.0.0"], "or --insecure if the network is trusted"),
            (["--host", "192.0.2.1"], "or --insecure if the network is trusted"),
            (["--host", "0.0.0.0", "--insecure"], "--config advertised.host=NAME"),
            (["--port", "65536"], "65536 is not a port"),
            (["--no-such-option"], "--no-such-option"),
        ],
    )
    def test_mistakes(self, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], text: str) -> None:
        code, message = refused_here(capfd, tmp_path / "data", *options)
        assert code == 2
        assert text in message
        assert "Traceback" not in message
        assert not (tmp_path / "data").exists(), "nothing is made before the settings are right"

    @pytest.mark.parametrize("options", [["--config", "num.partitions=0"], ["--no-such-option"]])
    def test_a_mistake_ends_the_process(self, tmp_path: Path, options: list[str]) -> None:
        code, message = refused(tmp_path / "data", *options)
        assert code == 2
        assert options[-1].partition("=")[0] in message
        assert "Traceback" not in message

    def test_a_file_that_is_no_text(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "server.properties"
        path.write_bytes(b"a=\xff\xfe")
        code, message = refused_here(capfd, tmp_path / "data", "--properties", str(path))
        assert code == 2
        assert f"{path} is not UTF-8" in message


class TestDataDirectory:
    def test_another_broker_has_it(self, tmp_path: Path) -> None:
        with BrokerProcess(tmp_path / "data") as first:
            code, message = refused(tmp_path / "data")
            assert code == 4
            assert f"is in use by process {first.process.pid}" in message
            assert "give this one another --data-dir" in message

    def test_it_is_of_another_format(self, tmp_path: Path) -> None:
        LogDirectory(tmp_path / "data").close()
        (tmp_path / "data" / "format-version").write_text("streamsrt-log 99\n")
        code, message = refused(tmp_path / "data")
        assert code == 4
        assert "has format 'streamsrt-log 99'" in message
        assert "use the version of streamsrt that wrote it" in message

    def test_it_holds_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "letter.txt").write_text("Dear")
        code, message = refused(tmp_path / "data")
        assert code == 4
        assert "it contains letter.txt" in message

    def test_it_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("")
        code, message = refused(tmp_path / "data")
        assert code == 4
        assert f"data directory {tmp_path / 'data'} can't be used: File exists. Give a --data-dir that" in message
        assert "Traceback" not in message

    def test_it_can_not_be_made(self) -> None:
        code, message = refused(Path("/proc/data/logs"))
        assert code == 4
        assert "data directory /proc/data/logs can't be used: " in message
        assert "Give a --data-dir that this user can create and write to" in message


def test_a_group_log_of_a_newer_broker(tmp_path: Path) -> None:
    broker = InProcessBroker(tmp_path / "data")
    broker.broker.groups.log_of("g").append(encode_batch([b"\x7f\x00key"], [b"value"], [START_MS]), now_ms=START_MS)
    broker.close()
    code, message = refused(tmp_path / "data")
    assert code == 4
    assert f"{tmp_path / 'data'}/__consumer_offsets-" in message
    assert "A newer broker has written them: start that version" in message
    assert "Traceback" not in message


def damage(data_dir: Path, topic: str, offset_from_end: int) -> Path:
    """Flips a byte of the only segment of partition 0, as if it had rotted while the broker was down."""
    (path,) = (data_dir / f"{topic}-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[-offset_from_end] ^= 0xFF
    path.write_bytes(data)
    (data_dir / "clean-shutdown").unlink(missing_ok=True)
    for name in ("checkpoint", "*.index", "*.snapshot"):
        for hint in (data_dir / f"{topic}-0").glob(name):
            hint.unlink()
    return path


class TestCorruption:
    def prepared(self, tmp_path: Path) -> Path:
        broker = InProcessBroker(tmp_path / "data")
        broker.create("t")
        for i in range(10):
            broker.produce("t", b"value %d" % i)
        broker.create("u")
        broker.close()
        return tmp_path / "data"

    @pytest.mark.parametrize("topic", ["t", "__cluster_metadata"])
    def test_in_the_middle_of_a_log(self, tmp_path: Path, topic: str) -> None:
        data_dir = self.prepared(tmp_path)
        (log,) = (data_dir / f"{topic}-0").glob("*.log")
        before = damage(data_dir, topic, log.stat().st_size * 2 // 3).read_bytes()
        code, message = refused(data_dir)
        assert code == 4
        assert str(log) in message
        assert "are unreadable" in message
        assert "--truncate-corrupt" in message
        assert "Traceback" not in message
        assert log.read_bytes() == before, "nothing is repaired unless asked for"

    def test_the_repair_keeps_what_is_before_and_sets_the_rest_aside(self, tmp_path: Path) -> None:
        data_dir = self.prepared(tmp_path)
        damage(data_dir, "t", 200)
        with BrokerProcess(data_dir, "--truncate-corrupt") as broker:
            assert "repaired t-0" in broker.log
            assert broker.stop() == 0
        assert list((data_dir / "t-0").glob("*.dropped"))
        again = InProcessBroker(data_dir)
        values = again.values("t")
        assert 0 < len(values) < 10
        assert values == [b"value %d" % i for i in range(len(values))]
        again.produce("t", b"more")
        again.close()

    def test_a_torn_end_is_cut_off_without_asking(self, tmp_path: Path) -> None:
        data_dir = self.prepared(tmp_path)
        damage(data_dir, "t", 3)
        broker = InProcessBroker(data_dir)
        assert broker.values("t") == [b"value %d" % i for i in range(9)]
        broker.close()


class TestAddress:
    def test_the_port_is_taken(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            code, message = refused(tmp_path / "data", "--port", str(port))
        assert code == 3
        assert f"can't listen on 127.0.0.1:{port}: " in message
        assert "in use; give another --port" in message
        LogDirectory(tmp_path / "data").close()
        assert (tmp_path / "data" / "clean-shutdown").exists()

    def test_the_host_is_unknown(self, tmp_path: Path) -> None:
        code, message = refused(tmp_path / "data", "--host", "no-such-host.invalid", "--insecure")
        assert code == 3
        assert "can't listen on no-such-host.invalid:0" in message

    def test_localhost_is_told_as_the_address_that_was_bound(self, tmp_path: Path) -> None:
        with BrokerProcess(tmp_path / "data", "--host", "localhost") as broker:
            assert broker.address in {f"127.0.0.1:{broker.port}", f"[::1]:{broker.port}"}

    @pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
    def test_an_address_of_version_6_is_told_in_brackets(self, tmp_path: Path) -> None:
        with BrokerProcess(tmp_path / "data", "--host", "::1") as broker:
            assert broker.address == f"[::1]:{broker.port}"

    def test_clients_are_told_the_advertised_host(self, tmp_path: Path) -> None:
        from streamsrt.wire import types

        with (
            BrokerProcess(tmp_path / "data", "--config", "advertised.host=broker.example") as broker,
            Wire(broker.port) as wire,
        ):
            assert broker.address == f"broker.example:{broker.port}"
            (node,) = wire.ask(types.MetadataRequest(topics=[])).brokers
            assert (node.host, node.port) == ("broker.example", broker.port)

    def test_clients_are_told_the_advertised_port(self, tmp_path: Path) -> None:
        """That of a proxy, for example. The one that is bound was given."""
        from streamsrt.wire import types

        (port,) = free_ports(1)
        with (
            BrokerProcess(tmp_path / "data", "--port", str(port), "--config", "advertised.port=19092") as broker,
            Wire(port) as wire,
        ):
            assert broker.address == "127.0.0.1:19092"
            (node,) = wire.ask(types.MetadataRequest(topics=[])).brokers
            assert (node.host, node.port) == ("127.0.0.1", 19092)


def test_a_log_of_an_unknown_topic_does_not_keep_the_broker_from_starting(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path / "data")
    directory.partition("stranger", 0, LogConfig())
    directory.close()
    with BrokerProcess(tmp_path / "data") as broker:
        assert broker.stop() == 0
    assert not (tmp_path / "data" / "stranger-0").exists()
    shutil.rmtree(tmp_path / "data")
