"""A real Apache Kafka for tests: one node from Maven Central's jars, of any version from 2.8 on.

1. Needs Java 17 or later and Maven. The classpath of a version is resolved once and kept under
   ``${XDG_CACHE_HOME:-~/.cache}/streamsrt-kafka``.
2. Ports are free ones of the loopback interface; data lives in the directory that the test gives.
3. ``kill`` is SIGKILL. ``start`` after ``kill`` or ``stop`` goes on with the data.
4. No transaction is ended while partitions have no leader. Apache Kafka 4.4.0 takes them for those of deleted topics then
   ("these partitions are likely deleted already and hence can be skipped") and leaves their markers out: the transaction
   stays open, or ends later with the next one's outcome, whoever the client is (KAFKA-20734,
   ``KRaftMetadataCache.getPartitionLeaderEndpoint``). A single node comes to that in two ways: in a controlled shutdown,
   which is off here; and when it starts again and is fenced only after it has become the coordinator of transactions, by
   what it read of its past life. So a controller alone fences it before it starts again.
5. Before Kafka 3.3 a ZooKeeper runs beside the broker, from the same jars. It starts before the broker and ends after it.
   What it remembers of a broker that was killed is gone before that one starts again.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Protocol

from tests.tcp_proxy import TcpProxy

VERSION = "4.4.0"
TOOLS_API_VERSION = "4.3.1"  # kafka-tools-api is not published for every release; it holds interfaces only
LOG4J_VERSION = "2.24.3"
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0
PORTS = range(12_000, 32_000)
FENCED = "because its session has timed out"
"""What a controller logs when it fences a broker."""

ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools-api", TOOLS_API_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-api", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-1.2-api", LOG4J_VERSION),
)

SLF4J_BEFORE_4 = ("org.slf4j", "slf4j-reload4j", "1.7.36")

STREAMS_VERSION = "4.3.1"  # the newest one that is published

FIRST_WITH_LOG4J_2 = (4, 0)
FIRST_WITH_STREAMS_GROUPS = (4, 2)
FIRST_WITHOUT_ZOOKEEPER = (3, 3)
FIRST_THAT_FENCES_ALONE = (4, 0)
"""Before, a controller fences nobody that never spoke to it. It registers a broker again when the old session is over."""

LOGGING = """status=error
appender.out.type=Console
appender.out.name=OUT
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=OUT
"""

LOGGING_BEFORE_4 = """log4j.rootLogger=INFO, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=[%d] %p %m (%c)%n
"""

SMALL = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # Producers are forgotten by the time in their records, and tests write records of the past.
    "producer.id.expiration.check.interval.ms": "2147483647",
    "controlled.shutdown.enable": "false",
    # Neither is it fenced when the machine has no time for it.
    "broker.session.timeout.ms": "60000",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "num.network.threads": "2",
    "num.io.threads": "4",
}


SMALL_HEAP = ("-Xmx768m", "-Xms128m", "-XX:+UseSerialGC")
"""Its pauses are short enough for tests: about 10 ms, several times a second where records come all the time."""
SHIPPED_HEAP = (
    *("-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""That of Kafka's own start script, for what measures latencies: a pause of about 8 ms every few seconds."""


