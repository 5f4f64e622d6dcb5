"""The security settings of a listener: TLS, SASL, and whether it may be reached from other machines.

1. Files are PEM. A file that can't be used ends the start with a message that names the setting.
2. Without security, a broker listens on loopback only, unless a setting says that the network is trusted.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
import ssl
from collections.abc import Mapping
from typing import Any

from coordinator.broker.broker import Broker
from coordinator.broker.config_definitions import Value
from coordinator.group.settings import InvalidConfigError
from coordinator.security.plain import users_of
from coordinator.security.principal import NoMatchingRuleError, PrincipalMapper, distinguished_name
from coordinator.security.scram import ITERATIONS_MIN, Mechanism, credential_of, salted_password
from coordinator.server.listener import Limits
from coordinator.server.sasl import SaslSession, Serve, exchanges
from coordinator.server.tcp import Handler, NewHandler, Peer, ProtocolViolationError

_SCRAM = re.compile(r"(SCRAM-SHA-256|SCRAM-SHA-512)=\[name=([^,\]]+),password=([^\]]+)\]")
_SALT_BYTES = 20
_OVERRIDES = "max.connections.per.ip.overrides"
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def check_host(host: str, configs: Mapping[str, Value], *, insecure: bool) -> None:
    """Raises InvalidConfigError for an address that must not, or can't, be listened on with these settings."""
    loopback, everywhere = _reach(host)
    protocol, client_auth = configs["security.protocol"], configs["ssl.client.auth"]
    open_to_all = protocol == "PLAINTEXT" or (protocol == "SSL" and client_auth != "required")
    if open_to_all and not loopback and not insecure:
        raise InvalidConfigError(
            f"--host {host or repr(host)} is reachable from other machines and this broker lets everyone in: listen "
            "on 127.0.0.1; or give security.protocol=SASL_SSL (or SSL with ssl.client.auth=required); or --insecure "
            "if the network is trusted"
        )
    if everywhere and not configs["advertised.host"]:
        raise InvalidConfigError(
            f"--host {host or repr(host)} is not an address that clients can connect to: set the one to advertise "
            "with --config advertised.host=NAME"
        )


def open_doors(host: str, metrics_host: str | None, configs: Mapping[str, Value]) -> list[str]:
    """What others on the network can see or read along, as it is asked for: for warnings."""
    found = []
    if configs["security.protocol"] == "SASL_PLAINTEXT" and not _reach(host)[0]:
        found.append(
            f"--host {host or repr(host)} with security.protocol=SASL_PLAINTEXT: records and PLAIN passwords are sent "
            "unencrypted. Use SASL_SSL"
        )
    if metrics_host is not None and not _reach(metrics_host)[0]:
        found.append(
            f"--metrics {metrics_host}: everyone who can reach this address can read the names of topics, groups and "
            "clients, without a password. Listen on 127.0.0.1, or restrict access by a firewall"
        )
    return found


