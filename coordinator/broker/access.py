"""What one principal may do from one host, which every request checks.

1. Without an authorizer everybody may do everything, and the check costs nothing: :data:`EVERYTHING` stands for all.
2. A decision is remembered until an ACL changes; then a new object is used. One about a very long name is not: requests
   may have names of 32 kB.
3. A refusal is logged with its principal, operation and resource, as in Kafka's audit log; once, not for each retry.
"""

from __future__ import annotations

import ipaddress
import logging

from coordinator.security.acls import (
    ANONYMOUS,
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Authorizer,
    Operation,
    ResourceType,
    operation_bits,
)

logger = logging.getLogger("coordinator.authorizer")

DECISIONS_MAX = 10_000
REMEMBERED_NAME_MAX = 256


def java_address(host: str) -> str:
    """Formats an address like Java, which is how ACLs name hosts: IPv6 without ``::``."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


class Access:
    """The rights of one principal from one host. Without an authorizer: all of them."""

    __slots__ = ("_authorizer", "_known", "host", "principal")

    def __init__(self, authorizer: Authorizer | None, principal: str = ANONYMOUS, host: str = "") -> None:
        self._authorizer = authorizer
        self.principal = principal
        self.host = java_address(host)
        self._known: dict[tuple[int, int, str], bool] = {}

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the operation is allowed with this resource."""
        if self._authorizer is None:
            return True
        known = self._known.get((operation, resource_type, name))
        return known if known is not None else self._decide(self._authorizer, operation, resource_type, name)

    def _decide(self, authorizer: Authorizer, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        allowed = authorizer.allows(self.principal, self.host, operation, resource_type, name)
        if len(name) <= REMEMBERED_NAME_MAX:
            if len(self._known) >= DECISIONS_MAX:
                self._known.clear()
            self._known[operation, resource_type, name] = allowed
        if not allowed:
            logger.info(
                "Principal = %s is Denied Operation = %s from host = %s on resource = %s:%s",
                *(self.principal, operation.name, self.host, resource_type.name, name[:REMEMBERED_NAME_MAX]),
            )
        return allowed

    def may_with_cluster(self, operation: Operation) -> bool:
        """Whether the operation is allowed with the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_with_some(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the operation may be allowed with any resource of this type."""
        authorizer = self._authorizer
        return authorizer is None or authorizer.allows_some(self.principal, self.host, operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Returns the bit field of all operations allowed with this resource. Nothing is logged, because none is
        attempted."""
        supported, authorizer = SUPPORTED_OPERATIONS[resource_type], self._authorizer
        if authorizer is None:
            return operation_bits(supported)
        return operation_bits(
            each for each in supported if authorizer.allows(self.principal, self.host, each, resource_type, name)
        )

    def cluster_operations(self) -> int:
        """Returns the same for the cluster; 0 without DESCRIBE on it."""
        may_ask = self.may_with_cluster(Operation.DESCRIBE)
        return self.operations(ResourceType.CLUSTER, CLUSTER_NAME) if may_ask else 0

    # Used by the group coordinator.

    def may_describe(self, topic: str) -> bool:
        return self.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def may_create(self, topic: str) -> bool:
        return self.may_with_cluster(Operation.CREATE) or self.may(Operation.CREATE, ResourceType.TOPIC, topic)


EVERYTHING = Access(None)
"""Everybody's rights where no authorizer is set."""
