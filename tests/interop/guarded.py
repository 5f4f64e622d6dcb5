"""Brokers with ACLs: the bundled one and Apache Kafka with its StandardAuthorizer, both with SASL PLAIN."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from coordinator.security.acls import Acl
from streamsrt.wire import types
from tests.coordinator.server.processes import BrokerProcess, Wire
from tests.fixtures_brokers import QUICK_GROUPS
from tests.kafka_server import KafkaServer, free_ports

PASSWORD = "p"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def jaas(users: Iterable[str]) -> str:
    """The users of a listener, all with the same password."""
    entries = " ".join(f'user_{user}="{PASSWORD}"' for user in ("admin", *users))
    return f'{MODULE} required username="admin" password="{PASSWORD}" {entries};'


class GuardedBroker:
    """A broker where ``User:admin`` may do everything and nobody else anything. Leaving the context ends it."""

    def __init__(self, kind: str, folder: Path, users: Iterable[str]) -> None:
        self.kind = kind
        self.folder = folder
        self._server: BrokerProcess | KafkaServer
        if kind == "bundled":
            settings = {
                **QUICK_GROUPS,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                "plain.sasl.jaas.config": jaas(users),
                "authorizer.class.name": AUTHORIZER,
                "super.users": "User:admin",
                "auto.create.topics.enable": "true",
            }
            options = [word for key, value in settings.items() for word in ("--config", f"{key}={value}")]
            self._server = BrokerProcess(folder / "data", *options)
            self.port = self._server.port
        else:
            (self.port,) = free_ports(1)
            self._server = KafkaServer(folder, {**QUICK_GROUPS, **_kafka_settings(self.port, users)})
            self._server.start()

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self, user: str) -> dict[str, Any]:
        """Settings of librdkafka for a user."""
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        }

    def properties(self, user: str) -> Path:
        """A properties file of Java clients for a user."""
        path = self.folder / f"{user}.properties"
        login = f'{MODULE} required username="{user}" password="{PASSWORD}";'
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n", encoding="utf-8"
        )
        return path

    def wire(self, user: str) -> Wire:
        """A connection that is logged in."""
        wire = Wire(self.port)
        wire.ask(types.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        login = types.SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{PASSWORD}".encode())
        assert wire.ask(login, 2).error_code == 0
        return wire

    def __enter__(self) -> GuardedBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.kill()


def _kafka_settings(port: int, users: Iterable[str]) -> dict[str, str]:
    """A second listener with SASL; the broker speaks with itself over the first one, as a super user."""
    return {
        "listeners": (
            f"PLAINTEXT://127.0.0.1:{{port}},SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{{controller_port}}"
        ),
        "listener.security.protocol.map": ("PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas(users),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:admin",
    }


def creations(acls: Iterable[Acl]) -> types.CreateAclsRequest:
    """The request that makes these ACLs."""
    creation = types.CreateAclsRequest.AclCreation
    return types.CreateAclsRequest(
        creations=[
            creation(
                resource_type=acl.resource_type,
                resource_pattern_type=acl.pattern_type,
                resource_name=acl.name,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )
