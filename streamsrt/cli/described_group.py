"""A streams group as the cluster describes it, for the commands about groups."""

from __future__ import annotations

from typing import TypeAlias

from streamsrt.client.network import NetworkThread
from streamsrt.errors import ConfigError, RequestFailedError
from streamsrt.wire.error_codes import ErrorCode, error_name
from streamsrt.wire.types import StreamsGroupDescribeResponse

Described: TypeAlias = StreamsGroupDescribeResponse.DescribedGroup


def described_group(network: NetworkThread, group: str) -> Described:
    """The group. Raises ConfigError where there is none, RequestFailedError where it can't be described."""
    described = network.admin.describe_streams_groups([group])[0]
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        kind = kind_of_group(network, group)
        raise ConfigError(
            f"{group} is a {kind} group, which belongs to no application (streamsrt groups list shows all)"
        )
    if described.error_code:
        reason = described.error_message or error_name(described.error_code)
        raise RequestFailedError(
            f"group {group!r} can't be described: {reason} (streamsrt groups list shows all groups)",
            described.error_code,
        )
    return described


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
    return ConfigError(f"no such group: {group} (streamsrt groups list shows all groups)")
