"""TLS and SASL: the handshake works with the real thing, and refusals say what to change."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from aiokafka.abc import AbstractTokenProvider

from streamsrt.client.cluster import Cluster, Purpose
from streamsrt.client.connection import Connection
from streamsrt.client.network import NetworkThread
from streamsrt.client.security import AuthenticationError, tls_context
from streamsrt.client.values import ClientConfig, NewTopic, SecurityConfig
from streamsrt.errors import BrokerUnreachableError, ConfigError, NotABrokerError
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.schema import ApiKey
from tests.fixtures_brokers import require_kafka
from tests.kafka_server import KafkaServer, free_ports
from tests.streamsrt.client.batches import batch, collect
from tests.streamsrt.client.conftest import Connect
from tests.streamsrt.client.scripted_broker import ScriptedBroker
from tests.system.processes import wait_until

pytestmark = pytest.mark.waits

PLAIN = SecurityConfig(protocol="SASL_PLAINTEXT", sasl_username="ada", sasl_password="lovelace")
SCRAM_SHA_256 = 1


def refuse(config: ClientConfig, timeout_s: float = 10.0) -> None:
    network = NetworkThread(config)
    try:
        network.start(timeout_s)
    finally:
        network.stop()


# -------------------------------------------------------------------------------------------------- scripted: SASL PLAIN


def with_sasl(broker: ScriptedBroker, mechanisms: list[str]) -> ScriptedBroker:
    def handshake(request: Any) -> Any:
        known = request.mechanism in mechanisms
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return types.SaslHandshakeResponse(error_code=code, mechanisms=mechanisms)

    def authenticate(request: Any) -> Any:
        if request.auth_bytes == b"ada\0ada\0lovelace":
            return types.SaslAuthenticateResponse()
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return types.SaslAuthenticateResponse(error_code=code, error_message="Invalid username or password")

    broker.versions[ApiKey.SASL_HANDSHAKE] = (0, 1)
    broker.versions[ApiKey.SASL_AUTHENTICATE] = (0, 2)
    broker.hooks[ApiKey.SASL_HANDSHAKE] = handshake
    broker.hooks[ApiKey.SASL_AUTHENTICATE] = authenticate
    return broker


def test_user_and_password_are_sent_before_anything_else(broker: ScriptedBroker, connect: Connect) -> None:
    network = connect(with_sasl(broker, ["PLAIN"]).address, security=PLAIN)
    assert network.admin.partitions_for(["t"]) == {"t": 3}
    first = [type(request) for request in broker.requests[:3]]
    assert first == [types.ApiVersionsRequest, types.SaslHandshakeRequest, types.SaslAuthenticateRequest]


def test_a_wrong_password_is_said_at_once(broker: ScriptedBroker) -> None:
    wrong = SecurityConfig(protocol="SASL_PLAINTEXT", sasl_username="ada", sasl_password="byron")
    with pytest.raises(AuthenticationError, match=r"Invalid username or password.*sasl\.password"):
        refuse(ClientConfig(bootstrap_servers=with_sasl(broker, ["PLAIN"]).address, security=wrong))


def test_a_mechanism_that_is_not_offered_names_those_that_are(broker: ScriptedBroker) -> None:
    address = with_sasl(broker, ["SCRAM-SHA-256", "SCRAM-SHA-512"]).address
    with pytest.raises(AuthenticationError, match=r"sasl\.mechanism=PLAIN, but SCRAM-SHA-256, SCRAM-SHA-512"):
        refuse(ClientConfig(bootstrap_servers=address, security=PLAIN))


# ------------------------------------------------------------------------------------- scripted: sessions with an end


def with_sessions(broker: ScriptedBroker, lifetime_ms: int) -> ScriptedBroker:
    """Logins after which the broker is to accept requests for so long."""
    with_sasl(broker, ["PLAIN"]).hooks[ApiKey.SASL_AUTHENTICATE] = lambda _: types.SaslAuthenticateResponse(
        session_lifetime_ms=lifetime_ms
    )
    return broker


async def opened(broker: ScriptedBroker) -> tuple[Cluster, Connection]:
    cluster = Cluster(ClientConfig(bootstrap_servers=broker.address, security=PLAIN, reconnect_backoff_ms=1))
    cluster.update(await cluster.send(types.MetadataRequest(topics=[])))
    return cluster, await cluster.connection(min(cluster.brokers), Purpose.FETCH)


async def expired(connection: Connection) -> None:
    while not connection.is_expiring:
        await connection.request(types.MetadataRequest(topics=[]))


def long_poll() -> types.FetchRequest:
    partition = types.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = types.FetchRequest.FetchTopic(topic="t", partitions=[partition])
    return types.FetchRequest(max_wait_ms=200, min_bytes=1, topics=[topic])


def test_a_connection_gives_way_once_its_requests_are_answered(broker: ScriptedBroker) -> None:
    async def run() -> None:
        cluster, first = await opened(with_sessions(broker, 50))
        await expired(first)
        with_sessions(broker, 0)
        waits = first.request(long_poll(), version=12)
        node = min(cluster.brokers)
        others = await asyncio.gather(*(cluster.connection(node, Purpose.FETCH) for _ in range(3)))
        assert waits.done()
        assert not waits.result().error_code
        assert len({id(each) for each in others}) == 1
        assert others[0] is not first
        assert first.closed
        assert not others[0].closed
        await cluster.close()

    asyncio.run(run())


def test_a_connection_stays_where_there_is_no_other_one_yet(broker: ScriptedBroker) -> None:
    async def run() -> None:
        cluster, first = await opened(with_sessions(broker, 50))
        await expired(first)
        again = broker.hooks[ApiKey.SASL_AUTHENTICATE]
        broker.hooks[ApiKey.SASL_AUTHENTICATE] = lambda _: types.SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="try later"
        )
        node = min(cluster.brokers)
        assert await cluster.connection(node, Purpose.FETCH) is first
        assert (await first.request(types.MetadataRequest(topics=[]))).brokers
        broker.hooks[ApiKey.SASL_AUTHENTICATE] = again
        while await cluster.connection(node, Purpose.FETCH) is first:
            await first.request(types.MetadataRequest(topics=[]))
        assert first.closed
        await cluster.close()

    asyncio.run(run())


def test_a_session_without_an_end_needs_no_other_connection(broker: ScriptedBroker) -> None:
    async def run() -> None:
        cluster, first = await opened(with_sessions(broker, 0))
        assert not first.is_expiring
        assert await cluster.connection(min(cluster.brokers), Purpose.FETCH) is first
        await cluster.close()

    asyncio.run(run())


# -------------------------------------------------------------------------------------------- scripted: SASL OAUTHBEARER


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Gives one token after the other; where it is an exception, the server of the tokens is away."""

    def __init__(self, *tokens: str | Exception) -> None:
        super().__init__()
        self.left = list(tokens)

    async def token(self) -> str:
        token = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if isinstance(token, Exception):
            raise token
        return token


