"""A streams group as the cluster describes it, for the commands about groups."""

from __future__ import annotations

from typing import Any

from streamsrt.client.network import NetworkThread
from streamsrt.errors import RequestFailedError
from streamsrt.wire.error_codes import error_name


def described_group(network: NetworkThread, group: str) -> Any:
    """The group. Raises RequestFailedError for one that can't be described, as where there is none."""
    described = network.admin.describe_streams_groups([group])[0]
    if described.error_code:
        reason = described.error_message or error_name(described.error_code)
        raise RequestFailedError(
            f"group {group!r} can't be described: {reason} (streamsrt groups list shows what there is)",
            described.error_code,
        )
    return described
