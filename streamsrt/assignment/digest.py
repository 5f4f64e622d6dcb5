"""The digest of a version of the program, which members of a classic group announce and the bundled broker checks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from streamsrt.wire.client_tags import TOPOLOGY_DIGEST
from streamsrt.wire.messages import encode
from streamsrt.wire.types import StreamsGroupHeartbeatRequest

_VERSION = 0


def topology_digest(topology: StreamsGroupHeartbeatRequest.Topology, client_tags: Mapping[str, str]) -> bytes:
    """Returns 16 bytes that identify a version of the program: its topics and stores, its epoch, and, by the runtime's
    client tag, the operators between them."""
    program = client_tags.get(TOPOLOGY_DIGEST, "").encode()
    return hashlib.sha256(topology_bytes(topology) + b"\0" + program).digest()[:16]


def topology_bytes(topology: StreamsGroupHeartbeatRequest.Topology) -> bytes:
    """Encodes the topology as a streams group heartbeat without other contents."""
    request = StreamsGroupHeartbeatRequest(group_id="", member_id="", topology=topology)
    return encode(request, _VERSION)
