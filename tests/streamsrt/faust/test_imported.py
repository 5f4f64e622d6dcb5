"""``import streamsrt.faust as faust``: Faust's names, and its command line with a worker that runs here."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

import streamsrt
from tests.fixtures_brokers import ROOT, BundledBroker
from tests.kafka_server import free_ports
from tests.streamsrt.faust.needed import require_faust
from tests.streamsrt.faust.test_live import wait_for_page

require_faust()

import faust  # noqa: E402
from faust.livecheck import LiveCheck  # noqa: E402

import streamsrt.faust as ours  # noqa: E402
from streamsrt.config import StreamsConfig  # noqa: E402
from streamsrt.errors import UserError  # noqa: E402
from streamsrt.faust import imported  # noqa: E402

PATIENCE_S = 120
PAGE = Path(streamsrt.__file__).parent.parent / "docs" / "faust.md"


def test_it_has_each_public_name_of_faust() -> None:
    names = {*faust.__all__, "VERSION", "VersionInfo", "version_info", "__version__"}
    assert {"App", "Record", "Worker", "uuid", "TumblingWindow"} <= names
    assert {name for name in names if getattr(ours, name) is not getattr(faust, name)} == {"App", "Worker"}
    for name in ("App", "Worker"):
        assert issubclass(getattr(ours, name), getattr(faust, name))


def test_what_neither_has_is_missing() -> None:
    with pytest.raises(
        AttributeError, match=r"^module 'streamsrt\.faust' has no attribute 'Tabel', and neither has faust$"
    ):
        _ = ours.Tabel


def test_the_page_names_the_modules_that_have_another_meaning() -> None:
    package = Path(faust.__file__).parent
    modules = {each.name.removesuffix(".py") for each in package.iterdir() if not each.name.startswith("_")}
    taken = sorted(name for name in modules if isinstance(getattr(ours, name, None), ModuleType) and _is_ours(name))
    assert "`, `".join(taken) in PAGE.read_text()


def _is_ours(name: str) -> bool:
    return str(getattr(ours, name).__name__).startswith("streamsrt")


def an_app() -> Any:
    return ours.App("shop", broker="kafka://localhost:1")


class Hooked(ours.Worker):
    """One with a method that Faust's worker calls."""

    async def on_first_start(self) -> None:
        raise AssertionError


def _of_livecheck() -> Any:
    return LiveCheck.for_app(ours.App("lively"), test_topic_name="tests")


REFUSED: list[tuple[str, Callable[..., Any]]] = [
    ("faust livecheck is not supported", lambda **given: ours.Worker(_of_livecheck(), **given)),
    ("Worker of shop: services ", lambda **given: ours.Worker(an_app(), faust.Service(), **given)),
    ("Worker of shop: sensors ", lambda **given: ours.Worker(an_app(), sensors=[faust.Monitor()], **given)),
    ("has a method on_first_start, which nobody ", lambda **given: Hooked(an_app(), **given)),
    ("the application shop has no agent", lambda **given: ours.Worker(an_app(), **given)),
]


@pytest.mark.parametrize(("message", "make"), REFUSED)
def test_what_would_not_run_is_one_message(make: Callable[..., Any], message: str) -> None:
    written = StringIO()
    with pytest.raises(SystemExit) as ended:
        make(stderr=written, override_logging=False).execute_from_commandline()
    assert ended.value.code == 2
    [line] = written.getvalue().splitlines()
    assert line.startswith("streamsrt: ")
    assert message in line


def one_line_of_worker(app: Any) -> str:
    written = StringIO()
    with pytest.raises(SystemExit):
        ours.Worker(app, stderr=written, override_logging=False).execute_from_commandline()
    [line] = written.getvalue().splitlines()
    return line


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("num.stream.threads", "STREAMSRT_CONFIG num.stream.threads: expected KEY=VALUE"),
        ("client.id='a", "STREAMSRT_CONFIG: No closing quotation: quote it as in a shell"),
        ("retries=1 num.stream.threads=many", "num.stream.threads"),
        ("num.stream.thread=2", "num.stream.thread"),
    ],
)
def test_settings_of_the_environment_that_are_wrong_are_one_message(
    monkeypatch: pytest.MonkeyPatch, given: str, message: str
) -> None:
    app = an_app()
    app.agent(app.topic("in"))(_read)
    monkeypatch.setenv("STREAMSRT_CONFIG", given)
    assert message in one_line_of_worker(app)


