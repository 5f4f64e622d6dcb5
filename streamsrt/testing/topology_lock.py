"""A test that fails when a topology is changed without its lock file (``streamsrt topology lock``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamsrt.config import StreamsConfig
from streamsrt.errors import ConfigError, TopologyMismatchError
from streamsrt.runtime.assembly import ready_topology
from streamsrt.runtime.topology_lock import LOCK_FILE, locked
from topology.graph.topology import Topology


def assert_topology_locked(
    topology: Topology, path: Path | str = LOCK_FILE, config: Mapping[str, Any] | None = None
) -> None:
    """Raises AssertionError with the differences if ``topology`` is not the one in the lock file.

    ``config``: the application's settings. ::

        def test_topology_is_locked():
            assert_topology_locked(shop.topology, "shop.lock")
    """
    settings = StreamsConfig.of(dict(config or {}), application_id="locked")
    try:
        locked(ready_topology(topology, settings), Path(path), settings.topology_epoch)
    except (ConfigError, TopologyMismatchError) as error:
        raise AssertionError(str(error)) from None
