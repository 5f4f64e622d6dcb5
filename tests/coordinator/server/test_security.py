"""TLS and SASL with clients of others and with ours; who is kept out, and settings that can't work."""

from __future__ import annotations

import uuid
import warnings
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from coordinator.group.settings import InvalidConfigError
from coordinator.security.scram import Mechanism, credential_of
from coordinator.server.sasl import FRAME_BYTES_MAX, exchanges
from coordinator.server.security import check_host, limits_of, open_doors
from coordinator.server.settings import read_configs
from streamsrt.client.network import NetworkThread
from streamsrt.client.security import AuthenticationError
from streamsrt.client.values import ClientConfig, SecurityConfig
from streamsrt.wire import types
from tests.coordinator.broker.in_process import InProcessBroker
from tests.coordinator.server.processes import BrokerProcess, Wire, refused, refused_here
from tests.streams_server import run_and_close

with warnings.catch_warnings():
    # It reads its schemas in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient

PATIENCE_S = 30.0
PLAIN_USERS = 'PlainLoginModule required user_ada="lovelace";'
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PEM files: ``ca``, ``server`` (key and chain), ``client`` (key and chain)."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca"))
    for name, identity in (("server", "127.0.0.1"), ("client", "ada@example.org")):
        authority.issue_cert(identity).private_key_and_cert_chain_pem.write_to_path(str(folder / name))
    return folder


@pytest.fixture(scope="module")
def sasl_ssl(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[BrokerProcess]:
    options = [
        *("--config", "security.protocol=SASL_SSL", "--config", f"ssl.keystore.location={certificates / 'server'}"),
        *("--config", f"sasl.enabled.mechanisms={','.join(MECHANISMS)}"),
        *("--config", f"plain.sasl.jaas.config={PLAIN_USERS}"),
        *("--add-scram", "SCRAM-SHA-256=[name=ada,password=lovelace]"),
        *("--add-scram", "SCRAM-SHA-512=[name=ada,password=lovelace]"),
    ]
    with BrokerProcess(tmp_path_factory.mktemp("sasl") / "data", *options) as process:
        yield process
        assert "Traceback" not in process.log, process.log


def confluent(broker: BrokerProcess, certificates: Path, mechanism: str, **other: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.address,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificates / "ca"),
        "sasl.mechanism": mechanism,
        "sasl.username": "ada",
        "sasl.password": "lovelace",
        **other,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_produces_and_consumes(sasl_ssl: BrokerProcess, certificates: Path, mechanism: str) -> None:
    settings, topic = confluent(sasl_ssl, certificates, mechanism), f"t-{uuid.uuid4().hex}"
    admin = AdminClient(settings)
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(PATIENCE_S)
    producer = Producer(settings)
    producer.produce(topic, b"value" * 1000)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(PATIENCE_S)
    consumer.close()
    assert message is not None
    assert message.value() == b"value" * 1000


def test_kafka_python_logs_in(sasl_ssl: BrokerProcess, certificates: Path) -> None:
    admin = KafkaAdminClient(
        bootstrap_servers=sasl_ssl.address,
        security_protocol="SASL_SSL",
        ssl_cafile=str(certificates / "ca"),
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="ada",
        sasl_plain_password="lovelace",
    )
    assert admin.describe_cluster()["cluster_id"]
    admin.close()


@pytest.mark.parametrize("password", ["lovelace", "byron"])
def test_aiokafka_logs_in_with_the_right_password(sasl_ssl: BrokerProcess, certificates: Path, password: str) -> None:
    async def log_in() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=sasl_ssl.address,
            security_protocol="SASL_SSL",
            ssl_context=create_ssl_context(cafile=str(certificates / "ca")),
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username="ada",
            sasl_plain_password=password,
        )
        try:
            await producer.start()
        finally:
            await producer.stop()

    if password == "lovelace":
        run_and_close(log_in())
    else:
        with pytest.raises(AioKafkaError):
            run_and_close(log_in())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client_logs_in_and_says_what_is_wrong(sasl_ssl: BrokerProcess, certificates: Path, mechanism: str) -> None:
    def network(password: str) -> NetworkThread:
        security = SecurityConfig(
            protocol="SASL_SSL",
            sasl_mechanism=mechanism,
            sasl_username="ada",
            sasl_password=password,
            ssl_ca_location=str(certificates / "ca"),
        )
        return NetworkThread(ClientConfig(bootstrap_servers=sasl_ssl.address, security=security))

    known = network("lovelace")
    known.start()
    assert known.admin.topics() is not None
    known.stop()
    with pytest.raises(AuthenticationError, match=r"nvalid user ?name or password.*Check sasl\.username"):
        network("byron").start()


