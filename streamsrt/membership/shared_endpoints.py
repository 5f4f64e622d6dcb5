"""Two instances with one ``application.server``: queries for the state of one reach the other."""

from __future__ import annotations

from collections.abc import Collection

from streamsrt.membership.values import Endpoint
from streamsrt.wording import address_text


def shared_endpoint_text(endpoint: Endpoint, own: str, others: Collection[str]) -> str:
    """A line for the log. ``own``, ``others``: the members, for people."""
    address = address_text(endpoint.host, endpoint.port)
    return (
        f"{own}, which is this instance, and {' and '.join(sorted(others))} have the same application.server {address}: "
        "queries for the state of one may reach the other, which does not have it. If both run, give each of them its own "
        "address, at which the others reach it"
    )
