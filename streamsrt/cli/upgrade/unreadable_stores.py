"""Values of stores that a former version can't read, because a later one has written them: then there is no way back."""

from __future__ import annotations

from streamsrt.client.network import NetworkThread
from streamsrt.runtime.written_values import ENDS_RECORDS, NewerValues, newer_values_written
from topology.graph.topology import Topology


def unreadable_stores(network: NetworkThread, group: str, former: Topology) -> list[str]:
    """A sentence for each store whose values ``former`` can't read."""
    stores = (spec for part in former.subtopologies for spec in part.stores)
    return [_said(each) for each in newer_values_written(network, group, stores, records=ENDS_RECORDS)]


def _said(found: NewerValues) -> str:
    spec = found.spec
    return (
        f"store {spec.name}: its changelog {found.topic} has values of version {found.version}, and the former version "
        f"reads them up to version {spec.version}. It would fail at the first one, so you can't roll back: correct the "
        "later version and continue with that"
    )