def test_settings_of_the_environment_come_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    app = ours.App("shop", broker="kafka://localhost:1", datadir=str(tmp_path), processing_guarantee="exactly_once")
    app.agent(app.topic("in"))(_read)
    used: list[StreamsConfig] = []

    def create_topics(_: object, settings: StreamsConfig) -> None:
        used.append(settings)
        raise UserError("enough")

    monkeypatch.setattr(imported, "create_topics", create_topics)
    monkeypatch.setenv("STREAMSRT_CONFIG", "processing.guarantee=at_least_once client.id='a b' num.stream.threads=2")
    assert one_line_of_worker(app) == "streamsrt: enough"
    (settings,) = used
    assert (settings.processing_guarantee, settings.client_id) == ("at_least_once", "a b")
    assert (settings.num_stream_threads, settings.state_dir) == (2, tmp_path)


async def _read(stream: Any) -> None:
    async for _ in stream:
        pass


@pytest.mark.parametrize(
    "start", [lambda: an_app().start(), lambda: ours.Worker(an_app()).start()], ids=["app", "worker"]
)
def test_it_does_not_start_in_the_loop_of_someone_else(start: Callable[[], Any]) -> None:
    with pytest.raises(UserError, match=r"^shop.*: an application of streamsrt\.faust does not run inside of another"):
        asyncio.run(start())


PROGRAM = """
import os

import streamsrt.faust as faust

app = faust.App("imported", broker="kafka://" + os.environ["BROKER"], topic_partitions=2, topic_replication_factor=1)
totals = app.Table("totals", default=int, key_type=str)
options = {"key_type": str, "key_serializer": "raw"}
sums = app.topic("imported-sums", value_type=int, **options)


class Order(faust.Record):
    item: str
    amount: int


@app.agent(app.topic("imported-orders", value_type=Order, **options))
async def add(orders):
    async for order in orders:
        totals[order.item] += order.amount
        await sums.send(key=order.item, value=totals[order.item])


@app.page("/total/{item}/")
async def total(self, request, item):
    return self.json({item: totals[item]})


@app.on_worker_init.connect
def on_init(app, **named):
    print("init", app.conf.id, flush=True)


if __name__ == "__main__":
    app.main()
"""


def environment_of(broker: str) -> dict[str, str]:
    return {**os.environ, "BROKER": broker, "PYTHONPATH": str(ROOT)}


def run_script(folder: Path, *arguments: str, broker: str = "localhost:1") -> subprocess.CompletedProcess[str]:
    (folder / "imported.py").write_text(PROGRAM, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "imported.py", *arguments],
        cwd=folder,
        env=environment_of(broker),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.system
@pytest.mark.slow
def test_a_script_with_another_import_runs_its_worker_here(bundled_broker: BundledBroker, tmp_path: Path) -> None:
    broker = bundled_broker.bootstrap_servers
    # A command is a client of the topics, as in Faust.
    assert "add" in run_script(tmp_path, "agents", broker=broker).stdout
    (port,) = free_ports(1)
    command = [sys.executable, "imported.py", "--datadir", "kept", "worker", "-l", "info", "-f", "written.log"]
    command += ["--web-port", str(port), "--web-bind", "127.0.0.1", "--blocking-timeout", "3"]
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment_of(broker), stdout=out, stderr=out)
    try:
        wait_for_topics(process, broker, tmp_path)
        producer = Producer({"bootstrap.servers": broker})
        for number in range(3):
            producer.produce("imported-orders", b'{"item": "tea", "amount": %d}' % (number + 1), "tea")
        assert producer.flush(PATIENCE_S) == 0
        consumer = Consumer(
            {"bootstrap.servers": broker, "group.id": "imported-reader", "auto.offset.reset": "earliest"}
        )
        try:
            consumer.subscribe(["imported-sums"])
            found = []
            while len(found) < 3 and (message := consumer.poll(PATIENCE_S)) is not None:
                found += [] if message.error() else [(message.key(), message.value())]
        finally:
            consumer.close()
        assert found == [(b"tea", b"1"), (b"tea", b"3"), (b"tea", b"6")], said(tmp_path)
        wait_for_page(process, f"http://127.0.0.1:{port}/total/tea/", b'{"tea":6}', tmp_path / "out")
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, said(tmp_path)
    finally:
        process.kill()
        process.wait()
    printed = (tmp_path / "out").read_text(encoding="utf-8")
    assert "imported runs on streamsrt " in printed
    assert "its tables are stored below kept" in printed
    assert (tmp_path / "kept").is_dir()
    # Faust sends it twice, too.
    assert printed.count("init imported") == 2
    assert "-> RUNNING" in (tmp_path / "written.log").read_text(encoding="utf-8")


def wait_for_topics(process: subprocess.Popen[bytes], broker: str, folder: Path) -> None:
    """Until the application has created them."""
    admin = AdminClient({"bootstrap.servers": broker})
    while not {"imported-orders", "imported-sums"} <= set(admin.list_topics(timeout=PATIENCE_S).topics):
        try:
            process.wait(0.3)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(said(folder))


def said(folder: Path) -> str:
    """What a worker has printed and logged."""
    return "".join(each.read_text()[-3000:] for each in (folder / "out", folder / "written.log") if each.is_file())
