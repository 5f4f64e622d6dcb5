"""The programs of the peers: each in an environment of its own, made on first use, watched by what it prints.

A program is called with ``SERVERS WORKLOAD SOURCE SINK APPLICATION RECORDS DIRECTORY [NAME=VALUE ...]`` and prints
``MARK NAME RECORDS CPU_SECONDS`` at its START, when HALF is done, and at its END. Programs of operators print SEEN several
times a second instead of HALF, with all the records processed until then, and QUIET when they have waited for more in vain.

``ours`` is pure Python; ``native`` is the same with the loops in C, which are compiled on first use. ``ours@/path/to/tree``
is the program of another tree of this project, made by ``git worktree add --detach /path/to/tree COMMIT``.

Where the environment variable STREAMSRT_BENCH_PROFILES names a folder, py-spy samples each program in Python from its start
to its end; ``python -m tests.bench.profiles FOLDER`` shows where the time went. Sampling slows a program down: rates of such
a run are not to be compared.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from tests.kafka_server import resolved, streams_classpath
from tests.tools.native import all_compiled

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "peers"
SCHEMAS = ("orders.avpr", "used.avpr", "orders.proto")
JAVA = tuple(
    PROGRAMS / "java" / name
    for name in ("PeerStreams.java", "PeerOperators.java", "PeerJson.java", "PeerFormats.java", *SCHEMAS)
)
AVRO_VERSION, PROTOBUF_VERSION = "1.12.1", "4.33.2"
PACKAGES = {
    "quix": ("quixstreams==3.28.1",),
    "faust": ("faust-streaming==0.15.3", "aiokafka==0.14.0", "rocksdict==0.3.29", "orjson==3.13.0"),
}
RUN_TIMEOUT_S = 180.0
OURS = ("ours", "bundled", "native")
NATIVE = ROOT / ".cache" / "native"
PROFILES = "STREAMSRT_BENCH_PROFILES"
SAMPLES_PER_S = 400


@dataclass(frozen=True, slots=True)
class Mark:
    """What a program printed, and when."""

    records: int
    cpu_s: float
    at_s: float


class UnfinishedError(Exception):
    """A program ended, or was ended after a while, before it had processed everything."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamsrt-bench"


def prepare(peer: str) -> None:
    """Makes what the peer needs, if it is not there yet."""
    if peer == "java":
        _java_classes()
    elif peer == "native":
        all_compiled(NATIVE)
    else:
        _python_of(peer)


def _python_of(peer: str) -> str:
    """The interpreter that has this peer's runtime."""
    packages = PACKAGES.get(peer)
    if packages is None:
        return sys.executable
    home = _cache() / f"{peer}-{sha256(repr(packages).encode()).hexdigest()[:12]}"
    python = home / "bin" / "python"
    if not python.exists():
        say(f"making the environment of {peer} in {home}")
        scratch = home.with_name(f"{home.name}.{os.getpid()}")
        subprocess.run([sys.executable, "-m", "venv", str(scratch)], check=True)
        subprocess.run([str(scratch / "bin" / "python"), "-m", "pip", "-q", "install", *packages], check=True)
        scratch.rename(home)
    return str(python)


def _java_classes() -> Path:
    """Where the compiled programs are."""
    digest = sha256()
    for source in JAVA:
        digest.update(source.read_bytes())
    home = _cache() / f"java-{digest.hexdigest()[:12]}"
    if not home.exists():
        scratch = home.with_name(f"{home.name}.{os.getpid()}")
        sources = [str(path) for path in (*_generated(scratch / "generated"), *JAVA) if path.suffix == ".java"]
        subprocess.run(["javac", "-cp", _java_classpath(), "-d", str(scratch), *sources], check=True)
        scratch.rename(home)
    return home


def tree_of(peer: str) -> Path | None:
    """The tree of this project that the peer is; None where it is another runtime."""
    name, _, tree = peer.partition("@")
    return (Path(tree) if tree else ROOT) if name in OURS else None


def file_name(peer: str) -> str:
    """The peer's name where a path has no place, such as in the name of a topic."""
    return peer.replace("@", "").replace("/", "-")


def _java_classpath() -> str:
    """Kafka Streams, and the libraries of formats that it does not bring."""
    formats = resolved(
        (("org.apache.avro", "avro", AVRO_VERSION), ("com.google.protobuf", "protobuf-java", PROTOBUF_VERSION))
    )
    return f"{streams_classpath()}{os.pathsep}{formats}"


