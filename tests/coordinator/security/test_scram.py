"""SCRAM against the client of another project, and what a client must not get away with."""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode, b64encode
from typing import Any

import hypothesis.strategies as st
import pytest
from aiokafka.conn import ScramAuthenticator
from hypothesis import assume, given, settings

from coordinator.security.scram import (
    Credential,
    LoginRefusedError,
    Mechanism,
    ScramServer,
    credential_of,
    decoy,
    salted_password,
)

SALT = b"salt of twenty bytes"


def credential(mechanism: Mechanism, password: str = "secret") -> Credential:
    return credential_of(mechanism, salted_password(mechanism, password.encode(), SALT, 4096), SALT, 4096)


CREDENTIALS = {mechanism: credential(mechanism) for mechanism in Mechanism}


def server(mechanism: Mechanism, user: str = "ada", key: bytes = b"decoy") -> ScramServer:
    known = {user: CREDENTIALS[mechanism]}
    return ScramServer(mechanism, known.get, os.urandom, lambda name: decoy(mechanism, name, key, {}))


async def log_in(side: ScramServer, mechanism: Mechanism, user: str, password: str) -> list[bytes]:
    """A whole exchange; the answers of the server. The client checks the server's signature."""
    client: Any = ScramAuthenticator(
        loop=asyncio.get_running_loop(),
        sasl_plain_username=user,
        sasl_plain_password=password,
        sasl_mechanism=mechanism.sasl_name,
    )
    answers: list[bytes] = []
    step = await client.step(None)
    while step is not None:
        answers.append(side.step(step[0]))
        step = await client.step(answers[-1])
    return answers


@pytest.mark.parametrize("mechanism", list(Mechanism))
@pytest.mark.parametrize("user", ["ada", "a,b=c", "Ünïcode"])
def test_a_client_gets_in_and_knows_the_server(mechanism: Mechanism, user: str) -> None:
    if user == "a,b=c":
        # That client does not escape names, as the RFC wants it: the test speaks for it.
        side = server(mechanism, user)
        assert b"r=nonce" in side.step(b"n,,n=a=2Cb=3Dc,r=nonce")
        assert side._credential is CREDENTIALS[mechanism]
        return
    side = server(mechanism, user)
    assert len(asyncio.run(log_in(side, mechanism, user, "secret"))) == 2
    assert side.user == user


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_a_wrong_password_and_an_unknown_user_are_told_the_same(mechanism: Mechanism) -> None:
    said = []
    for user, password in (("ada", "wrong"), ("bob", "secret"), ("bob", "")):
        side = server(mechanism)
        with pytest.raises(LoginRefusedError) as refused:
            asyncio.run(log_in(side, mechanism, user, password))
        assert side.user is None
        said.append(str(refused.value))
    assert set(said) == {"Authentication failed: invalid user name or password"}


def test_the_salt_of_an_unknown_user_is_always_the_same() -> None:
    def salt(user: bytes, key: bytes) -> bytes:
        answer = server(Mechanism.SCRAM_SHA_256, key=key).step(b"n,,n=" + user + b",r=nonce")
        return answer.split(b",")[1]

    assert salt(b"bob", b"one") == salt(b"bob", b"one")
    assert len({salt(b"bob", b"one"), salt(b"eve", b"one"), salt(b"bob", b"other")}) == 3
    other = server(Mechanism.SCRAM_SHA_512, key=b"one").step(b"n,,n=bob,r=nonce").split(b",")[1]
    assert other != salt(b"bob", b"one"), "a user has another one for each mechanism"


def test_unknown_users_look_like_those_that_exist() -> None:
    def shapes(known: dict[tuple[int, int], int]) -> list[tuple[int, int]]:
        return [decoy(Mechanism.SCRAM_SHA_512, f"user-{n}", b"key", known).shape for n in range(1_000)]

    assert set(shapes({})) == {(20, 4096)}
    assert set(shapes({(100, 16_384): 3})) == {(100, 16_384)}
    before = shapes({(20, 4096): 30, (26, 8192): 10})
    assert 200 <= before.count((26, 8192)) <= 300
    after = shapes({(20, 4096): 30, (26, 8192): 11})
    changed = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    assert set(changed) == {((20, 4096), (26, 8192))}
    assert len(changed) < 40


@pytest.mark.parametrize(
    "first",
    [
        b"p=tls-unique,,n=ada,r=x",
        b"n,a=root,n=ada,r=x",
        b"n,,n=ada",
        b"n,,r=x",
        b"n",
        b"",
        b"\xff\xfe",
    ],
)
def test_messages_that_are_none_are_refused(first: bytes) -> None:
    with pytest.raises(LoginRefusedError):
        server(Mechanism.SCRAM_SHA_256).step(first)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=80), st.booleans())
def test_no_other_bytes_let_anybody_in(message: bytes, is_second: bool) -> None:
    side = server(Mechanism.SCRAM_SHA_256)
    if is_second:
        side.step(b"n,,n=ada,r=nonce")
    else:
        assume(not message.startswith((b"n,,n=", b"y,,n=")))
    with pytest.raises(LoginRefusedError):
        side.step(message)
    assert side.user is None


def test_a_proof_for_another_nonce_is_refused() -> None:
    side, other = server(Mechanism.SCRAM_SHA_256), server(Mechanism.SCRAM_SHA_256)
    side.step(b"n,,n=ada,r=nonce")
    nonce = other.step(b"n,,n=ada,r=nonce").split(b",")[0]
    final = b"c=" + b64encode(b"n,,") + b"," + nonce + b",p=" + b64encode(bytes(32))
    with pytest.raises(LoginRefusedError, match="nonce"):
        side.step(final)
    assert b64decode(b64encode(b"n,,")) == b"n,,"
