"""What HTTP needs of a running application; :class:`streamsrt.app.KafkaStreams` implements it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Protocol

from streamsrt.config import StreamsConfig
from streamsrt.queries.routing import Routing, StoreDirectory
from streamsrt.queries.values import PositionBound, Query, StateQueryResult
from streamsrt.runtime.metrics import Metric
from streamsrt.runtime.values import Progress, State
from topology.graph.topology import Topology


class Instance(Protocol):
    """A running application. Every method is thread-safe."""

    config: StreamsConfig
    topology: Topology
    store_directory: StoreDirectory

    @property
    def state(self) -> State: ...

    @property
    def progress(self) -> Progress: ...

    @property
    def routing(self) -> Routing:
        """Returns the routing. Raises InvalidStateStoreError if nothing runs."""

    def query(
        self,
        store: str,
        query: Query,
        *,
        partitions: Collection[int] | None = None,
        require_active: bool = False,
        position_bound: PositionBound | None = None,
        timeout_s: float = 30.0,
    ) -> StateQueryResult[Any]: ...

    def reported_metrics(self) -> Iterable[Metric]: ...

    def why_not_alive(self) -> list[str]: ...

    def why_not_ready(self) -> list[str]: ...
