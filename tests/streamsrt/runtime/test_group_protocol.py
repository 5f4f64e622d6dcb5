"""``group.protocol=auto``: what decides, and that it does so on the brokers that there are."""

from __future__ import annotations

import itertools
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.client.network import BlockingAdmin, NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic
from streamsrt.config import StreamsConfig
from streamsrt.errors import StreamsError
from streamsrt.membership.errors import MembershipRefusedError, OtherGroupProtocolError
from streamsrt.runtime.group_protocol import GroupProtocol, Seen, decided
from streamsrt.runtime.values import State
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from tests.fixtures_brokers import BundledBroker
from tests.kafka_server import VERSION
from topology import StreamsBuilder

PATIENCE_S = 60.0
WITH_STREAMS_GROUPS = {"bundled", VERSION}
_NUMBERS = itertools.count()

Start = Callable[[str | None], KafkaStreams]


@pytest.mark.parametrize(
    ("seen", "protocol", "why"),
    [
        (
            Seen(False, 0, True),
            "streams",
            "its group has no members with either protocol, and the broker serves the whole of KIP-1071",
        ),
        (Seen(False, 0, False), "classic", "the broker does not serve the whole of KIP-1071"),
        (Seen(False, 2, True), "classic", "that is the protocol of its group (members: 2)"),
        (Seen(False, 1, False), "classic", "that is the protocol of its group (members: 1)"),
        (Seen(True, 0, True), "streams", "that is the protocol of its group"),
        (Seen(True, 0, False), "streams", "that is the protocol of its group"),
        (Seen(False, 0, True, True), "classic", "its group has consumers with group.protocol=consumer"),
        # Brokers that migrate groups have members of the classic protocol in streams groups.
        (Seen(True, 1, True), "streams", "that is the protocol of its group"),
    ],
)
def test_the_group_decides_and_then_the_broker(seen: Seen, protocol: str, why: str) -> None:
    decision = decided(seen)
    assert decision.protocol == protocol
    assert why in decision.why


def auto(group_id: str, **settings: object) -> StreamsConfig:
    return StreamsConfig.of({"application.id": group_id, "group.protocol": "auto"}, **settings)


@contextmanager
def connected(servers: str) -> Iterator[NetworkThread]:
    network = NetworkThread(ClientConfig(bootstrap_servers=servers))
    network.start(20.0)
    try:
        yield network
    finally:
        network.stop()


@pytest.fixture
def admin(bundled_broker: BundledBroker) -> Iterator[BlockingAdmin]:
    with connected(bundled_broker.bootstrap_servers) as network:
        yield network.admin


@pytest.fixture
def version(request: pytest.FixtureRequest) -> str:
    """The one of ``any_version``."""
    return str(request.node.callspec.params["any_version"])


@pytest.fixture
def any_admin(any_version: str) -> Iterator[BlockingAdmin]:
    with connected(any_version) as network:
        yield network.admin


@pytest.fixture
def name() -> str:
    return f"auto-{next(_NUMBERS)}"


@pytest.fixture
def start(any_version: str, any_admin: BlockingAdmin, name: str, tmp_path: Path) -> Iterator[Start]:
    """Starts an instance with a protocol, None: with none given. Returns when it is running."""
    any_admin.create_topics([NewTopic(name=each, partitions=2) for each in (name, f"{name}-out")])
    numbers = itertools.count()
    with ExitStack() as stack:

        def started(protocol: str | None) -> KafkaStreams:
            changed = threading.Event()
            states: list[State] = []
            builder = StreamsBuilder()
            builder.stream(name).to(f"{name}-out")
            config = {
                "application.id": f"{name}-app",
                "bootstrap.servers": any_version,
                "state.dir": tmp_path / str(next(numbers)),
                **({} if protocol is None else {"group.protocol": protocol}),
            }

            def listen(new: State, _: State) -> None:
                states.append(new)
                if new is not State.REBALANCING:
                    changed.set()

            streams = stack.enter_context(KafkaStreams(builder.build(), config, state_listener=listen))
            assert changed.wait(PATIENCE_S)
            # It may rebalance again at once: Apache Kafka's group coordinator hears of new topics later than the client.
            assert State.RUNNING in states
            return streams

        yield started


def kind_of(admin: BlockingAdmin, name: str) -> tuple[str, str]:
    """The group's protocol type; its type as well, where the broker tells that."""
    return next(
        (group.group_type.lower(), group.protocol_type)
        for group in admin.list_groups()
        if group.group_id == f"{name}-app"
    )


KINDS = {"streams": ("streams", "streams"), "classic": ("classic", "consumer")}


