"""The version that ran last with a state directory, and those of the other members."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from streamsrt.errors import StateError, TopologyMismatchError
from streamsrt.membership.classic.layout import encode_assignment
from streamsrt.membership.classic.values import PROTOCOL_NAME, ClassicAssignment
from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.membership.values import Endpoint, GroupMembership
from streamsrt.runtime.topology_version import (
    LocalVersion,
    check_members,
    check_replaced,
    digest_tag,
    warn_of_shared_endpoint,
)
from streamsrt.wire.client_tags import TOPOLOGY_DIGEST
from streamsrt.wire.types import DescribeGroupsResponse, StreamsGroupHeartbeatRequest
from streamsrt.wire.types import StreamsGroupDescribeResponse as Response
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology
from topology.spec.codecs import Serde


def counting(epoch: int = 0, *, filtered: bool = False, key: Serde[str] | Serde[bytes] = serdes.string) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("words", key=key, value=serdes.string)
    if filtered:
        stream = stream.filter(lambda _key, value: bool(value))
    stream.group_by_key().count(store="counts").to_stream().to("out")
    return builder.build(epoch=epoch).with_default_serdes()


def run(folder: Path, topology: Topology) -> None:
    version = LocalVersion(folder, topology)
    version.check()
    version.remember()


def test_the_same_version_and_a_newer_one_follow(tmp_path: Path) -> None:
    run(tmp_path, counting())
    run(tmp_path, counting())
    run(tmp_path, counting(1, filtered=True))
    run(tmp_path, counting(1, filtered=True))
    # Which one is newer is not judged here.
    run(tmp_path, counting(0))


def test_another_topology_under_the_same_epoch_is_refused(tmp_path: Path) -> None:
    run(tmp_path, counting())
    other = LocalVersion(tmp_path, counting(filtered=True))
    with pytest.raises(TopologyMismatchError) as raised:
        other.check()
    assert "topology.epoch=1" in str(raised.value)
    assert f"streamsrt topology diff {tmp_path / 'topology.json'} NEW" in str(raised.value)
    assert raised.value.exit_code == 2


def test_a_version_that_was_refused_leaves_no_trace(tmp_path: Path) -> None:
    run(tmp_path, counting())
    LocalVersion(tmp_path, counting(1, filtered=True)).check()
    run(tmp_path, counting())


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_store_that_would_be_misread_is_refused(tmp_path: Path, epoch: int) -> None:
    run(tmp_path, counting())
    with pytest.raises(TopologyMismatchError, match=r"counts|topology epoch 0"):
        LocalVersion(tmp_path, counting(epoch, key=serdes.bytes)).check()


def test_another_default_serde_is_refused_though_the_digest_is_the_same(tmp_path: Path) -> None:
    def made(default: Serde[str] | Serde[bytes]) -> Topology:
        builder = StreamsBuilder()
        builder.stream("words").group_by_key().count(store="counts").to_stream().to("out")
        return builder.build().with_default_serdes(default, serdes.string)

    assert made(serdes.string).digest == made(serdes.bytes).digest
    run(tmp_path, made(serdes.string))
    with pytest.raises(TopologyMismatchError, match="would be misread"):
        LocalVersion(tmp_path, made(serdes.bytes)).check()


def test_a_damaged_file_is_as_none(tmp_path: Path) -> None:
    (tmp_path / "topology.json").write_text("{", encoding="utf-8")
    run(tmp_path, counting())
    with pytest.raises(TopologyMismatchError):
        LocalVersion(tmp_path, counting(filtered=True)).check()


def test_a_version_that_can_not_be_written_down_is_an_error_of_the_state(tmp_path: Path) -> None:
    """Which ends an instance as others of these do, with its membership."""
    with pytest.raises(StateError, match=r"the version of the topology in .*topology\.json can't be written"):
        run(tmp_path / "gone", counting())


def group(epoch: int, tags: Mapping[str, str]) -> Response.DescribedGroup:
    member = Response.Member(
        member_id="m",
        client_host="/10.0.0.7",
        topology_epoch=epoch,
        client_tags=[Response.KeyValue(key=key, value=value) for key, value in tags.items()],
    )
    return Response.DescribedGroup(group_id="app", members=[member])


def test_a_member_with_another_topology_under_the_same_epoch_is_refused() -> None:
    mine, other = counting(), counting(filtered=True)
    with pytest.raises(TopologyMismatchError, match=r"10\.0\.0\.7.*topology\.epoch=1"):
        check_members("app", mine, group(0, digest_tag(other)))
    for fine in (group(0, digest_tag(mine)), group(1, digest_tag(other)), group(0, {}), group(0, {"zone": "a"})):
        check_members("app", mine, fine)
    check_members("app", replace(mine, epoch=1), group(0, digest_tag(other)))
    check_members("app", mine, Response.DescribedGroup(group_id="app", error_code=69))


def passing(topic: str | re.Pattern[str], epoch: int = 0) -> Topology:
    builder = StreamsBuilder()
    builder.stream(topic, key=serdes.string, value=serdes.string).to("out")
    return builder.build(epoch=epoch).with_default_serdes()


def running(topology: Topology) -> Response.DescribedGroup:
    """A group whose only member runs this topology."""
    told = [
        Response.Subtopology(
            subtopology_id=part.subtopology_id,
            source_topics=part.source_topics,
            state_changelog_topics=[Response.TopicInfo(name=each.name) for each in part.state_changelog_topics],
        )
        for part in topology_metadata(topology, "app").subtopologies
    ]
    found = group(topology.epoch, digest_tag(topology))
    found.topology = Response.Topology(epoch=topology.epoch, subtopologies=told)
    return found


def test_another_application_is_told_to_take_another_id_first(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TopologyMismatchError) as raised:
        check_members("app", passing("payments"), running(counting()))
    said = str(raised.value)
    assert "another application: the two have no source topic, repartition topic and store in common" in said
    assert said.index("give it another application.id") < said.index("topology.epoch=1")
    check_members("app", passing("payments", epoch=1), running(counting()))
    assert (
        "takes all tasks of the members of the group, as its topology epoch, 1, is later, but seems to be"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (passing("words"), counting()),
        (passing(re.compile("pay.*")), counting()),
        (counting(), passing(re.compile("pay.*"))),
    ],
)
def test_a_version_that_may_read_what_the_group_reads_is_no_other_application(
    mine: Topology, theirs: Topology, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TopologyMismatchError, match=r"another topology under the same topology epoch 0\. If "):
        check_members("app", mine, running(theirs))
    check_members("app", replace(mine, epoch=1), running(theirs))
    check_members(
        "app", passing("payments"), Response.DescribedGroup(group_id="app", topology=running(theirs).topology)
    )
    assert not caplog.text


def test_another_instance_with_the_same_endpoint_is_named(caplog: pytest.LogCaptureFixture) -> None:
    own = GroupMembership(
        group_id="app",
        member_id="me",
        process_id="p1",
        topology=StreamsGroupHeartbeatRequest.Topology(epoch=0, subtopologies=[]),
        endpoint=Endpoint("app.example", 8080),
    )

    def described(process_id: str, port: int) -> Response.DescribedGroup:
        found = group(0, {})
        found.members[0].process_id = process_id
        found.members[0].user_endpoint = Response.Endpoint(host="app.example", port=port)
        return found

    for fine in (described("p2", 8081), described("p1", 8080), group(0, {})):
        warn_of_shared_endpoint(fine, own)
    assert not caplog.messages
    warn_of_shared_endpoint(described("p2", 8080), own)
    (told,) = caplog.messages
    assert told.startswith(
        "member me, which is this instance, and member m on 10.0.0.7 have the same application.server app.example:8080: "
    )


def test_the_tag_fits_where_tags_are_limited() -> None:
    assert len(TOPOLOGY_DIGEST) <= 20
    assert len(digest_tag(counting())[TOPOLOGY_DIGEST]) <= 30


def test_an_instance_that_would_be_refused_does_not_end_the_one_whose_id_it_has() -> None:
    def group(*, told: bytes, state: str = "Stable") -> DescribeGroupsResponse.DescribedGroup:
        member = DescribeGroupsResponse.DescribedGroupMember(
            member_id="m-1", group_instance_id="pod-0", client_host="/10.0.0.1", member_assignment=told
        )
        return DescribeGroupsResponse.DescribedGroup(
            group_id="app", group_state=state, protocol_data=PROTOCOL_NAME, members=[member]
        )

    newer = group(told=encode_assignment(ClassicAssignment(generation=3, group_epoch=1)))
    with pytest.raises(TopologyMismatchError, match="would be ended by this one, so this one does not join") as raised:
        check_replaced(newer, "pod-0", counting(0))
    assert "runs topology epoch 1, and this version has epoch 0" in str(raised.value)
    assert "pod-0 is in the group (member m-1 on 10.0.0.1)" in str(raised.value)
    check_replaced(newer, "pod-1", counting(0))
    check_replaced(newer, "pod-0", counting(1))
    # While it rebalances, a group tells nothing.
    check_replaced(group(told=b"", state="PreparingRebalance"), "pod-0", counting(0))