def test_users_are_managed_by_request(sasl_ssl: BrokerProcess, certificates: Path) -> None:
    admin = AdminClient(confluent(sasl_ssl, certificates, "SCRAM-SHA-512"))
    user = f"user-{uuid.uuid4().hex}"
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    added = UserScramCredentialUpsertion(user, info, b"pass")
    for future in admin.alter_user_scram_credentials([added]).values():
        future.result(PATIENCE_S)
    described = admin.describe_user_scram_credentials([user])[user].result(PATIENCE_S)
    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    settings = confluent(sasl_ssl, certificates, "SCRAM-SHA-256", **{"sasl.username": user, "sasl.password": "pass"})
    assert AdminClient(settings).list_topics(timeout=PATIENCE_S).cluster_id
    with pytest.raises(KafkaException, match="does not exist"):
        admin.describe_user_scram_credentials(["nobody"])["nobody"].result(PATIENCE_S)


def test_nothing_is_served_before_the_login(tmp_path: Path) -> None:
    options = ["--config", "security.protocol=SASL_PLAINTEXT", "--add-scram", "SCRAM-SHA-512=[name=a,password=b]"]
    with BrokerProcess(tmp_path / "data", *options) as broker:
        wire, again = Wire(broker.port), Wire(broker.port)
        assert any(each.api_key == 17 for each in wire.ask(types.ApiVersionsRequest()).api_keys)
        assert wire.ask(types.SaslAuthenticateRequest(auth_bytes=b"x")).error_code == 34
        handshake = wire.ask(types.SaslHandshakeRequest(mechanism="PLAIN"))
        assert (handshake.error_code, handshake.mechanisms) == (33, ["SCRAM-SHA-512"])
        wire.send(types.MetadataRequest())
        assert wire.is_closed()
        wire.socket.close()
        again.ask(types.SaslHandshakeRequest(mechanism="SCRAM-SHA-512"))
        assert again.ask(types.SaslAuthenticateRequest(auth_bytes=b"nonsense")).error_code == 58
        again.send(types.ApiVersionsRequest())
        assert again.is_closed()
        again.socket.close()
        assert "before the client has authenticated" in broker.log
        with Wire(broker.port) as large:
            large.socket.sendall((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
            assert large.is_closed()
        assert f"it announces a frame of {FRAME_BYTES_MAX + 1} bytes" in broker.log


def test_users_and_secrets_survive_a_restart_and_are_not_shown(tmp_path: Path, certificates: Path) -> None:
    first = [
        "--config",
        "security.protocol=SASL_PLAINTEXT",
        "--add-scram",
        "SCRAM-SHA-512=[name=ada,password=lovelace]",
    ]
    with BrokerProcess(tmp_path / "data", *first) as broker:
        assert broker.stop() == 0
    jaas = ["--config", f"plain.sasl.jaas.config={PLAIN_USERS}"]
    with BrokerProcess(tmp_path / "data", *first[:2], *jaas) as broker:
        settings = confluent(broker, certificates, "SCRAM-SHA-512", **{"security.protocol": "SASL_PLAINTEXT"})
        admin = AdminClient(settings)
        assert admin.list_topics(timeout=PATIENCE_S).cluster_id
        resource = ConfigResource(ResourceType.BROKER, "1")
        found = admin.describe_configs([resource])[resource].result(PATIENCE_S)
        assert found["plain.sasl.jaas.config"].is_sensitive
        assert found["plain.sasl.jaas.config"].value is None
        assert b"lovelace" not in b"".join(
            path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()
        )


def test_mutual_tls_lets_in_who_has_a_certificate(tmp_path: Path, certificates: Path) -> None:
    options = [
        *("--config", "security.protocol=SSL", "--config", f"ssl.keystore.location={certificates / 'server'}"),
        *("--config", "ssl.client.auth=required", "--config", f"ssl.truststore.location={certificates / 'ca'}"),
    ]
    with BrokerProcess(tmp_path / "data", *options) as broker:
        settings = {
            "bootstrap.servers": broker.address,
            "security.protocol": "SSL",
            "ssl.ca.location": str(certificates / "ca"),
        }
        own = {
            "ssl.certificate.location": str(certificates / "client"),
            "ssl.key.location": str(certificates / "client"),
        }
        assert AdminClient({**settings, **own}).list_topics(timeout=PATIENCE_S).cluster_id
        with pytest.raises(KafkaException):
            AdminClient({**settings, "log_level": 0}).list_topics(timeout=2)


def test_a_certificate_says_who_the_client_is(tmp_path: Path, certificates: Path) -> None:
    """Only User:ada may make topics, and a rule makes ada of the certificate's name."""
    settings = {
        "security.protocol": "SSL",
        "ssl.keystore.location": certificates / "server",
        "ssl.truststore.location": certificates / "ca",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=nobody$/bob/,RULE:^.*O=trustme.*$/ADA/L",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ada",
    }
    options = [word for key, value in settings.items() for word in ("--config", f"{key}={value}")]
    with BrokerProcess(tmp_path / "data", *options) as broker:
        client = {
            "bootstrap.servers": broker.address,
            "security.protocol": "SSL",
            "ssl.ca.location": str(certificates / "ca"),
            "ssl.certificate.location": str(certificates / "client"),
            "ssl.key.location": str(certificates / "client"),
        }
        admin = AdminClient(client)
        for future in admin.create_topics([NewTopic("t", 1, 1)]).values():
            future.result(PATIENCE_S)
        assert "t" in admin.list_topics(timeout=PATIENCE_S).topics


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["security.protocol=SSL"], "needs ssl.keystore.location"),
        (["security.protocol=SSL", "ssl.keystore.location=/nowhere"], "ssl.keystore.location=/nowhere"),
        (["security.protocol=SASL_PLAINTEXT", "sasl.enabled.mechanisms=PLAIN"], "names no user"),
        (["security.protocol=SASL_PLAINTEXT", "sasl.enabled.mechanisms="], "nobody could log in"),
        (["security.protocol=TLS"], "expected one of PLAINTEXT, SSL"),
        (["ssl.principal.mapping.rules=RULE:x"], "RULE:x is not a rule: expected DEFAULT"),
        (["authorizer.class.name=Own"], "expected one of , org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ],
)
def test_settings_that_cannot_work_end_the_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], says: str
) -> None:
    code, text = refused_here(capfd, tmp_path / "data", *(word for option in options for word in ("--config", option)))
    assert (code, says in text) == (2, True), text


