"""TLS and SASL of a connection: the settings of Kafka's and librdkafka's clients, implemented with ``ssl`` and
aiokafka.

aiokafka's authenticators are not part of its public API: ``tests/streamsrt/client/test_security.py`` checks the
behaviour that is relied on here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

from streamsrt.client.values import SecurityConfig
from streamsrt.errors import BrokerError, ConfigError
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode, error_name
from streamsrt.wire.schema import Message, Request
from streamsrt.wording import error_text

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

R = TypeVar("R", bound=Message)


class Send(Protocol):
    """Sends a request over the connection that is being made."""

    def __call__(self, message: Request[R], /) -> Awaitable[R]: ...


class Authenticator(Protocol):
    """The part of aiokafka's authenticators that is used."""

    async def step(self, payload: bytes | None, /) -> tuple[bytes, bool] | None: ...


class AuthenticationError(BrokerError):
    """The broker refused the credentials, or the TLS handshake failed. Correct ``sasl.*`` or ``ssl.*``."""


def check_security(config: SecurityConfig) -> None:
    """Raises ConfigError for settings that can't work together."""
    if config.protocol not in {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}:
        raise ConfigError(
            f"security.protocol={config.protocol!r}: must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL."
        )
    if not config.protocol.startswith("SASL"):
        return
    if config.sasl_mechanism not in MECHANISMS:
        raise ConfigError(f"sasl.mechanism={config.sasl_mechanism!r}: must be one of {', '.join(MECHANISMS)}.")
    needs_password = config.sasl_mechanism == "PLAIN" or config.sasl_mechanism.startswith("SCRAM")
    if needs_password and (config.sasl_username is None or config.sasl_password is None):
        raise ConfigError(f"sasl.mechanism={config.sasl_mechanism} needs sasl.username and sasl.password.")
    if config.sasl_mechanism == "OAUTHBEARER" and config.sasl_oauth_token_provider is None:
        raise ConfigError("sasl.mechanism=OAUTHBEARER needs a token provider (aiokafka.abc.AbstractTokenProvider).")
    if config.sasl_mechanism == "GSSAPI" and find_spec("gssapi") is None:
        raise ConfigError("sasl.mechanism=GSSAPI needs the package gssapi.")


def tls_context(config: SecurityConfig) -> ssl.SSLContext | None:
    """Returns the TLS context, or None for a plain connection. Raises ConfigError for unusable files."""
    if config.protocol not in {"SSL", "SASL_SSL"}:
        return None
    files = {
        "ssl.ca.location": config.ssl_ca_location,
        "ssl.certificate.location": config.ssl_certificate_location,
        "ssl.key.location": config.ssl_key_location,
    }
    for name, path in files.items():
        _check_readable(name, path)
    names = ["ssl.ca.location"]
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=config.ssl_ca_location)
        context.check_hostname = config.ssl_check_hostname
        if config.ssl_certificate_location is not None:
            names = ["ssl.certificate.location", "ssl.key.location"]
            context.load_cert_chain(config.ssl_certificate_location, config.ssl_key_location, config.ssl_key_password)
    except (OSError, ssl.SSLError) as error:
        given = " and ".join(f"{name}={files[name]!r}" for name in names)
        raise ConfigError(f"TLS: {given} can't be used: {error}") from error
    return context


def _check_readable(name: str, path: str | None) -> None:
    if path is None:
        return
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ConfigError(f"TLS: {name}={path!r} can't be read: {error.strerror or error}") from error


async def authenticate(config: SecurityConfig, host: str, send: Send) -> int:
    """Executes SaslHandshake and the following exchange. Returns for how many milliseconds the broker accepts requests then
    (KIP-368); 0: without a limit. Raises AuthenticationError."""
    handshake = await send(types.SaslHandshakeRequest(mechanism=config.sasl_mechanism))
    if handshake.error_code != ErrorCode.NONE:
        offered = ", ".join(handshake.mechanisms)
        raise AuthenticationError(
            f"{host} does not offer sasl.mechanism={config.sasl_mechanism}, but {offered} "
            f"({error_name(handshake.error_code)}). Change sasl.mechanism."
        )
    authenticator = _authenticator(config, host)
    answer: bytes | None = None
    lifetime_ms = 0
    while True:
        step = await _next_step(config, host, authenticator, answer)
        if step is None and answer and config.sasl_mechanism == "OAUTHBEARER":
            # The broker has refused the token, and says so once this is acknowledged (RFC 7628, 3.2.3).
            step = _REFUSAL_SEEN, False
        if step is None:
            return lifetime_ms
        response = await send(types.SaslAuthenticateRequest(auth_bytes=step[0]))
        if response.error_code != ErrorCode.NONE:
            raise AuthenticationError(
                f"{host} refuses the credentials: {response.error_message} ({error_name(response.error_code)}). "
                f"{_REMEDIES.get(config.sasl_mechanism, 'Check sasl.username and sasl.password.')}"
            )
        if step[0] == _REFUSAL_SEEN:
            raise AuthenticationError(f"{host} refuses the token: {(answer or b'').decode(errors='replace')}.")
        answer, lifetime_ms = response.auth_bytes, response.session_lifetime_ms


_REFUSAL_SEEN = b"\x01"
_REMEDIES = {
    "OAUTHBEARER": "Check what the token provider gives.",
    "GSSAPI": "Check the Kerberos ticket of this process.",
}


async def _next_step(
    config: SecurityConfig, host: str, authenticator: Authenticator, answer: bytes | None
) -> tuple[bytes, bool] | None:
    """Raises AuthenticationError, also for what a program's token provider or a Kerberos library raises: a server of tokens
    that is away is asked again with the next connection."""
    try:
        return await authenticator.step(answer)
    except Exception as error:
        said = error_text(error)
        raise AuthenticationError(f"{host}: SASL {config.sasl_mechanism} failed: {said}.") from error


def _authenticator(config: SecurityConfig, host: str) -> Authenticator:
    made: Authenticator = _made_by_aiokafka(config, host)
    return made


def _made_by_aiokafka(config: SecurityConfig, host: str) -> Any:  # it has no types
    from aiokafka import conn as aiokafka_conn  # 6 MB, for connections with SASL only

    loop = asyncio.get_running_loop()
    if config.sasl_mechanism == "PLAIN":
        return aiokafka_conn.SaslPlainAuthenticator(
            loop=loop, sasl_plain_username=config.sasl_username, sasl_plain_password=config.sasl_password
        )
    if config.sasl_mechanism == "OAUTHBEARER":
        return aiokafka_conn.OAuthAuthenticator(sasl_oauth_token_provider=config.sasl_oauth_token_provider)
    if config.sasl_mechanism == "GSSAPI":
        domain = config.sasl_kerberos_domain_name or host
        return aiokafka_conn.SaslGSSAPIAuthenticator(
            loop=loop, principal=f"{config.sasl_kerberos_service_name}@{domain}"
        )
    return aiokafka_conn.ScramAuthenticator(
        loop=loop,
        sasl_plain_username=config.sasl_username,
        sasl_plain_password=config.sasl_password,
        sasl_mechanism=config.sasl_mechanism,
    )
