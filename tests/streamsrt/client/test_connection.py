"""Reaching a broker: what is wrong is said in one message, by whose fault it is."""

from __future__ import annotations

import socket
import struct

import pytest

from streamsrt.client.cluster import parse_servers
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, OffsetAndMetadata, SecurityConfig
from streamsrt.errors import BrokerUnreachableError, ConfigError, NotABrokerError, UnsupportedBrokerError
from streamsrt.wire import types
from streamsrt.wire.schema import ApiKey
from tests.kafka_server import free_ports
from tests.streamsrt.client.conftest import Connect
from tests.streamsrt.client.scripted_broker import DROP, ScriptedBroker

pytestmark = pytest.mark.waits


def start(servers: str, timeout_s: float = 0.5, **settings: object) -> None:
    network = NetworkThread(ClientConfig(bootstrap_servers=servers, **settings))  # type: ignore[arg-type]
    try:
        network.start(timeout_s)
    finally:
        network.stop()


def test_nobody_there_names_the_address_and_what_to_do() -> None:
    (port,) = free_ports(1)
    with pytest.raises(BrokerUnreachableError, match=rf"127\.0\.0\.1:{port}.*(?s:.)*Check the address"):
        start(f"127.0.0.1:{port}")


def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    with pytest.raises(BrokerUnreachableError, match=r"nowhere\.invalid:9092"):
        start("nowhere.invalid:9092")


def test_somebody_who_never_answers_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(BrokerUnreachableError, match=f"{address} did not answer within 200 ms"):
            start(address, connection_setup_timeout_ms=200)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x03\x00\x02\x02\x28",
        struct.pack(">ii", 8, 77) + b"abcd",
        struct.pack(">ii", 4 + 9, 1) + b"\xff" * 9,
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
    ],
    ids=["http", "ssh", "tls alert", "foreign id", "malformed", "negative size", "empty frame"],
)
def test_whoever_speaks_something_else_is_no_broker(broker: ScriptedBroker, answer: bytes) -> None:
    broker.raw = answer
    with pytest.raises(NotABrokerError, match=rf"{broker.address} answers, but not in Kafka's protocol.*HTTP port"):
        start(broker.address, timeout_s=10.0)


def test_a_listener_that_hangs_up_hints_at_the_security_protocol(broker: ScriptedBroker) -> None:
    broker.hooks[ApiKey.API_VERSIONS] = lambda _: DROP
    with pytest.raises(BrokerUnreachableError, match=r"security\.protocol"):
        start(broker.address)


def test_a_listener_that_hangs_up_after_the_versions_may_ask_for_sasl(broker: ScriptedBroker) -> None:
    broker.hooks[ApiKey.METADATA] = lambda _: DROP
    with pytest.raises(BrokerUnreachableError, match=r"asks for SASL \(security\.protocol is PLAINTEXT\)"):
        start(broker.address)


def test_one_reachable_bootstrap_server_is_enough(broker: ScriptedBroker, connect: Connect) -> None:
    (port,) = free_ports(1)
    network = connect(f"127.0.0.1:{port},{broker.address}")
    assert network.admin.cluster().cluster_id == "scripted"


def test_a_broker_that_comes_up_late_is_waited_for(broker: ScriptedBroker) -> None:
    broker.go_down()
    broker._loop.call_soon_threadsafe(broker._loop.call_later, 0.3, lambda: broker._loop.create_task(broker._listen()))
    start(broker.address, timeout_s=20.0)
    assert broker.connections > 0


def test_an_older_broker_settles_the_version_of_api_versions(broker: ScriptedBroker, connect: Connect) -> None:
    broker.versions[ApiKey.API_VERSIONS] = (0, 2)

    def refuse(_: types.ApiVersionsRequest) -> object:
        if broker.count(types.ApiVersionsRequest) > 1:
            return None
        keys = [types.ApiVersionsResponse.ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)]
        return types.ApiVersionsResponse(error_code=35, api_keys=keys)

    broker.hooks[ApiKey.API_VERSIONS] = refuse
    network = connect(broker.address)
    assert network.admin.cluster().api_versions[ApiKey.FETCH] == (4, 12)


def test_a_broker_without_an_api_is_named_with_what_is_needed(broker: ScriptedBroker, connect: Connect) -> None:
    del broker.versions[ApiKey.STREAMS_GROUP_HEARTBEAT]
    network = connect(broker.address)
    request = types.StreamsGroupHeartbeatRequest(group_id="g", member_id="m")
    with pytest.raises(UnsupportedBrokerError, match=r"STREAMS_GROUP_HEARTBEAT \(key 88\).*Kafka 4\.2 or later"):
        network.request(request, coordinator_of="g").result(10.0)


def test_a_broker_without_producer_ids_is_named_with_the_kafka_that_has_none(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """Kafka 2.8 in KRaft mode."""
    del broker.versions[ApiKey.INIT_PRODUCER_ID]
    network = connect(broker.address)
    request = types.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    with pytest.raises(UnsupportedBrokerError, match=r"Kafka 2\.8 in KRaft mode .* run it with ZooKeeper"):
        network.request(request).result(10.0)


def test_a_broker_with_other_versions_is_told_both_ranges(broker: ScriptedBroker, connect: Connect) -> None:
    broker.versions[ApiKey.OFFSET_COMMIT] = (2, 6)
    network = connect(broker.address)
    with pytest.raises(UnsupportedBrokerError, match="serves versions 2 to 6, and version 7 to 9 is needed"):
        network.admin.commit("g", {("t", 0): OffsetAndMetadata(1)}, member_id="m", member_epoch=1)


@pytest.mark.parametrize("servers", ["", "host", "host:", ":9092", "host:port", "host:0", "host:70000", "a:1,b"])
def test_a_malformed_address_is_the_users_mistake(servers: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        parse_servers(servers)


def test_a_port_out_of_range_is_called_so() -> None:
    with pytest.raises(ConfigError, match=r"'127\.0\.0\.1:99999': port 99999 is out of range \(1 to 65535\)\.$"):
        parse_servers("127.0.0.1:99999")


def test_addresses_may_be_several_and_ipv6() -> None:
    assert parse_servers("a:1, [::1]:2 ,") == [("a", 1), ("::1", 2)]


@pytest.mark.parametrize(
    ("security", "message"),
    [
        (SecurityConfig(protocol="TLS"), r"security\.protocol='TLS'"),  # type: ignore[arg-type]
        (SecurityConfig(protocol="SASL_SSL", sasl_mechanism="MAGIC"), r"sasl\.mechanism='MAGIC'"),
        (SecurityConfig(protocol="SASL_PLAINTEXT"), r"needs sasl\.username and sasl\.password"),
        (SecurityConfig(protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER"), "token provider"),
        (SecurityConfig(protocol="SSL", ssl_ca_location="/nowhere/ca.pem"), r"ssl\.ca\.location='/nowhere/ca\.pem'"),
    ],
)
def test_security_settings_that_can_not_work_are_refused(security: SecurityConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        start("127.0.0.1:1", security=security)


def test_a_password_is_not_in_a_representation() -> None:
    assert "hunter2" not in repr(
        ClientConfig(bootstrap_servers="a:1", security=SecurityConfig(sasl_password="hunter2"))
    )
