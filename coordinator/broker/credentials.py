"""SCRAM credentials: durable, and managed by Kafka's own requests (KIP-554).

1. A credential is a row of an internal log, and in force once that is written. So is the key that the salts of users who
   are not there follow from: made once, or a start would tell them from those of users who are. Those users' salts are as
   long, and their iterations as many, as those of users who are there.
2. Of several changes in one request each succeeds or fails by itself; two for one user fail both. Requests are handled
   in steps: one may name thousands of users.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Generator, Mapping

import orjson

from coordinator.broker.keyed_log import KeyedLog
from coordinator.broker.slices import ITEMS_PER_STEP, in_steps
from coordinator.log import LogError
from coordinator.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    Credential,
    Mechanism,
    Shape,
    credential_of,
    decoy,
)
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

_ROW = "scram/"
_DECOY_ROW = "scram.decoy.key"
_DECOY_KEY_BYTES = 32
_WRITTEN_PER_STEP = 4
Name = tuple[Mechanism, str]
Change = (
    AlterUserScramCredentialsRequest.ScramCredentialDeletion | AlterUserScramCredentialsRequest.ScramCredentialUpsertion
)


class Credentials:
    """All SCRAM credentials."""

    def __init__(self, log: KeyedLog) -> None:
        self._log = log
        self._known: dict[Name, Credential] = {}
        self._shapes: dict[Mechanism, Counter[Shape]] = {mechanism: Counter() for mechanism in Mechanism}
        self._decoy_key = b""

    def load(self, rows: Mapping[str, bytes]) -> None:
        """Loads the credentials from the broker's log."""
        self._decoy_key = rows.get(_DECOY_ROW, b"")
        for key, row in rows.items():
            if key.startswith(_ROW):
                number, _, user = key.removeprefix(_ROW).partition("/")
                value = orjson.loads(row)
                salt, stored_key, server_key = (b64decode(value[name]) for name in ("salt", "stored_key", "server_key"))
                credential = Credential(salt, stored_key, server_key, value["iterations"])
                self._set(Mechanism(int(number)), user, credential)

    def decoy_key(self, random_bytes: Callable[[int], bytes]) -> bytes:
        """Returns the key from which the salts of unknown users are derived. Raises the log's errors."""
        if not self._decoy_key:
            made = random_bytes(_DECOY_KEY_BYTES)
            self._log.put(_DECOY_ROW, made)
            self._decoy_key = made
        return self._decoy_key

    def __len__(self) -> int:
        return len(self._known)

    def of(self, mechanism: Mechanism, user: str) -> Credential | None:
        return self._known.get((mechanism, user))

    def decoy(self, mechanism: Mechanism, user: str, key: bytes) -> Credential:
        """Returns what a client is sent about a user who is not there. ``key``: of :meth:`decoy_key`."""
        return decoy(mechanism, user, key, self._shapes[mechanism])

    def _set(self, mechanism: Mechanism, user: str, credential: Credential | None) -> None:
        shapes = self._shapes[mechanism]
        old = self._known.pop((mechanism, user), None)
        if old is not None:
            shapes[old.shape] -= 1
            if not shapes[old.shape]:
                del shapes[old.shape]
        if credential is not None:
            self._known[mechanism, user] = credential
            shapes[credential.shape] += 1

    def put(self, mechanism: Mechanism, user: str, credential: Credential | None) -> None:
        """Sets or, with None, removes a credential. Raises the log's errors without any change."""
        row = None
        if credential is not None:
            row = orjson.dumps(
                {
                    "salt": b64encode(credential.salt).decode(),
                    "stored_key": b64encode(credential.stored_key).decode(),
                    "server_key": b64encode(credential.server_key).decode(),
                    "iterations": credential.iterations,
                }
            )
        self._log.put(f"{_ROW}{int(mechanism)}/{user}", row)
        self._set(mechanism, user, credential)

    # ---------------------------------------------------------------------------------------------------- requests

    def altering(
        self, request: AlterUserScramCredentialsRequest
    ) -> Generator[None, None, AlterUserScramCredentialsResponse]:
        """Handles AlterUserScramCredentials."""
        changes: list[Change] = [*request.deletions, *request.upsertions]
        seen = Counter((yield from in_steps((each.name, each.mechanism) for each in changes)))
        errors: dict[str, tuple[int, str | None]] = {}
        for count, each in enumerate(changes, 1):
            code, message = errors.get(each.name, (0, None))
            if not code:
                code, message = self._refusal(each, is_twice=seen[each.name, each.mechanism] > 1)
            errors[each.name] = (code, message)
            if not count % ITEMS_PER_STEP:
                yield
        for count, each in enumerate(changes, 1):
            if not count % _WRITTEN_PER_STEP:
                yield
            if not errors[each.name][0]:
                errors[each.name] = self._carry_out(each)
        result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
        results = (
            result(user=user, error_code=code, error_message=message) for user, (code, message) in errors.items()
        )
        return AlterUserScramCredentialsResponse(results=(yield from in_steps(results)))

    def _carry_out(self, change: Change) -> tuple[int, str | None]:
        mechanism, made = Mechanism(change.mechanism), None
        if isinstance(change, AlterUserScramCredentialsRequest.ScramCredentialUpsertion):
            made = credential_of(mechanism, change.salted_password, change.salt, change.iterations)
        try:
            self.put(mechanism, change.name, made)
        except LogError as error:
            return error.error_code, str(error)
        return 0, None

    def _refusal(self, change: Change, *, is_twice: bool) -> tuple[int, str | None]:
        if not change.name:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
        if is_twice:
            return ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        if change.mechanism not in Mechanism.__members__.values():
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
        if isinstance(change, AlterUserScramCredentialsRequest.ScramCredentialDeletion):
            if (Mechanism(change.mechanism), change.name) not in self._known:
                return ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            return 0, None
        if change.iterations < ITERATIONS_MIN:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
        if change.iterations > ITERATIONS_MAX:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
        return 0, None

    def describing(
        self, request: DescribeUserScramCredentialsRequest
    ) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
        """Handles DescribeUserScramCredentials: mechanisms and iterations, nothing secret."""
        known: dict[str, list[tuple[Mechanism, int]]] = {}
        for (mechanism, user), credential in sorted(self._known.items()):
            known.setdefault(user, []).append((mechanism, credential.iterations))
        wanted = (yield from in_steps(each.name for each in request.users or ())) or list(known)
        response = DescribeUserScramCredentialsResponse(results=[])
        counts = Counter(wanted)
        for done, user in enumerate(counts):
            if done and not done % ITEMS_PER_STEP:
                yield
            result = response.DescribeUserScramCredentialsResult(user=user, credential_infos=[])
            if counts[user] > 1:
                result.error_code = ErrorCode.DUPLICATE_RESOURCE
                result.error_message = f"Cannot describe a user twice in a single request: {user}"
            elif user not in known:
                result.error_code = ErrorCode.RESOURCE_NOT_FOUND
                result.error_message = f"Attempt to describe a user credential that does not exist: {user}"
            result.credential_infos = [
                response.CredentialInfo(mechanism=int(mechanism), iterations=iterations)
                for mechanism, iterations in known.get(user, ())
                if not result.error_code
            ]
            response.results.append(result)
        return response