def missing_tools() -> str | None:
    """What is not installed here, or None."""
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    return f"Apache Kafka needs {' and '.join(missing)} on the PATH" if missing else None


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(root) / "streamsrt-kafka"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _pom(artifacts: Iterable[tuple[str, str, str]]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>streamsrt</groupId>'
        "<artifactId>kafka-for-tests</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def numbers_of(version: str) -> tuple[int, ...]:
    """``3.9.1`` as (3, 9, 1)."""
    return tuple(int(part) for part in version.split("."))


def classpath(version: str = VERSION) -> str:
    """The jars of the broker and its clients, downloaded by Maven when they are not there yet."""
    if version == VERSION:
        return resolved(ARTIFACTS)
    artifacts = [("org.apache.kafka", "kafka_2.13", version)]
    if numbers_of(version) < FIRST_WITH_LOG4J_2:
        return resolved((*artifacts, SLF4J_BEFORE_4))
    return resolved((*artifacts, *ARTIFACTS[2:]))


def tools_classpath() -> str:
    """The jars of Kafka's command-line tools."""
    return resolved((("org.apache.kafka", "kafka-tools", TOOLS_API_VERSION), *ARTIFACTS[2:]))


def streams_classpath(version: str = STREAMS_VERSION) -> str:
    """The jars of Kafka Streams and its clients, for applications of Java in tests."""
    streams = ("org.apache.kafka", "kafka-streams", version)
    if numbers_of(version) < FIRST_WITH_LOG4J_2:
        return resolved((streams, SLF4J_BEFORE_4))
    return resolved((streams, *ARTIFACTS[2:4]))


def test_driver_classpath() -> str:
    """The jars of Kafka Streams with its TopologyTestDriver."""
    driver = ("org.apache.kafka", "kafka-streams-test-utils", STREAMS_VERSION)
    return resolved((driver, ("org.slf4j", "slf4j-nop", "1.7.36")))


def resolved(artifacts: Sequence[tuple[str, str, str]]) -> str:
    """The class path of artifacts and all that they need, downloaded by Maven when they are not there yet."""
    pom = _pom(artifacts)
    folder = _cache() / sha256(pom.encode()).hexdigest()[:12]
    kept = folder / "classpath.txt"
    if kept.exists():
        jars = kept.read_text(encoding="utf-8").strip()
        if all(Path(jar).exists() for jar in jars.split(os.pathsep)):
            return jars
    folder.mkdir(parents=True, exist_ok=True)
    # Maven's own repository stands no two downloads of a file at once.
    with (_cache() / "lock").open("w") as lock, tempfile.TemporaryDirectory(dir=folder) as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "pom.xml").write_text(pom, encoding="utf-8")
        out = Path(scratch) / "classpath"
        command = [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(folder / "pom.xml"),
            "dependency:build-classpath",
            f"-Dmdep.outputFile={out}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            wanted = ", ".join(":".join(each) for each in artifacts)
            raise RuntimeError(f"Maven could not resolve {wanted}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        out.replace(kept)
    return kept.read_text(encoding="utf-8").strip()


def compiled(program: Path, jars: str) -> list[str]:
    """The options of ``java`` that run a program with these jars, and the program's class.

    It is a file, or the folder of a package with a class ``Main``. It is compiled when its classes are not there yet.
    ``java FILE`` would compile it at each start: a second of the machine.
    """
    files = sorted(program.glob("*.java")) if program.is_dir() else [program]
    content = b"".join(file.read_bytes() for file in files)
    classes = _cache() / f"{program.stem}-{sha256(content + jars.encode()).hexdigest()[:12]}"
    with (_cache() / "lock").open("w") as lock, tempfile.TemporaryDirectory(dir=_cache()) as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not classes.exists():
            made = Path(scratch) / "classes"
            command = ["javac", "--release", "17", "-nowarn", "-d", str(made), "-cp", jars, *map(str, files)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"javac could not compile {program}:\n{done.stdout}{done.stderr}")
            made.rename(classes)
    main = f"{program.name}.Main" if program.is_dir() else program.stem
    return ["-cp", f"{classes}{os.pathsep}{jars}", main]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different.

    They lie below those that the kernel gives to connections, so that a broker which is started again finds its port
    free; and are drawn anew by every process, so that two of them hardly meet.
    """
    found: list[int] = []
    candidates = random.SystemRandom().sample(PORTS, k=1000)
    while len(found) < count:
        with socket.socket() as each:
            port = candidates.pop()
            try:
                each.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return found


def brokers_listed(port: int) -> int:
    """How many brokers Metadata v1 names; 0 while nobody answers."""
    body = struct.pack(">hhihi", 3, 1, 1, -1, 0)
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0) as connection:
            connection.settimeout(5.0)
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.makefile("rb").read(12)
            return int(struct.unpack(">iii", answer)[2])
    except (OSError, struct.error):
        return 0


def _wait_for(process: subprocess.Popen[bytes], log: Path, holds: Callable[[], bool]) -> None:
    pause = Event()
    for _ in range(int(START_TIMEOUT_S * 10)):
        if process.poll() is not None or holds():
            break
        pause.wait(0.1)
    if process.poll() is not None or not holds():
        text = log.read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"Kafka did not come up within {START_TIMEOUT_S:g} s; the end of its log:\n{text[-3000:]}")


def _end(process: subprocess.Popen[bytes] | None, number: signal.Signals) -> None:
    if process is None:
        return
    if process.poll() is None:
        process.send_signal(number)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _new_id() -> str:
    """An id as Kafka makes them. It does not take one that begins with a dash for an argument."""
    return "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


class _Java:
    """How the classes of one version of Kafka run in a folder."""

    def __init__(self, folder: Path, version: str, heap: Iterable[str] = SMALL_HEAP) -> None:
        self._folder = folder
        self.numbers = numbers_of(version)
        has_log4j_2 = self.numbers >= FIRST_WITH_LOG4J_2
        name, self._logging = ("log4j2", LOGGING) if has_log4j_2 else ("log4j", LOGGING_BEFORE_4)
        self._logging_path = folder / f"{name}.properties"
        key = "log4j2.configurationFile=" if has_log4j_2 else "log4j.configuration=file:"
        self.version = version
        self._options = [
            *(*heap, "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
            f"-D{key}{self._logging_path}",
        ]

    def command(self, name: str, *arguments: str) -> list[str]:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._logging_path.write_text(self._logging, encoding="utf-8")
        return ["java", *self._options, "-cp", classpath(self.version), name, *arguments]

    def write(self, file_name: str, properties: Mapping[str, str]) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / file_name
        path.write_text("".join(f"{k}={v}\n" for k, v in properties.items()), encoding="utf-8")
        return path

    def run(self, log_name: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = self.command(name, *arguments)
        with (self._folder / log_name).open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


class _Quorum(Protocol):
    """Who keeps what the broker knows of the cluster."""

    @property
    def listener(self) -> str | None:
        """What the node listens on beside its own ports."""

    def properties(self) -> dict[str, str]:
        """What the node's properties say of it."""

    def prepare(self, properties: Path, *, again: bool) -> None:
        """Has everything ready for the broker to start. ``again``: it has run before."""

    def end(self) -> None:
        """The broker has ended."""


class _Controller:
    """KRaft: the node is its own controller."""

    def __init__(self, folder: Path, java: _Java, port: int, features: Iterable[str]) -> None:
        self._folder, self._java, self._port, self._features = folder, java, port, features
        self._fences_alone = java.numbers >= FIRST_THAT_FENCES_ALONE

    @property
    def listener(self) -> str | None:
        return f"CONTROLLER://127.0.0.1:{self._port}"

    def _identity(self) -> dict[str, str]:
        """What the node is in all of its roles."""
        return {
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._folder / "data"),
        }

    def properties(self) -> dict[str, str]:
        session = {} if self._fences_alone else {"broker.session.timeout.ms": "9000"}
        return {**self._identity(), "process.roles": "broker,controller", **session}

    def prepare(self, properties: Path, *, again: bool) -> None:
        if not (self._folder / "data" / "meta.properties").exists():
            self._format(properties)
        if again and self._fences_alone:
            self._fence()

    def end(self) -> None:
        """It was the same process."""

    def _format(self, properties: Path) -> None:
        """Kafka's tool formats one storage of each kind, and the others are copies: its Java takes seconds to start."""
        data = self._folder / "data"
        command = self._java.command("kafka.tools.StorageTool", "format", "-t", _new_id(), "-c", str(properties))
        command += [word for feature in self._features for word in ("--feature", feature)]
        kind = sha256("\n".join([classpath(self._java.version), *self._features]).encode()).hexdigest()[:12]
        kept = _cache() / f"storage-{self._java.version}-{kind}"
        with (_cache() / "lock").open("w") as lock, tempfile.TemporaryDirectory(dir=_cache()) as scratch:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise RuntimeError(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")
                shutil.copytree(data, Path(scratch) / "data").rename(kept)
                return
        shutil.copytree(kept, data, dirs_exist_ok=True)
        about = data / "meta.properties"
        ids = {"cluster.id": _new_id(), "directory.id": _new_id()}
        lines = [line.partition("=") for line in about.read_text(encoding="utf-8").splitlines()]
        about.write_text("".join(f"{key}{sign}{ids.get(key, value)}\n" for key, sign, value in lines), encoding="utf-8")

    def _fence(self) -> None:
        """Runs the controller alone until it has taken the broker's partitions from it, and has that on disk."""
        log = self._folder / "controller.log"
        log.unlink(missing_ok=True)
        properties = {
            **self._identity(),
            "process.roles": "controller",
            "listeners": f"CONTROLLER://127.0.0.1:{self._port}",
            "broker.session.timeout.ms": "500",
            "metadata.max.idle.interval.ms": "100",
        }
        process = self._java.run(log.name, "kafka.Kafka", str(self._java.write("controller.properties", properties)))
        try:
            _wait_for(process, log, lambda: FENCED in log.read_text(encoding="utf-8", errors="replace"))
            # Behind what it fences with it writes records that say nothing: after the second one all before is written.
            for _ in range(2):
                _wait_for(process, log, partial(self._has_more_metadata, self._metadata_bytes()))
        finally:
            process.kill()
            process.wait()

    def _metadata_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self._folder / "data" / "__cluster_metadata-0").glob("*.log"))

    def _has_more_metadata(self, before: int) -> bool:
        return self._metadata_bytes() > before


