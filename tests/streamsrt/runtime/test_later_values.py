"""A version that follows a later one with its state directory: what it keeps and deletes, and what it is refused for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamsrt.client.network import ClientConfig, NetworkThread
from streamsrt.client.values import CallAbandonedError, NewTopic
from streamsrt.errors import TopologyMismatchError
from streamsrt.runtime.later_values import settle_later_values
from streamsrt.runtime.topology_version import LocalVersion
from streamsrt.state.directory import StateDirectory
from streamsrt.wire.records import encode_batch
from tests.fixtures_brokers import BundledBroker
from topology import Store, StreamsBuilder, Upcast, serdes
from topology.graph.topology import Topology
from topology.spec.row_versions import MAGIC

WAIT_S = 30.0
PLAIN, TAGGED = b"plain", MAGIC + (2).to_bytes(2, "big") + b"value"


def kept(store: Store, *, epoch: int = 0, size: bool = False) -> Topology:
    builder = StreamsBuilder()
    rows = builder.stream("in", key=serdes.string, value=serdes.string).group_by_key()
    serde = serdes.long if size else serdes.string
    rows.aggregate(str, lambda key, value, last: value, store=store, value=serde)
    return builder.build(epoch=epoch).with_default_serdes()


def first(*, logging: bool = True, epoch: int = 2, size: bool = False) -> Topology:
    return kept(Store("rows", logging=logging), epoch=epoch, size=size)


def second(*, logging: bool = True) -> Topology:
    upcast = {1: Upcast(str.upper, serde=serdes.string)}
    return kept(Store("rows", version=2, upcast=upcast, logging=logging), epoch=1)


class Scene:
    """The state directory of an instance that ran the second version, and the changelog of its store."""

    def __init__(self, network: NetworkThread, folder: Path, application_id: str) -> None:
        self.network, self.folder, self.application_id = network, folder, application_id
        self.changelog = f"{application_id}-rows-changelog"
        self.stopping = False

    def logged(self, *values: bytes | None) -> None:
        for number, value in enumerate(values):
            self.network.producer.send(self.changelog, 0, encode_batch([b"%d" % number], [value], [0]), 1)
        self.network.producer.flush(WAIT_S)

    def on_disk(self, *values: bytes, offset: int, logging: bool = True) -> None:
        """Files with these rows, of the second version."""
        topology = second(logging=logging)
        with StateDirectory(self.folder, self.application_id) as directory:
            (spec,) = topology.subtopologies[0].stores
            store = directory.open_store(spec, 0)
            store.write([(b"%d" % number, value) for number, value in enumerate(values)], changelog_offset=offset)
            LocalVersion(directory.path, topology).remember()

    def follow(self, topology: Topology) -> list[int]:
        """The partitions that are on disk then, when this version starts."""
        with StateDirectory(self.folder, self.application_id) as directory:
            version = LocalVersion(directory.path, topology)
            version.check()
            settle_later_values(self.network, self.application_id, topology, version, directory, lambda: self.stopping)
            return directory.partitions_of("rows")


@pytest.fixture
def scene(bundled_broker: BundledBroker, tmp_path: Path) -> Iterator[Scene]:
    network = NetworkThread(ClientConfig(bootstrap_servers=bundled_broker.bootstrap_servers), restores_apart=True)
    network.start()
    made = Scene(network, tmp_path, f"later-{tmp_path.name}".replace("_", "-")[:60])
    assert network.admin.create_topics([NewTopic(name=made.changelog, partitions=1)]) == {made.changelog: None}
    yield made
    network.admin.delete_topics([made.changelog])
    network.stop()


def test_files_without_later_values_are_kept(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.logged(PLAIN, PLAIN)
    scene.on_disk(PLAIN, PLAIN, offset=2)
    assert scene.follow(first()) == [0]
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def test_files_with_later_values_are_restored_if_the_changelog_has_none(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.logged(PLAIN, PLAIN, None)
    scene.on_disk(PLAIN, TAGGED, offset=2)
    assert scene.follow(first()) == []
    (told,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert told.startswith(
        "store rows of partition 0: its files have values of version 2, and this version reads values"
    )
    assert "the files are deleted, and it is restored from its changelog" in told


def test_damaged_files_are_restored_if_the_changelog_has_no_later_values(scene: Scene) -> None:
    scene.logged(PLAIN)
    scene.on_disk(PLAIN, offset=1)
    (scene.folder / scene.application_id / "stores" / "rows" / "0" / "CURRENT").write_text("gone\n")
    assert scene.follow(first()) == []


@pytest.mark.parametrize("in_files", [PLAIN, TAGGED])
@pytest.mark.parametrize("later", [0, 1_100])
def test_later_values_in_the_changelog_leave_no_way_back(scene: Scene, in_files: bytes, later: int) -> None:
    """``later``: so many records came after them: a rollback looks at fewer."""
    scene.logged(*[PLAIN] * 3, TAGGED, *[PLAIN] * later)
    scene.on_disk(PLAIN, in_files, offset=2)
    with pytest.raises(TopologyMismatchError, match="can't read what a later one has written") as raised:
        scene.follow(first())
    assert f"its changelog {scene.changelog} has values of version 2, and it reads them up to 1" in str(raised.value)
    assert "There is no way back: continue with the later version, or a corrected one" in str(raised.value)
    with StateDirectory(scene.folder, scene.application_id) as directory:
        assert directory.partitions_of("rows") == [0], "nothing is deleted"
    assert scene.follow(second()) == [0], "it reads them"


def test_later_values_that_are_overwritten_where_files_end_are_no_obstacle(scene: Scene) -> None:
    scene.logged(TAGGED, *[PLAIN] * 1_100)
    scene.on_disk(PLAIN, PLAIN, offset=1_000)
    assert scene.follow(first()) == [0]


def test_a_directory_without_files_of_the_store_is_judged_by_the_end_of_its_changelog(scene: Scene) -> None:
    scene.logged(PLAIN, TAGGED)
    scene.on_disk(PLAIN, offset=0)
    with StateDirectory(scene.folder, scene.application_id) as directory:
        directory.wipe("rows", 0)
    with pytest.raises(TopologyMismatchError, match="There is no way back"):
        scene.follow(first())


@pytest.mark.parametrize("value", [PLAIN, TAGGED])
def test_without_a_changelog_the_files_decide(scene: Scene, value: bytes) -> None:
    scene.on_disk(value, offset=0, logging=False)
    if value == PLAIN:
        assert scene.follow(first(logging=False)) == [0]
        return
    with pytest.raises(TopologyMismatchError, match="it has no changelog to be restored from") as raised:
        scene.follow(first(logging=False))
    assert f"its files in {scene.folder / scene.application_id / 'stores' / 'rows' / '0'} have values of" in str(
        raised.value
    )


def test_what_was_there_before_the_later_values_is_still_compared(scene: Scene) -> None:
    scene.logged(PLAIN)
    scene.on_disk(PLAIN, offset=1)
    with pytest.raises(TopologyMismatchError, match=r"value_serde serdes\.string -> serdes\.long|value_serde"):
        scene.follow(first(size=True))
    with pytest.raises(TopologyMismatchError, match="both have topology epoch 1"):
        scene.follow(first(epoch=1))


def test_an_instance_that_is_stopped_looks_no_further(scene: Scene) -> None:
    scene.logged(PLAIN)
    scene.on_disk(PLAIN, offset=1)
    scene.stopping = True
    with pytest.raises(CallAbandonedError):
        scene.follow(first())