def test_a_scram_password_in_another_form_is_refused(tmp_path: Path) -> None:
    code, text = refused(tmp_path / "data", "--add-scram", "SCRAM-SHA-1=[name=a,password=b]")
    assert (code, "expected SCRAM-SHA-512=[name=NAME,password=PASSWORD]" in text) == (2, True)


@pytest.mark.parametrize(
    ("host", "settings", "may"),
    [
        ("127.0.0.1", [], True),
        ("::1", [], True),
        ("10.1.2.3", [], False),
        ("10.1.2.3", ["security.protocol=SSL"], False),
        ("10.1.2.3", ["security.protocol=SSL", "ssl.client.auth=required"], True),
        ("10.1.2.3", ["security.protocol=SASL_SSL"], True),
    ],
)
def test_other_machines_reach_a_broker_with_security_only(host: str, settings: list[str], may: bool) -> None:
    configs, _ = read_configs(None, settings)
    check_host(host, configs, insecure=True)
    if may:
        check_host(host, configs, insecure=False)
    else:
        with pytest.raises(InvalidConfigError, match="reachable from other machines"):
            check_host(host, configs, insecure=False)


@pytest.mark.parametrize(
    ("host", "metrics", "settings", "warnings"),
    [
        ("127.0.0.1", None, ["security.protocol=SASL_PLAINTEXT"], 0),
        ("10.1.2.3", None, ["security.protocol=SASL_SSL"], 0),
        ("10.1.2.3", None, ["security.protocol=SASL_PLAINTEXT"], 1),
        ("0.0.0.0", "0.0.0.0", ["security.protocol=SASL_PLAINTEXT"], 2),
        ("127.0.0.1", "localhost", [], 0),
        ("127.0.0.1", "::", [], 1),
        ("127.0.0.1", "10.1.2.3", [], 1),
    ],
)
def test_what_others_can_read_along_is_a_warning(
    host: str, metrics: str | None, settings: list[str], warnings: int
) -> None:
    configs, _ = read_configs(None, settings)
    found = open_doors(host, metrics, configs)
    assert len(found) == warnings
    assert all(text.startswith(("--host", "--metrics")) for text in found)


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        (["--metrics", "0.0.0.0:0"], "--metrics 0.0.0.0: everyone who can reach this address"),
        (
            [
                *("--host", "0.0.0.0", "--config", "advertised.host=127.0.0.1"),
                *("--config", "security.protocol=SASL_PLAINTEXT"),
                *("--add-scram", "SCRAM-SHA-512=[name=a,password=b]"),
            ],
            "--host 0.0.0.0 with security.protocol=SASL_PLAINTEXT: records and PLAIN passwords are sent unencrypted",
        ),
    ],
)
def test_what_others_can_read_along_is_said_at_the_start(tmp_path: Path, options: list[str], warning: str) -> None:
    with BrokerProcess(tmp_path / "data", *options) as broker:
        assert warning in broker.log


