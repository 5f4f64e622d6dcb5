"""SASL PLAIN: name and password as they are (RFC 4616), against users given in Kafka's JAAS form."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping

from coordinator.security.scram import LoginRefusedError

_USER = re.compile(r'\buser_([^\s=]+)\s*=\s*"((?:[^"\\]|\\.)*)"')


def users_of(jaas: str) -> dict[str, str]:
    """Passwords by user out of ``... user_alice="secret" user_bob="..."``: the options of Kafka's PlainLoginModule."""
    return {name: re.sub(r"\\(.)", r"\1", password) for name, password in _USER.findall(jaas)}


class PlainServer:
    """One exchange, of one step."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.user: str | None = None

    def step(self, message: bytes) -> bytes:
        """The answer, which is empty. Raises LoginRefusedError."""
        try:
            authorization, name, password = message.decode("utf-8").split("\0")
        except ValueError:
            raise LoginRefusedError("Authentication failed: invalid SASL/PLAIN message") from None
        known = self._users.get(name)
        expected = (known if known is not None else "").encode()
        if not hmac.compare_digest(password.encode(), expected) or known is None or not password:
            raise LoginRefusedError("Authentication failed: Invalid username or password")
        if authorization not in {"", name}:
            raise LoginRefusedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = name
        return b""