class _ZooKeeper:
    """The ZooKeeper of a broker before Kafka 3.3."""

    listener = None

    def __init__(self, folder: Path, java: _Java, port: int) -> None:
        self._folder, self._java, self._port = folder, java, port
        self._process: subprocess.Popen[bytes] | None = None

    def properties(self) -> dict[str, str]:
        return {
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{self._port}",
            "zookeeper.session.timeout.ms": "6000",
            "log.dirs": str(self._folder / "data"),
        }

    def prepare(self, properties: Path, *, again: bool) -> None:
        own = {
            "dataDir": str(self._folder / "zookeeper"),
            "clientPort": str(self._port),
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "dump",
        }
        path = self._java.write("zookeeper.properties", own)
        name = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        process = self._process = self._java.run("zookeeper.log", name, str(path))
        try:
            _wait_for(process, self._folder / "zookeeper.log", lambda: self._ephemerals() is not None)
            if again:
                _wait_for(
                    process, self._folder / "zookeeper.log", lambda: "/brokers/" not in (self._ephemerals() or "")
                )
        except RuntimeError:
            self.end()
            raise

    def _ephemerals(self) -> str | None:
        """What lasts as long as a session, as ZooKeeper lists it; None while nobody answers."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), 1.0) as connection:
                connection.settimeout(5.0)
                connection.sendall(b"dump")
                said = connection.makefile("rb").read().decode()
        except OSError:
            return None
        return said if "phemerals" in said else None

    def end(self) -> None:
        process, self._process = self._process, None
        _end(process, signal.SIGKILL)


class KafkaServer:
    """One broker of a version. ``settings`` are server properties on top of a small single node's; ``{port}`` and
    ``{controller_port}`` in them are filled in. Clients that come through ``proxy`` are kept there: it has a listener of
    its own. ``features``: what the storage is formatted with; None: with streams groups on, where there are any. ``heap``:
    options of the JVM."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        proxy: TcpProxy | None = None,
        features: Iterable[str] | None = None,
        version: str = VERSION,
        heap: Iterable[str] = SMALL_HEAP,
    ) -> None:
        self.folder = folder
        self.proxy = proxy
        self.port, self._controller_port = free_ports(2)
        self._java = _Java(folder, version, heap)
        self._quorum: _Quorum
        if self._java.numbers < FIRST_WITHOUT_ZOOKEEPER:
            self._quorum = _ZooKeeper(folder, self._java, self._controller_port)
        else:
            if features is None:
                features = ("streams.version=1",) if self._java.numbers >= FIRST_WITH_STREAMS_GROUPS else ()
            self._quorum = _Controller(folder, self._java, self._controller_port, features)
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._has_been_up = False

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def start(self) -> None:
        """Format the storage if it is new, start, and wait until the broker is listed in its own metadata."""
        properties = self._java.write("server.properties", self._properties())
        self._quorum.prepare(properties, again=self._has_been_up)
        self._has_been_up = False
        self._process = self._java.run("server.log", "kafka.Kafka", str(properties))
        self._wait_until_up()
        self._has_been_up = True

    def _properties(self) -> dict[str, str]:
        return {
            **SMALL,
            **self._quorum.properties(),
            "inter.broker.listener.name": "PLAINTEXT",
            **self._listeners(),
            **{k: v.format(port=self.port, controller_port=self._controller_port) for k, v in self._settings.items()},
        }

    def _listeners(self) -> dict[str, str]:
        own = f"PLAINTEXT://127.0.0.1:{self.port}"
        quorum = [] if self._quorum.listener is None else [self._quorum.listener]
        protocols = ["PLAINTEXT:PLAINTEXT", *(f"{name.split(':')[0]}:PLAINTEXT" for name in quorum)]
        if self.proxy is None:
            return {"listeners": ",".join([own, *quorum]), "listener.security.protocol.map": ",".join(protocols)}
        if not self.proxy.target_port:
            (self.proxy.target_port,) = free_ports(1)
        return {
            "listeners": ",".join([own, f"PROXIED://127.0.0.1:{self.proxy.target_port}", *quorum]),
            "advertised.listeners": f"{own},PROXIED://127.0.0.1:{self.proxy.port}",
            "listener.security.protocol.map": ",".join([*protocols, "PROXIED:PLAINTEXT"]),
        }

    def _wait_until_up(self) -> None:
        assert self._process is not None
        try:
            _wait_for(self._process, self.folder / "server.log", lambda: brokers_listed(self.port) > 0)
        except RuntimeError:
            self.kill()
            raise

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        _end(process, number)
        self._quorum.end()


def main() -> None:
    """Runs a broker until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_server", description=main.__doc__)
    parser.add_argument("folder", type=Path, help="where its data and its logs go")
    parser.add_argument("--version", default=VERSION, help="of Apache Kafka, 2.8 or later (default: %(default)s)")
    given = parser.parse_args()
    if missing := missing_tools():
        parser.error(missing)
    given.folder.mkdir(parents=True, exist_ok=True)
    ends = {signal.SIGINT, signal.SIGTERM}
    server = KafkaServer(given.folder.resolve(), version=given.version)
    try:
        server.start()
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        print(f"Apache Kafka {given.version} at {server.bootstrap_servers}; Ctrl-C ends it", flush=True)
        signal.sigwait(ends)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