def with_tokens(broker: ScriptedBroker, valid: str) -> ScriptedBroker:
    """As Apache Kafka's brokers do: a token that is not valid is refused with the second request."""

    def authenticate(request: Any) -> Any:
        if request.auth_bytes == b"\x01":
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            return types.SaslAuthenticateResponse(error_code=code, error_message='{"status":"invalid_token"}')
        known = request.auth_bytes == b"n,,\x01auth=Bearer %s\x01\x01" % valid.encode()
        return types.SaslAuthenticateResponse(auth_bytes=b"" if known else b'{"status":"invalid_token"}')

    with_sasl(broker, ["OAUTHBEARER"]).hooks[ApiKey.SASL_AUTHENTICATE] = authenticate
    return broker


def of_tokens(*tokens: str | Exception) -> SecurityConfig:
    return SecurityConfig(
        protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Tokens(*tokens)
    )


def test_a_refused_token_is_said_at_once(broker: ScriptedBroker) -> None:
    address = with_tokens(broker, "valid").address
    with pytest.raises(AuthenticationError, match=r"invalid_token.*what the token provider gives"):
        refuse(ClientConfig(bootstrap_servers=address, security=of_tokens("expired")))


def test_a_server_of_tokens_that_is_away_for_a_while_ends_nothing(broker: ScriptedBroker, connect: Connect) -> None:
    away = RuntimeError("no token")
    security = of_tokens("valid", away, away, away, "valid")
    network = connect(with_tokens(broker, "valid").address, security=security, reconnect_backoff_max_ms=100)
    network.fetcher.add_partitions({("t", 0): 0})
    network.producer.send("t", 0, batch(0, 100, 300), 100)
    assert network.producer.flush(20.0) == {("t", 0): 100}
    assert collect(network.fetcher, 100) == {("t", 0): list(range(100))}


