"""SCRAM-SHA-256 and SCRAM-SHA-512, the server's side (RFC 5802), as Kafka speaks it.

1. A password is never kept: a credential is a salt, an iteration count and two keys that are derived from it.
2. An exchange has two steps. A user that is not there and a wrong password have one answer: a client can't tell which names
   exist. For an unknown user the exchange continues with a made-up salt and iteration count, of the shape that users who
   exist have, which are the same for a name and mechanism after restarts, too.
3. Comparisons take the same time whatever they compare.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16_384
_NONCE_BYTES = 20
_SALT_BYTES = 20
_DIGEST_BYTES = 64
_DRAWN_BYTES = 6

Shape: TypeAlias = tuple[int, int]
"""What a client is sent of a credential: bytes of the salt, iterations."""


class Mechanism(IntEnum):
    """Kafka's numbers of the mechanisms."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return "SCRAM-SHA-256" if self is Mechanism.SCRAM_SHA_256 else "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        return "sha256" if self is Mechanism.SCRAM_SHA_256 else "sha512"


class LoginRefusedError(Exception):
    """The client is not let in. The message is for the client, and tells nothing about who exists."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What is kept of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @property
    def shape(self) -> Shape:
        return len(self.salt), self.iterations


def salted_password(mechanism: Mechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """``Hi(password, salt, i)`` of the RFC: what Kafka's admin clients send in place of a password."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def credential_of(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """The credential of a salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    return Credential(salt, stored_key, _hmac(mechanism, salted, b"Server Key"), iterations)


def decoy(mechanism: Mechanism, user: str, key: bytes, shapes: Mapping[Shape, int]) -> Credential:
    """The credential that an unknown user seems to have: what a client is sent does not tell it from one that exists.

    ``shapes`` counts the users that exist by what a client sees of them, and is followed in proportion. A user's answer
    follows from the ``key``, and changes only if it was of a shape that has become rarer.
    """

    def chance(shape: Shape) -> float:
        # Rendezvous hashing with weights.
        drawn = hmac.digest(key, f"{mechanism.sasl_name}/{user}/{shape}".encode(), "sha512")[:_DRAWN_BYTES]
        return shapes[shape] / -math.log((int.from_bytes(drawn) + 0.5) / 256**_DRAWN_BYTES)

    salt_bytes, iterations = max(sorted(shapes), key=chance, default=(_SALT_BYTES, ITERATIONS_MIN))
    salt = b"".join(
        hmac.digest(key, f"{mechanism.sasl_name}/{user}#{part}".encode(), "sha512")
        for part in range(-(-salt_bytes // _DIGEST_BYTES))
    )
    return Credential(salt[:salt_bytes], b"", b"", iterations)


class ScramServer:
    """One exchange. ``look_up(name)`` gives the credential of a user, ``decoy(name)`` that of an unknown one,
    ``random_bytes`` the server's nonce."""

    def __init__(
        self,
        mechanism: Mechanism,
        look_up: Callable[[str], Credential | None],
        random_bytes: Callable[[int], bytes],
        decoy: Callable[[str], Credential],
    ) -> None:
        self._mechanism = mechanism
        self._look_up = look_up
        self._nonce = b64encode(random_bytes(_NONCE_BYTES)).decode("ascii")
        self._decoy = decoy
        self._credential: Credential | None = None
        self._first_bare = ""
        self._server_first = ""
        self._header = ""
        self.user: str | None = None
        """The name of the user, once the exchange is over."""

    def step(self, message: bytes) -> bytes:
        """The answer to a message of the client. Raises LoginRefusedError."""
        try:
            text = message.decode("utf-8")
            return (self._final(text) if self._server_first else self._first(text)).encode("utf-8")
        except (ValueError, KeyError, IndexError, Base64Error) as error:
            raise LoginRefusedError(f"Authentication failed: invalid SCRAM message ({type(error).__name__})") from None

    def _first(self, text: str) -> str:
        channel, authorization, bare = text.split(",", 2)
        if channel not in {"n", "y"} or (authorization and not authorization.startswith("a=")):
            raise LoginRefusedError("Authentication failed: channel binding is not supported")
        fields = _fields(bare)
        self._name = fields["n"].replace("=2C", ",").replace("=3D", "=")
        if authorization and authorization[2:] != fields["n"]:
            raise LoginRefusedError("Authentication failed: authorization as another user is not supported")
        self._header = f"{channel},{authorization},"
        self._first_bare = bare
        self._nonce = fields["r"] + self._nonce
        self._credential = self._look_up(self._name)
        used = self._credential or self._decoy(self._name)
        salt = b64encode(used.salt).decode("ascii")
        self._server_first = f"r={self._nonce},s={salt},i={used.iterations}"
        return self._server_first

    def _final(self, text: str) -> str:
        without_proof, _, proof = text.rpartition(",p=")
        fields = _fields(without_proof)
        if fields["r"] != self._nonce or b64decode(fields["c"], validate=True) != self._header.encode():
            raise LoginRefusedError("Authentication failed: invalid SCRAM message (nonce or channel)")
        signed = f"{self._first_bare},{self._server_first},{without_proof}".encode()
        mechanism, credential = self._mechanism, self._credential
        stored_key = credential.stored_key if credential is not None else b""
        signature = _hmac(mechanism, stored_key, signed)
        sent = b64decode(proof, validate=True)
        client_key = bytes(one ^ other for one, other in zip(sent, signature, strict=True))
        derived = hashlib.new(mechanism.hash_name, client_key).digest()
        if not hmac.compare_digest(derived, stored_key) or credential is None:
            raise LoginRefusedError("Authentication failed: invalid user name or password")
        self.user = self._name
        return "v=" + b64encode(_hmac(mechanism, credential.server_key, signed)).decode("ascii")


def _fields(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _hmac(mechanism: Mechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)