def test_the_salt_of_an_unknown_user_survives_a_restart(tmp_path: Path) -> None:
    salts = set()
    for _ in range(2):
        broker = InProcessBroker(tmp_path / "data", {"security.protocol": "SASL_PLAINTEXT"}).broker
        side = exchanges(("SCRAM-SHA-512",), {}, broker.credentials)["SCRAM-SHA-512"]()
        salts.add(side.step(b"n,,n=nobody,r=nonce").split(b",")[1])
        broker.close()
    assert len(salts) == 1


def test_the_salts_of_a_restart_do_not_tell_who_is_a_user(tmp_path: Path) -> None:
    """Service files give --add-scram at each start: a salt that changes then would be that of a user."""
    options = ["--config", "security.protocol=SASL_PLAINTEXT", "--add-scram", "SCRAM-SHA-512=[name=ada,password=b]"]

    def salts(*further: str) -> list[bytes]:
        found = []
        with BrokerProcess(tmp_path / "data", *options, *further) as broker:
            for name in (b"ada", b"nobody"):
                with Wire(broker.port) as wire:
                    wire.ask(types.SaslHandshakeRequest(mechanism="SCRAM-SHA-512"))
                    answer = wire.ask(types.SaslAuthenticateRequest(auth_bytes=b"n,,n=%s,r=nonce" % name))
                    found.append(answer.auth_bytes.split(b",")[1])
            assert broker.stop() == 0
        return found

    ada, nobody = salts()
    assert salts() == [ada, nobody]
    other, still_nobody = salts("--add-scram", "SCRAM-SHA-512=[name=ada,password=c]")
    assert other != ada, "another password has another salt"
    assert still_nobody == nobody


def test_unknown_users_have_the_iterations_and_the_length_of_salt_of_those_that_exist(tmp_path: Path) -> None:
    mechanism = Mechanism.SCRAM_SHA_512

    def shape(name: str) -> tuple[int, int]:
        side = exchanges((mechanism.sasl_name,), {}, broker.credentials)[mechanism.sasl_name]()
        _, salt, iterations = side.step(f"n,,n={name},r=nonce".encode()).split(b",")
        return len(b64decode(salt[2:])), int(iterations[2:])

    settings = {"security.protocol": "SASL_PLAINTEXT"}
    broker = InProcessBroker(tmp_path / "data", settings).broker
    assert shape("nobody") == (20, 4096)
    broker.credentials.put(mechanism, "ada", credential_of(mechanism, b"salted", b"a salt of 26 bytes, no more", 8192))
    assert shape("nobody") == shape("ada") == (27, 8192)
    broker.close()
    broker = InProcessBroker(tmp_path / "data", settings).broker
    assert shape("nobody") == (27, 8192), "after a restart, too"
    broker.credentials.put(mechanism, "ada", credential_of(mechanism, b"salted", b"a shorter salt", 4096))
    assert shape("nobody") == shape("ada") == (14, 4096)
    broker.credentials.put(mechanism, "ada", None)
    assert shape("nobody") == shape("ada") == (20, 4096)
    broker.close()


def test_nobody_else_on_the_machine_may_read_the_data_directory(tmp_path: Path) -> None:
    broker = InProcessBroker(tmp_path / "data")
    broker.close()
    for path in [tmp_path / "data", *(tmp_path / "data").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize(("given", "limit"), [("10.0.0.7:5, 127.0.0.1:3", 3), ("[::1]:9", 2000), ("", 2000)])
def test_an_address_may_have_a_limit_of_its_own(tmp_path: Path, given: str, limit: int) -> None:
    broker = InProcessBroker(tmp_path / "data", {"max.connections.per.ip.overrides": given})
    assert limits_of(broker.broker).of_address("127.0.0.1") == limit
    broker.close()


@pytest.mark.parametrize("given", ["5", "nowhere:5", "10.0.0.1:many"])
def test_a_limit_of_no_address_is_refused(tmp_path: Path, given: str) -> None:
    broker = InProcessBroker(tmp_path / "data", {"max.connections.per.ip.overrides": given})
    with pytest.raises(InvalidConfigError, match="is not ADDRESS:COUNT"):
        limits_of(broker.broker)
    broker.close()
