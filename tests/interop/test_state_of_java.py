"""The state of an application in Java becomes that of one of ours under another name, which goes on exactly there."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

import pytest

from tests.interop.counting import JAVAS, OURS, Scene, take_over
from tests.interop.java_instances import JOINING, PATIENCE_S, JavaInstance
from tests.system.cluster import Cluster, Row, connected, last_values
from tests.system.processes import AppProcess

pytestmark = [pytest.mark.system, pytest.mark.kafka, pytest.mark.full]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("program", ["topology", "in_more_partitions"])
def test_an_application_takes_over_what_java_has_counted(scene: Scene, program: str) -> None:
    java = scene.java("java")
    scene.feed()
    scene.wait_counted()
    java.stop()
    scene.feed()
    with scene.heir(f"{scene.application}-heir", program) as ours:
        scene.wait_counted()
        scene.feed()
        scene.wait_counted()
        assert ours.terminate() == 0
    scene.assert_exact()
    assert not [line for line in java.lines if "error" in line]


class Library:
    """Books and authors, in topics with unlike numbers of partitions, and who joins them by foreign key."""

    partitions = 4
    of_authors = 3

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.application = f"joined-{uuid.uuid4().hex[:12]}"
        self._cluster = cluster
        self._folder = folder
        self.books, self.shelved = f"{self.application}-in", f"{self.application}-out"
        self.authors = f"{self.books}-authors"
        cluster.make_topics(self.partitions, self.books, self.shelved)
        cluster.make_topics(self.of_authors, self.authors)
        self._rows: dict[str, dict[str, str | None]] = {self.books: {}, self.authors: {}}

    def java(self) -> JavaInstance:
        address = self._cluster.address
        return JavaInstance(self._folder, "java", address, self.application, "java", JAVAS, program=JOINING)

    def heir(self) -> AppProcess:
        program, heir, address = "tests.interop.joining_app:topology", f"{self.application}-heir", self._cluster.address
        topics = {"JOINING_INPUT": self.books, "JOINING_OUTPUT": self.shelved}
        take_over(program, heir, self.application, address, self._folder / "plan", topics)
        self.application = heir
        return AppProcess(self._folder / "heir", program, heir, address, OURS, surroundings=topics)

    def write(self, topic: str, rows: dict[str, str | None]) -> None:
        self._rows[topic].update(rows)
        encoded = [Row(key.encode(), None if value is None else value.encode()) for key, value in rows.items()]
        self._cluster.write(topic, encoded, self.of_authors if topic == self.authors else self.partitions)

    def wait_joined(self) -> None:
        between = (f"{self.application}-shelf-subscription-{name}-topic" for name in ("registration", "response"))
        # The group makes the others when it begins.
        self._cluster.wait_all_committed(self.application, self.books, self.authors, timeout_s=PATIENCE_S)
        topics = (self.books, self.authors, *between)
        self._cluster.wait_all_committed(self.application, *topics, timeout_s=PATIENCE_S)

    def expected(self) -> dict[bytes | None, bytes | None]:
        names = self._rows[self.authors]
        return {
            key.encode(): None if book is None else f"{book} by {names.get(book.split('/')[0]) or 'null'}".encode()
            for key, book in self._rows[self.books].items()
        }

    def found(self) -> dict[bytes | None, bytes | None]:
        """``None``, which Python writes where Java writes ``null``, is that."""
        records = last_values(self._cluster.read(self.shelved)).items()
        return {key: value and value.replace(b" by None", b" by null") for key, value in records}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("broker", ["bundled_broker", "apache_kafka"])
def test_an_application_takes_over_what_java_has_joined(
    broker: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with connected(request.getfixturevalue(broker)) as cluster, contextlib.ExitStack() as stack:
        library = Library(cluster, tmp_path)
        java = library.java()
        stack.callback(java.stop)
        library.write(library.authors, {f"a{n}": f"Ann {n}" for n in range(8)})
        library.write(library.books, {f"b{n}": f"a{n % 12}/Book {n}" for n in range(40)})
        library.wait_joined()
        java.stop()
        assert library.found() == library.expected()
        assert not [line for line in java.lines if "error" in line]
        # Authors of known books come, get other names, and go; books change their authors, come, and go.
        library.write(library.authors, {**{f"a{n}": f"Bo {n}" for n in range(4, 12)}, "a0": None})
        library.write(library.books, {**{f"b{n}": f"a{n % 7}/New {n}" for n in range(20, 50)}, "b1": None})
        with library.heir() as ours:
            library.wait_joined()
            assert library.found() == library.expected()
            library.write(library.authors, {"a1": "Cy 1", "a0": "Cy 0"})
            library.write(library.books, {"b2": "a1/Last 2", "b3": "a0/Last 3"})
            library.wait_joined()
            assert ours.terminate() == 0
        assert library.found() == library.expected()
