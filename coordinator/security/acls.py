"""Access control lists and the decision that follows from them, as Kafka's ``StandardAuthorizer`` makes it.

1. A super user may do everything.
2. An ACL applies to a resource if its pattern is the resource's name, ``*``, or (PREFIXED) a prefix of the name. Among
   these, a DENY for the principal, the host and the operation takes precedence over any ALLOW.
3. An ALLOW of READ, WRITE, DELETE or ALTER implies DESCRIBE, one of ALTER_CONFIGS implies DESCRIBE_CONFIGS. A DENY implies
   nothing: who is denied READ may still be allowed to DESCRIBE.
4. A resource without any ACL, for any principal, is closed to everybody except super users, or open to everybody if
   ``allow.everyone.if.no.acl.found`` is set.
5. The principal is a text, ``User:name``; an ACL for ``User:*`` is for everybody. Hosts are addresses or ``*``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

CLUSTER_NAME = "kafka-cluster"
"""The only name that the resource of type CLUSTER has."""
WILDCARD = "*"
EVERYBODY = "User:*"
ANONYMOUS = "User:ANONYMOUS"


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """MATCH and ANY are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_IMPLYING = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}

_O = Operation
SUPPORTED_OPERATIONS = {
    ResourceType.TOPIC: (
        *(_O.READ, _O.WRITE, _O.CREATE, _O.DESCRIBE, _O.DELETE, _O.ALTER, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ),
    ResourceType.GROUP: (_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        *(_O.CREATE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE, _O.ALTER),
        _O.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.DESCRIBE, _O.WRITE),
}
"""What can be done with a resource (Kafka's ``AclEntry.supportedOperations``): what answers with authorized operations
look at."""


class Acl(NamedTuple):
    """One ACL, Kafka's ``AclBinding``: numbers as on the wire."""

    resource_type: int
    pattern_type: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int

    def is_about(self, resource_type: int, name: str) -> bool:
        """Whether its pattern matches this resource."""
        if self.resource_type != resource_type:
            return False
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def concerns(self, principal: str, host: str, operation: int) -> bool:
        """Whether it says something about this operation of this principal, from this host."""
        if self.principal not in (principal, EVERYBODY) or self.host not in (host, WILDCARD):
            return False
        if self.operation in (operation, Operation.ALL):
            return True
        return self.permission == Permission.ALLOW and self.operation in _IMPLYING.get(Operation(operation), ())


class AclFilter(NamedTuple):
    """What DescribeAcls and DeleteAcls choose by, Kafka's ``AclBindingFilter``: None and ANY fit everything."""

    resource_type: int
    pattern_type: int
    name: str | None
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def fits(self, acl: Acl) -> bool:
        return self._fits_pattern(acl) and (
            self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _fits_pattern(self, acl: Acl) -> bool:
        if self.resource_type not in (ResourceType.ANY, acl.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type == PatternType.MATCH:
            return acl.is_about(acl.resource_type, self.name)
        return self.name == acl.name


class Authorizer:
    """All ACLs, and what they allow."""

    def __init__(self, super_users: Collection[str] = (), *, allow_without_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_without_acl = allow_without_acl
        self._acls: dict[Acl, None] = {}
        self._by_name: dict[tuple[int, int, str], list[Acl]] = {}
        self._prefix_lengths: dict[int, Counter[int]] = {}

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._acls)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._acls

    def add(self, acl: Acl) -> None:
        if acl in self._acls:
            return
        self._acls[acl] = None
        self._by_name.setdefault((acl.resource_type, acl.pattern_type, acl.name), []).append(acl)
        if acl.pattern_type == PatternType.PREFIXED:
            self._prefix_lengths.setdefault(acl.resource_type, Counter())[len(acl.name)] += 1

    def remove(self, acl: Acl) -> None:
        del self._acls[acl]
        pattern = acl.resource_type, acl.pattern_type, acl.name
        self._by_name[pattern].remove(acl)
        if not self._by_name[pattern]:
            del self._by_name[pattern]
        if acl.pattern_type == PatternType.PREFIXED:
            lengths = self._prefix_lengths[acl.resource_type]
            lengths[len(acl.name)] -= 1
            if not lengths[len(acl.name)]:
                del lengths[len(acl.name)]

    def chosen(self, wanted: AclFilter) -> list[Acl]:
        """The ACLs that a filter fits, in the order in which they were made."""
        return [acl for acl in self._acls if wanted.fits(acl)]

    def _about(self, resource_type: int, name: str) -> Iterator[Acl]:
        """The ACLs about one resource."""
        yield from self._by_name.get((resource_type, PatternType.LITERAL, name), ())
        if name != WILDCARD:
            yield from self._by_name.get((resource_type, PatternType.LITERAL, WILDCARD), ())
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                yield from self._by_name.get((resource_type, PatternType.PREFIXED, name[:length]), ())

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Whether ``principal`` may do ``operation`` with one resource, from ``host``."""
        if principal in self._super_users:
            return True
        allowed, open_to_all = False, self._allow_without_acl
        for acl in self._about(resource_type, name):
            open_to_all = False
            if acl.concerns(principal, host, operation):
                if acl.permission == Permission.DENY:
                    return False
                allowed = True
        return allowed or open_to_all

    def allows_some(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there can be a resource of this type with which the principal may do the operation.

        Kafka's ``authorizeByResourceType``: operations that imply this one don't count.
        """
        if self.allows(principal, host, operation, resource_type, "hardcode"):
            return True
        denied: set[tuple[int, str]] = set()
        allowed: set[tuple[int, str]] = set()
        for acl in self._acls:
            if acl.resource_type != resource_type or acl.operation not in (operation, Operation.ALL):
                continue
            if acl.concerns(principal, host, operation):
                chosen = denied if acl.permission == Permission.DENY else allowed
                chosen.add((acl.pattern_type, acl.name))
        wildcard = PatternType.LITERAL, WILDCARD
        if wildcard in denied:
            return False
        return wildcard in allowed or any(not _is_dominated(pattern, denied) for pattern in allowed)


def _is_dominated(pattern: tuple[int, str], denied: Collection[tuple[int, str]]) -> bool:
    """Whether everything that a pattern means is denied."""
    kind, name = pattern
    if kind == PatternType.LITERAL and pattern in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


def super_users_of(text: str) -> frozenset[str]:
    """The users in ``super.users``: principals with semicolons between them. Raises ValueError for what is none."""
    users = [part.strip() for part in text.split(";") if part.strip()]
    for user in users:
        if ":" not in user:
            raise ValueError(f"super.users: {user} is not a principal: expected User:{user}")
    return frozenset(users)


def operation_bits(operations: Iterable[int]) -> int:
    """Operations as the bit field that answers carry."""
    return sum(1 << operation for operation in operations)
