"""A streams group as the cluster describes it, for the commands about groups."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from streamsrt.client.network import NetworkThread
from streamsrt.errors import ConfigError, RequestFailedError
from streamsrt.wire.error_codes import ErrorCode, error_name
from streamsrt.wire.private_tags import REBALANCES_TAG
from streamsrt.wire.types import StreamsGroupDescribeResponse

Described: TypeAlias = StreamsGroupDescribeResponse.DescribedGroup


def described_group(network: NetworkThread, group: str) -> Described:
    """The group. Raises ConfigError where there is none, RequestFailedError where it can't be described."""
    described = network.admin.describe_streams_groups([group])[0]
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise no_such_group(group)
    if described.error_code:
        reason = described.error_message or error_name(described.error_code)
        raise RequestFailedError(
            f"group {group!r} can't be described: {reason} (streamsrt groups list shows what there is)",
            described.error_code,
        )
    return described


def told_rebalances(described: Described) -> list[dict[str, Any]] | None:
    """Why the group was assigned anew, and what moved, the newest last. None where the broker does not tell."""
    told = (described.unknown_tags or {}).get(REBALANCES_TAG)
    return None if told is None else list(json.loads(told))


def check_group(network: NetworkThread, group: str) -> None:
    """Raises ConfigError where there is no group of that name, of whatever kind."""
    if all(each.group_id != group for each in network.admin.list_groups()):
        raise no_such_group(group)


def kind_of_group(network: NetworkThread, group: str) -> str:
    """``streams``, ``classic`` or ``consumer``. Raises ConfigError where there is none of that name."""
    kind = next((each.group_type.lower() for each in network.admin.list_groups() if each.group_id == group), None)
    if kind is None:
        raise no_such_group(group)
    return kind


def no_such_group(group: str) -> ConfigError:
    return ConfigError(f"no such group: {group} (streamsrt groups list shows what there is)")