def _generated(folder: Path) -> list[Path]:
    """The classes of Avro's records and of Protobuf's messages, as their own compilers make them."""
    folder.mkdir(parents=True)
    schemas = PROGRAMS / "java"
    compiler = resolved((("org.apache.avro", "avro-compiler", AVRO_VERSION),))
    made = ["java", "-cp", compiler, "org.apache.avro.compiler.specific.SpecificCompiler"]
    for protocol in (name for name in SCHEMAS if name.endswith(".avpr")):
        subprocess.run([*made, str(schemas / protocol), str(folder)], check=True)
    protoc = _protoc()
    subprocess.run([protoc, f"--java_out={folder}", f"-I{schemas}", "orders.proto"], check=True)
    return sorted(folder.rglob("*.java"))


def _protoc() -> str:
    """Protobuf's compiler, which is an artifact as well."""
    system = {"Linux": "linux", "Darwin": "osx"}[platform.system()]
    machine = {"x86_64": "x86_64", "AMD64": "x86_64"}.get(platform.machine(), "aarch_64")
    artifact = f"com.google.protobuf:protoc:{PROTOBUF_VERSION}:exe:{system}-{machine}"
    path = _cache() / f"protoc-{PROTOBUF_VERSION}"
    if not path.exists():
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={_cache()}"]
        subprocess.run(command, check=True)
        (_cache() / f"protoc-{PROTOBUF_VERSION}-{system}-{machine}.exe").rename(path)
        path.chmod(0o755)
    return str(path)


def _command(peer: str) -> list[str]:
    if peer == "java":
        path = f"{_java_classes()}{os.pathsep}{_java_classpath()}"
        return ["java", "-Xmx2g", "-Xshare:auto", "-cp", path, "PeerStreams"]
    tree = tree_of(peer)
    program = PROGRAMS / f"{peer}.py" if tree is None else tree / "tests" / "bench" / "peers" / "ours.py"
    return [_python_of(peer), "-P", str(program)]


def _profiled(peer: str, process: subprocess.Popen[str], arguments: list[str]) -> subprocess.Popen[bytes] | None:
    """py-spy beside the process, where the environment asks for it."""
    folder = os.environ.get(PROFILES)
    if not folder or peer == "java":
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    file = Path(folder) / f"{arguments[1]}-{file_name(peer)}-{process.pid}.raw"
    command = ["py-spy", "record", "--nonblocking", "--format", "raw", "--rate", str(SAMPLES_PER_S)]
    return subprocess.Popen(
        [*command, "--threads", "--output", str(file), "--pid", str(process.pid)],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _peak_bytes(pid: int) -> int:
    """The most memory that was resident so far; 0 where the system does not tell, or the process is over."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


class PeerProgram:
    """A program that runs; use it as a context manager, which ends it.

    ``marks``: the last one of each name. ``seen``: all SEEN marks. ``peak_bytes``: resident memory, as of the last of these.
    """

    def __init__(
        self, peer: str, arguments: list[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        tree = tree_of(peer)
        known = {**os.environ, **(environment or {})}
        if tree is not None:
            loops = [str(NATIVE)] if peer == "native" else []
            known["PYTHONPATH"] = os.pathsep.join([str(tree), *loops])
            known["STREAMSRT_PURE"] = "0" if loops else "1"
        self.marks: dict[str, Mark] = {}
        self.seen: list[Mark] = []
        self.peak_bytes = 0
        self._log = log
        self._graceful = peer != "faust"
        self._changed = threading.Condition()
        self._over = False
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [*_command(peer), *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=log.parent,
                env=known,
            )
        self._profiler = _profiled(peer, self.process, arguments)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = line.split()
            if words[:1] == ["MARK"]:
                mark = Mark(int(words[2]), float(words[3]), time.monotonic())
                if words[1] == "SEEN":
                    self.seen.append(mark)
                    self.peak_bytes = max(self.peak_bytes, _peak_bytes(self.process.pid))
                with self._changed:
                    self.marks[words[1]] = mark
                    self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def wait_for(self, name: str, timeout_s: float = RUN_TIMEOUT_S) -> Mark:
        """The mark of this name. Raises UnfinishedError where it does not come."""
        with self._changed:
            self._changed.wait_for(lambda: name in self.marks or self._over, timeout_s)
            if name not in self.marks:
                say(self._log.read_text(errors="replace")[-3000:])
                raise UnfinishedError(f"no {name} within {timeout_s:g} s, or failed")
            return self.marks[name]

    def __enter__(self) -> PeerProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None and (error is not None or "END" not in self.marks or not self._graceful):
            self.process.send_signal(signal.SIGTERM if self._graceful and error is None else signal.SIGKILL)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        if self._profiler is not None:
            self._profiler.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()


def run_program(
    peer: str, arguments: list[str], log: Path, environment: Mapping[str, str] | None = None
) -> dict[str, Mark]:
    """Runs it to its END mark. Raises UnfinishedError where that does not come."""
    with PeerProgram(peer, arguments, log, environment) as program:
        program.wait_for("END")
    return program.marks