def _reach(host: str) -> tuple[bool, bool]:
    """Whether the address is this machine's only, and whether it is every address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost", not host
    return address.is_loopback, address.is_unspecified


def tls_context(configs: Mapping[str, Value]) -> ssl.SSLContext | None:
    """The TLS side of the listener; None for a plain one. Raises InvalidConfigError for files that can't be used."""
    if configs["security.protocol"] not in {"SSL", "SASL_SSL"}:
        return None
    keystore, truststore = str(configs["ssl.keystore.location"]), str(configs["ssl.truststore.location"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not keystore:
        raise InvalidConfigError(
            f"security.protocol={configs['security.protocol']} needs ssl.keystore.location: a PEM file with the private key "
            "and the certificate chain"
        )
    try:
        context.load_cert_chain(keystore, password=str(configs["ssl.key.password"]))
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfigError(f"ssl.keystore.location={keystore}: {error}") from None
    context.verify_mode = _CLIENT_AUTH[str(configs["ssl.client.auth"])]
    if context.verify_mode != ssl.CERT_NONE:
        if not truststore:
            raise InvalidConfigError(
                f"ssl.client.auth={configs['ssl.client.auth']} needs ssl.truststore.location: a PEM file with the "
                "certificate authorities of client certificates"
            )
        try:
            context.load_verify_locations(truststore)
        except (OSError, ssl.SSLError) as error:
            raise InvalidConfigError(f"ssl.truststore.location={truststore}: {error}") from None
    return context


def handlers(broker: Broker, serve: Serve) -> NewHandler:
    """What makes the handler of a new connection. Raises InvalidConfigError."""
    if not str(broker.configs["security.protocol"]).startswith("SASL"):
        return _by_certificate(serve, str(broker.configs["ssl.principal.mapping.rules"]))
    names, users = broker.configs["sasl.enabled.mechanisms"], users_of(str(broker.configs["plain.sasl.jaas.config"]))
    assert isinstance(names, tuple)
    if not names:
        raise InvalidConfigError("sasl.enabled.mechanisms is empty: nobody could log in")
    if "PLAIN" in names and not users:
        raise InvalidConfigError(
            "sasl.enabled.mechanisms has PLAIN, but plain.sasl.jaas.config names no user: give it "
            'user_NAME="PASSWORD" ...'
        )
    offered = exchanges(names, users, broker.credentials)
    return lambda peer: SaslSession(serve, offered, peer).handle


def limits_of(broker: Broker) -> Limits:
    """What clients may take. Raises InvalidConfigError."""
    overrides = {}
    for entry in filter(None, (part.strip() for part in str(broker.configs[_OVERRIDES]).split(","))):
        host, _, count = entry.rpartition(":")
        try:
            overrides[str(ipaddress.ip_address(host.strip("[]")))] = int(count)
        except ValueError:
            raise InvalidConfigError(f"{_OVERRIDES}: {entry} is not ADDRESS:COUNT, e.g. 127.0.0.1:5000") from None
    return Limits(
        frame_bytes_max=broker.integer("socket.request.max.bytes"),
        connections_max=broker.integer("max.connections"),
        connections_per_ip_max=broker.integer("max.connections.per.ip"),
        connections_per_ip_overrides=overrides,
    )


def _by_certificate(serve: Serve, rules: str) -> NewHandler:
    """A client is who its certificate says; without one it is anonymous."""
    try:
        mapper = PrincipalMapper(rules)
    except ValueError as error:
        raise InvalidConfigError(str(error)) from None

    def new_handler(peer: Peer) -> Handler:
        certificate: Any = peer.extra_info("peercert")  # as the ssl module has it
        if not certificate:
            return serve
        try:
            principal = mapper.principal_of(distinguished_name(certificate["subject"]))
        except NoMatchingRuleError as error:
            raise ProtocolViolationError(str(error)) from None
        return lambda frame, client_host: serve(frame, client_host, principal)

    return new_handler


def add_scram(broker: Broker, entry: str) -> None:
    """Sets a user's password as ``kafka-storage --add-scram`` does. Raises InvalidConfigError, and the log's errors.

    A user who has that password keeps the salt: a salt that changes at each start would tell users from unknown names.
    """
    found = _SCRAM.fullmatch(entry.strip())
    if found is None:
        raise InvalidConfigError(
            f"--add-scram {entry.partition('=')[0]}=...: expected SCRAM-SHA-512=[name=NAME,password=PASSWORD]"
        )
    name, user, password = found.groups()
    mechanism = next(each for each in Mechanism if each.sasl_name == name)
    known = broker.credentials.of(mechanism, user)
    if known is not None:
        salted = salted_password(mechanism, password.encode(), known.salt, known.iterations)
        if credential_of(mechanism, salted, known.salt, known.iterations) == known:
            return
    salt = secrets.token_bytes(_SALT_BYTES)
    salted = salted_password(mechanism, password.encode(), salt, ITERATIONS_MIN)
    broker.credentials.put(mechanism, user, credential_of(mechanism, salted, salt, ITERATIONS_MIN))
