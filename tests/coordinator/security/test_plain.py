from __future__ import annotations

import pytest

from coordinator.security.plain import PlainServer, users_of
from coordinator.security.scram import LoginRefusedError

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    r'username="broker" user_ada="love lace" user_eve = "a\"b=c" user_empty="";'
)


def test_users_are_those_of_javas_configuration() -> None:
    assert users_of(JAAS) == {"ada": "love lace", "eve": 'a"b=c', "empty": ""}
    assert users_of("") == {}


@pytest.mark.parametrize("message", [b"\0ada\0love lace", b"ada\0ada\0love lace"])
def test_name_and_password_let_in(message: bytes) -> None:
    side = PlainServer(users_of(JAAS))
    assert side.step(message) == b""
    assert side.user == "ada"


@pytest.mark.parametrize(
    "message",
    [b"\0ada\0wrong", b"\0bob\0love lace", b"\0bob\0", b"\0empty\0", b"root\0ada\0love lace", b"ada", b"", b"\xff\0\0"],
)
def test_everything_else_is_refused(message: bytes) -> None:
    side = PlainServer(users_of(JAAS))
    with pytest.raises(LoginRefusedError, match="Authentication failed"):
        side.step(message)
    assert side.user is None