# --------------------------------------------------------------------------------------------------------- scripted: TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``cert.pem`` and ``key.pem`` of 127.0.0.1, signed by themselves."""
    return made_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def foreign_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As :func:`certificate`, and unknown to whoever trusts that one."""
    return made_certificate(tmp_path_factory.mktemp("foreign"))


def made_certificate(folder: Path) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("openssl is not installed")
        pytest.skip("openssl is not installed")
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *subject]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture
def tls_broker(certificate: Path) -> Iterator[ScriptedBroker]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    scripted = ScriptedBroker({"t": 1}).start(context)
    yield scripted
    scripted.stop()


def test_everything_works_over_tls(tls_broker: ScriptedBroker, certificate: Path, connect: Connect) -> None:
    security = SecurityConfig(protocol="SSL", ssl_ca_location=str(certificate / "cert.pem"))
    network = connect(tls_broker.address, security=security)
    network.fetcher.add_partitions({("t", 0): 0})
    for index in range(50):
        network.producer.send("t", 0, batch(index * 100, 100, 300), 100)
    assert network.producer.flush(20.0) == {("t", 0): 5_000}
    assert collect(network.fetcher, 5_000) == {("t", 0): list(range(5_000))}


def test_an_unknown_certificate_is_refused(tls_broker: ScriptedBroker) -> None:
    with pytest.raises(
        AuthenticationError, match=r"the TLS handshake failed.*Check ssl\.ca\.location.*ssl\.\* settings"
    ):
        refuse(ClientConfig(bootstrap_servers=tls_broker.address, security=SecurityConfig(protocol="SSL")))


def test_a_plain_client_on_a_tls_port_is_told_to_check_the_protocol(tls_broker: ScriptedBroker) -> None:
    with pytest.raises((BrokerUnreachableError, NotABrokerError), match=r"security\.protocol"):
        refuse(ClientConfig(bootstrap_servers=tls_broker.address), 0.5)


@pytest.mark.parametrize(
    ("has_certificate", "said"),
    [
        (False, r"ssl\.certificate\.location is not set, and a listener with ssl\.client\.auth=required needs one"),
        (True, r"check that ssl\.certificate\.location=.* has not expired, and that the broker trusts its issuer"),
    ],
)
def test_a_certificate_of_the_client_that_the_broker_refuses_is_named(
    certificate: Path, foreign_certificate: Path, has_certificate: bool, said: str
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    context.load_verify_locations(certificate / "cert.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    asking = ScriptedBroker({"t": 1}).start(context)
    security = SecurityConfig(
        protocol="SSL",
        ssl_ca_location=str(certificate / "cert.pem"),
        ssl_certificate_location=str(foreign_certificate / "cert.pem") if has_certificate else None,
        ssl_key_location=str(foreign_certificate / "key.pem") if has_certificate else None,
    )
    try:
        with pytest.raises(BrokerUnreachableError, match=f"right after the TLS handshake.*{said}"):
            refuse(ClientConfig(bootstrap_servers=asking.address, security=security), 0.5)
    finally:
        asking.stop()


@pytest.mark.parametrize("name", ["ssl_ca_location", "ssl_certificate_location", "ssl_key_location"])
def test_of_several_tls_files_the_missing_one_is_named(certificate: Path, name: str) -> None:
    cert, key = str(certificate / "cert.pem"), str(certificate / "key.pem")
    files = {"ssl_ca_location": cert, "ssl_certificate_location": cert, "ssl_key_location": key, name: "gone.pem"}
    setting = name.replace("_", r"\.")
    with pytest.raises(ConfigError, match=rf"^TLS: {setting}='gone\.pem' can't be read: No such file"):
        tls_context(SecurityConfig(protocol="SSL", **files))  # type: ignore[arg-type]


def test_a_file_that_has_no_certificate_is_named(certificate: Path) -> None:
    key = str(certificate / "key.pem")
    with pytest.raises(ConfigError, match=r"^TLS: ssl\.ca\.location='[^']*key\.pem' can't be used"):
        tls_context(SecurityConfig(protocol="SSL", ssl_ca_location=key))


@pytest.mark.parametrize(("protocol", "needed"), [("SSL", "PLAINTEXT"), ("SASL_SSL", "SASL_PLAINTEXT")])
def test_a_tls_client_on_a_plain_port_is_told_to_check_the_protocol(
    protocol: Literal["SSL", "SASL_SSL"], needed: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        # As brokers do, whose first four bytes of a request are its length.
        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        hanging_up = threading.Thread(target=hang_up, daemon=True)
        hanging_up.start()
        security = SecurityConfig(protocol=protocol, sasl_username="ada", sasl_password="lovelace")
        address = f"127.0.0.1:{server.getsockname()[1]}"
        said = (
            rf"during the TLS handshake\. Check security\.protocol={protocol}: a listener without TLS needs {needed}\."
        )
        with pytest.raises(BrokerUnreachableError, match=said):
            refuse(ClientConfig(bootstrap_servers=address, security=security), 0.5)
        server.shutdown(socket.SHUT_RDWR)
    hanging_up.join(60.0)


# --------------------------------------------------------------------------------------------------------- Apache Kafka


def with_logins(port: int) -> dict[str, str]:
    """The settings of a broker with another listener, at which a user logs in."""
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ada="lovelace";'
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{{port}},SASL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{{controller_port}}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "listener.name.sasl.plain.sasl.jaas.config": login,
    }


@pytest.mark.kafka
def test_apache_kafka_with_plain_and_scram(tmp_path: Path, connect: Connect) -> None:
    require_kafka()
    (sasl_port,) = free_ports(1)
    settings = {
        **with_logins(sasl_port),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    server = KafkaServer(tmp_path, settings)
    server.start()
    try:
        plain = connect(f"127.0.0.1:{sasl_port}", security=PLAIN)
        assert plain.admin.create_topics([NewTopic(name="t", partitions=1)]) == {"t": None}
        create_scram_user(plain, "grace", b"hopper")
        scram = SecurityConfig(
            protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_username="grace", sasl_password="hopper"
        )
        network = when_known(lambda: connect(f"127.0.0.1:{sasl_port}", security=scram))
        network.producer.send("t", 0, batch(0, 10), 10)
        assert network.producer.flush(20.0) == {("t", 0): 10}
        wrong = SecurityConfig(protocol="SASL_PLAINTEXT", sasl_username="ada", sasl_password="byron")
        with pytest.raises(AuthenticationError, match="Invalid username or password"):
            refuse(ClientConfig(bootstrap_servers=f"127.0.0.1:{sasl_port}", security=wrong))
    finally:
        server.kill()


@pytest.mark.kafka
def test_apache_kafka_closes_no_connection_whose_session_would_end(
    tmp_path: Path, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    require_kafka()
    (sasl_port,) = free_ports(1)
    settings = {
        **with_logins(sasl_port),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.connections.max.reauth.ms": "2000",
    }
    server = KafkaServer(tmp_path, settings)
    server.start()
    try:
        network = connect(f"127.0.0.1:{sasl_port}", security=PLAIN)
        assert network.admin.create_topics([NewTopic(name="t", partitions=1)]) == {"t": None}
        with caplog.at_level(logging.DEBUG, "streamsrt.client"):
            network.fetcher.add_partitions({("t", 0): 0})
            sent, until_s = 0, time.monotonic() + 7.0
            while time.monotonic() < until_s:
                for _ in range(5):
                    network.producer.send("t", 0, batch(sent, 10), 10)
                    sent += 10
                assert network.producer.flush(20.0)
                assert network.admin.partitions_for(["t"]) == {"t": 1}
            assert collect(network.fetcher, sent) == {("t", 0): list(range(sent))}
        assert not [each.getMessage() for each in caplog.records if "lost" in each.getMessage()]
    finally:
        server.kill()


def when_known(log_in: Callable[[], NetworkThread]) -> NetworkThread:
    """Apache Kafka acknowledges a new user before its brokers know of it."""
    found: list[NetworkThread] = []

    def try_it() -> bool:
        with contextlib.suppress(AuthenticationError):
            found.append(log_in())
        return bool(found)

    wait_until(try_it, "the new user is known")
    return found[0]


def create_scram_user(network: NetworkThread, name: str, password: bytes) -> None:
    request = types.AlterUserScramCredentialsRequest
    salt = b"0123456789abcdef"
    upsertion = request.ScramCredentialUpsertion(
        name=name,
        mechanism=SCRAM_SHA_256,
        iterations=4_096,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac("sha256", password, salt, 4_096),
    )
    response = network.request(request(upsertions=[upsertion]), controller=True).result(20.0)
    assert [result.error_code for result in response.results] == [ErrorCode.NONE]