def chosen(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The protocols that the log tells of, in order."""
    told = [text for text in caplog.messages if text.startswith("group.protocol=auto: ")]
    return [text.split(": ")[1].rpartition("=")[2] for text in told]


def test_of_a_new_group_the_broker_decides_where_no_protocol_is_given(
    start: Start, any_admin: BlockingAdmin, version: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    expected = "streams" if version == "bundled" else "classic"
    start(None)
    assert kind_of(any_admin, name) == KINDS[expected]
    assert chosen(caplog) == [expected]
    assert (
        f"application {name}-app uses group.protocol={expected}: its group has no members with either protocol, and "
        in caplog.text
    )


@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_a_group_that_has_members_is_joined_by_its_protocol(
    start: Start, any_admin: BlockingAdmin, version: str, name: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    if protocol == "streams" and version not in WITH_STREAMS_GROUPS:
        pytest.skip("this broker has no streams groups")
    first = start(protocol)
    second = start(None)
    assert kind_of(any_admin, name) == KINDS[protocol]
    assert chosen(caplog) == [protocol]
    assert f"application {name}-app uses group.protocol={protocol}: that is the protocol of its group" in caplog.text
    second.close()
    first.close()
    expected = "streams" if version == "bundled" else protocol
    later = GroupProtocol().settle(auto(f"{name}-app"), any_admin)
    assert later.group_protocol == expected, "a streams group stays one also while nobody is in it"


@pytest.mark.parametrize("protocol", [None, "classic", "streams"])
def test_a_group_of_consumers_is_refused_whatever_the_protocol(
    any_version: str, any_admin: BlockingAdmin, version: str, name: str, protocol: str | None, tmp_path: Path
) -> None:
    if version not in WITH_STREAMS_GROUPS:
        pytest.skip("this broker has classic groups only")
    any_admin.create_topics([NewTopic(name=name, partitions=2)])
    group = f"{name}-app"
    # Until there is a coordinator.
    any_admin.describe_classic_groups([group])
    beat = types.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=str(uuid.uuid4()),
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[name],
        topic_partitions=[],
    )
    with connected(any_version) as network:
        joined = network.request(beat, coordinator_of=group).result(PATIENCE_S)
        assert joined.error_code == 0, joined.error_message
        builder = StreamsBuilder()
        builder.stream(name)
        config = {
            "application.id": group,
            "bootstrap.servers": any_version,
            "state.dir": tmp_path,
            **({} if protocol is None else {"group.protocol": protocol}),
        }
        with pytest.raises(OtherGroupProtocolError) as refused:
            KafkaStreams(builder.build(), config).run(timeout_s=PATIENCE_S)
    assert group in str(refused.value)
    assert "group.protocol=consumer" in str(refused.value) or protocol != "classic"


class _WhenSaid(logging.Handler):
    """Does something, once, as soon as a text is logged: before who logs it goes on."""

    def __init__(self, text: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._text = text
        self._act: Callable[[], object] | None = act

    def emit(self, record: logging.LogRecord) -> None:
        if self._act is not None and self._text in record.getMessage():
            act, self._act = self._act, None
            act()


def test_where_another_protocol_comes_first_it_is_decided_once_more(
    start: Start, any_admin: BlockingAdmin, version: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    if version not in WITH_STREAMS_GROUPS:
        pytest.skip("this broker has classic groups only")
    if version == "bundled":
        pytest.skip("this broker lets the members of a classic group and of a streams group be one group")
    mine, other = "classic", "streams"
    handler = _WhenSaid(f"uses group.protocol={mine}: ", lambda: start(other))
    log = logging.getLogger("streamsrt.runtime.group_protocol")
    log.addHandler(handler)
    try:
        start("auto")
    finally:
        log.removeHandler(handler)
    assert kind_of(any_admin, name) == KINDS[other]
    assert chosen(caplog) == [mine, other]


def test_on_the_bundled_broker_both_protocols_are_one_group(
    start: Start, any_admin: BlockingAdmin, version: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    if version != "bundled":
        pytest.skip("only the bundled broker makes a streams group of a classic one that has members")
    handler = _WhenSaid("uses group.protocol=streams: ", lambda: start("classic"))
    log = logging.getLogger("streamsrt.runtime.group_protocol")
    log.addHandler(handler)
    try:
        start("auto")
    finally:
        log.removeHandler(handler)
    assert kind_of(any_admin, name) == KINDS["streams"]
    assert chosen(caplog) == ["streams"]


def test_it_is_decided_once_more_and_no_third_time(admin: BlockingAdmin, name: str) -> None:
    protocol, config = GroupProtocol(), auto(name)
    refused = OtherGroupProtocolError("another protocol")
    assert not protocol.decides_again(refused), "nothing was decided"
    settled = protocol.settle(config, admin)
    assert protocol.settle(config, admin) is settled, "for stream threads that take the place of others"
    assert not protocol.decides_again(MembershipRefusedError("full", ErrorCode.GROUP_MAX_SIZE_REACHED))
    assert not protocol.decides_again(StreamsError("another failure"))
    assert protocol.decides_again(refused)
    assert protocol.settle(config, admin) is not settled
    assert not protocol.decides_again(refused)


def test_settings_of_classic_groups_have_no_effect_when_it_is_a_streams_group(
    admin: BlockingAdmin, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = auto(name, session_timeout_ms=7_000)
    assert config.session_timeout_ms == 7_000
    assert not caplog.records
    settled = GroupProtocol().settle(config, admin)
    assert (settled.group_protocol, settled.session_timeout_ms) == ("streams", 45_000)
    assert "session.timeout.ms has no effect" in caplog.text


def test_a_protocol_that_is_given_is_taken(admin: BlockingAdmin) -> None:
    config = StreamsConfig.of({"application.id": "a", "group.protocol": "classic"})
    protocol = GroupProtocol()
    assert protocol.settle(config, admin) is config
    assert not protocol.decides_again(OtherGroupProtocolError("another protocol"))
