"""ACLs: durable, and managed by Kafka's own requests (KIP-140).

1. Whether there is an authorizer is a setting of the start, ``authorizer.class.name``; without one the requests are
   answered SECURITY_DISABLED and everybody may do everything.
2. An ACL is a row of an internal log, and in force once that is written. One that is there already is made again without
   effect.
3. Every change drops what was decided before, and shows the groups their topics again: what a pattern of names means
   depends on what its members may see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

import orjson

from coordinator.broker.access import EVERYTHING, Access
from coordinator.broker.broker_configs import BrokerConfigs
from coordinator.broker.keyed_log import KeyedLog
from coordinator.group.settings import InvalidConfigError
from coordinator.log import LogError
from coordinator.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    super_users_of,
)
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CALLERS_MAX = 10_000
_ROW = "acl/"
_NO_AUTHORIZER = "No Authorizer is configured on the broker: start it with authorizer.class.name=" + STANDARD_AUTHORIZER


class Acls:
    """All ACLs of the broker, and the decisions derived from them. Raises InvalidConfigError."""

    def __init__(self, log: KeyedLog, configs: BrokerConfigs, on_change: Callable[[], None]) -> None:
        self._log = log
        self._on_change = on_change
        self._authorizer: Authorizer | None = None
        if configs["authorizer.class.name"]:
            try:
                super_users = super_users_of(str(configs["super.users"]))
            except ValueError as error:
                raise InvalidConfigError(str(error)) from None
            allow_without_acl = bool(configs["allow.everyone.if.no.acl.found"])
            self._authorizer = Authorizer(super_users, allow_without_acl=allow_without_acl)
        self._callers: dict[tuple[str, str], Access] = {}
        self.version = 0
        """Changes with every change of the ACLs."""

    @property
    def is_on(self) -> bool:
        """Whether an authorizer is set."""
        return self._authorizer is not None

    def load(self, rows: Mapping[str, bytes]) -> None:
        """Loads the ACLs from the broker's log; they are kept while no authorizer is set."""
        if self._authorizer is not None:
            for key in rows:
                if key.startswith(_ROW):
                    self._authorizer.add(Acl(*orjson.loads(key.removeprefix(_ROW))))

    def access_of(self, principal: str, host: str) -> Access:
        """Returns the present rights of a principal from a host."""
        if self._authorizer is None:
            return EVERYTHING
        known = self._callers.get((principal, host))
        if known is None:
            if len(self._callers) >= CALLERS_MAX:
                self._callers.clear()
            known = self._callers[principal, host] = Access(self._authorizer, principal, host)
        return known

    def _changed(self) -> None:
        self._callers.clear()
        self.version += 1
        self._on_change()

    # ---------------------------------------------------------------------------------------------------- requests

    def create(self, request: CreateAclsRequest) -> CreateAclsResponse:
        """Handles CreateAcls: each ACL is created or refused separately."""
        result = CreateAclsResponse.AclCreationResult
        authorizer = self._authorizer
        if authorizer is None:
            refused = result(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER)
            return CreateAclsResponse(results=[refused for _ in request.creations])
        results = []
        for wanted in request.creations:
            acl = Acl(
                wanted.resource_type,
                wanted.resource_pattern_type,
                wanted.resource_name,
                wanted.principal,
                wanted.host,
                wanted.operation,
                wanted.permission_type,
            )
            code, text = self._made(authorizer, acl)
            results.append(result(error_code=code, error_message=text))
        self._changed()
        return CreateAclsResponse(results=results)

    def _made(self, authorizer: Authorizer, acl: Acl) -> tuple[int, str | None]:
        reason = _why_invalid(acl)
        if reason is not None:
            return ErrorCode.INVALID_REQUEST, reason
        if acl not in authorizer:
            try:
                self._log.put(_ROW + orjson.dumps(list(acl)).decode(), b"{}")
            except LogError as error:
                return error.error_code, str(error)
            authorizer.add(acl)
        return 0, None

    def describe(self, request: DescribeAclsRequest) -> DescribeAclsResponse:
        """Handles DescribeAcls: returns those that match the filter, by resource."""
        if self._authorizer is None:
            return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER)
        wanted = AclFilter(
            request.resource_type_filter,
            request.pattern_type_filter,
            request.resource_name_filter,
            request.principal_filter,
            request.host_filter,
            request.operation,
            request.permission_type,
        )
        reason = _why_unknown(wanted)
        if reason is not None:
            return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=reason)
        found: dict[tuple[int, str, int], list[DescribeAclsResponse.AclDescription]] = {}
        for acl in self._authorizer.chosen(wanted):
            found.setdefault((acl.resource_type, acl.name, acl.pattern_type), []).append(
                DescribeAclsResponse.AclDescription(
                    principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
                )
            )
        resources = [
            DescribeAclsResponse.DescribeAclsResource(
                resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls
            )
            for (kind, name, pattern), acls in found.items()
        ]
        return DescribeAclsResponse(error_code=0, error_message=None, resources=resources)

    def delete(self, request: DeleteAclsRequest) -> DeleteAclsResponse:
        """Handles DeleteAcls: deletes the ACLs that each filter matches, and returns them."""
        result = DeleteAclsResponse.DeleteAclsFilterResult
        authorizer = self._authorizer
        if authorizer is None:
            refused = result(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER, matching_acls=[])
            return DeleteAclsResponse(filter_results=[refused for _ in request.filters])
        wanted = [
            AclFilter(
                each.resource_type_filter,
                each.pattern_type_filter,
                each.resource_name_filter,
                each.principal_filter,
                each.host_filter,
                each.operation,
                each.permission_type,
            )
            for each in request.filters
        ]
        chosen = [authorizer.chosen(each) for each in wanted]
        answer = DeleteAclsResponse(
            filter_results=[self._deleted(authorizer, each, acls) for each, acls in zip(wanted, chosen, strict=True)]
        )
        self._changed()
        return answer

    def _deleted(
        self, authorizer: Authorizer, wanted: AclFilter, chosen: list[Acl]
    ) -> DeleteAclsResponse.DeleteAclsFilterResult:
        reason = _why_unknown(wanted)
        answer = DeleteAclsResponse.DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=[])
        if reason is not None:
            answer.error_code, answer.error_message = ErrorCode.INVALID_REQUEST, reason
            return answer
        for acl in chosen:
            told = DeleteAclsResponse.DeleteAclsMatchingAcl(
                error_code=0,
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            answer.matching_acls.append(told)
            try:
                if acl in authorizer:
                    self._log.put(_ROW + orjson.dumps(list(acl)).decode(), None)
                    authorizer.remove(acl)
            except LogError as error:
                told.error_code, told.error_message = error.error_code, str(error)
        return answer


def _why_invalid(acl: Acl) -> str | None:
    """Returns why an ACL can't be created, or None."""
    kinds = ResourceType.__members__.values()
    if acl.resource_type not in kinds or acl.resource_type <= ResourceType.ANY:
        return f"Invalid resourceType {_name(ResourceType, acl.resource_type)}"
    if acl.resource_type == ResourceType.DELEGATION_TOKEN:
        return "This broker has no delegation tokens: an ACL for one would mean nothing."
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Invalid empty resource name"
    if acl.pattern_type not in {PatternType.LITERAL, PatternType.PREFIXED}:
        return f"Invalid patternType {_name(PatternType, acl.pattern_type)}"
    if acl.operation not in Operation.__members__.values() or acl.operation <= Operation.ANY:
        return f"Invalid operation {_name(Operation, acl.operation)}"
    if acl.permission not in {Permission.ALLOW, Permission.DENY}:
        return f"Invalid permissionType {_name(Permission, acl.permission)}"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    return None


def _name(kind: type[IntEnum], code: int) -> str:
    names = {int(member): str(name) for name, member in kind.__members__.items()}
    return names.get(code, "UNKNOWN")


def _why_unknown(wanted: AclFilter) -> str | None:
    for kind, code in ((ResourceType, wanted.resource_type), (PatternType, wanted.pattern_type)):
        if _name(kind, code) == "UNKNOWN":
            return "Unknown patternFilter."
    for other, code in ((Operation, wanted.operation), (Permission, wanted.permission)):
        if _name(other, code) == "UNKNOWN":
            return "Unknown entryFilter."
    return None
