"""What the instances of an application tell over HTTP, those that have it.

1. Requests only go to addresses that a member of the group has reported, and only request what the page needs.
2. One that does not answer in time is left out, with the reason; the page shows what the others told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from streamsrt.errors import ConfigError, StreamsError
from streamsrt.http.forwarding import InstanceUnreachableError, fetch
from streamsrt.queries.values import HostInfo
from streamsrt.wording import host_and_port
from topology.graph.store_kinds import NAMES, RowsOfKey, rows_called

Json: TypeAlias = Mapping[str, Any]
"""What the page shows, and what instances answer: read by names that no type knows."""
_TIMEOUT_S = 2.0
_QUERY_TIMEOUT_S = 10.0
_AT_ONCE = 8
_PATHS: Final = ("/tasks", "/stores", "/topology")
KEY_PATHS: Final[Mapping[RowsOfKey, str]] = {
    RowsOfKey.ONE: "keys",
    RowsOfKey.VERSIONS: "versions",
    RowsOfKey.WINDOWS: "windows",
    RowsOfKey.SESSIONS: "sessions",
    RowsOfKey.HELD: "keys",
}
"""Where the rows of a key are. What waits has none: the instance says so."""


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """One instance. ``unreachable``: why it did not answer; empty if it did."""

    address: str
    tasks: Json = field(default_factory=dict)
    stores: tuple[Json, ...] = ()
    topology: Json = field(default_factory=dict)
    unreachable: str = ""


def query_instances(addresses: Iterable[str]) -> dict[str, InstanceFacts]:
    """Every instance, by its address; all are asked at the same time."""
    wanted = sorted(set(addresses))
    if not wanted:
        return {}
    with ThreadPoolExecutor(min(_AT_ONCE, len(wanted)), "streamsrt-console") as pool:
        return dict(zip(wanted, pool.map(_query, wanted), strict=True))


def _query(address: str) -> InstanceFacts:
    try:
        tasks, stores, topology = (fetch(_host(address), path, {}, _TIMEOUT_S) for path in _PATHS)
    except StreamsError as error:
        return InstanceFacts(address, unreachable=str(error))
    if any(status != 200 for status, _ in (tasks, stores, topology)):
        said = next(body.get("message", "") for status, body in (tasks, stores, topology) if status != 200)
        return InstanceFacts(address, unreachable=said or "its response is not that of an instance of streamsrt")
    return InstanceFacts(address, tasks[1], tuple(stores[1].get("stores", ())), topology[1])


def rows_of_key(addresses: Iterable[str], store: str, key: str) -> Json:
    """What the first instance that answers says of a key: it asks the one that has it.

    Raises ConfigError where no instance has HTTP or the store is unknown, InstanceUnreachableError where none answers.
    """
    found = query_instances(addresses)
    if not found:
        raise ConfigError("no instance of this application answers queries: start it with --http HOST:PORT")
    answering = [each for each in found.values() if not each.unreachable]
    if not answering:
        raise InstanceUnreachableError("; ".join(each.unreachable for each in found.values()))
    kinds = {each["name"]: each["kind"] for each in answering[0].stores}
    if store not in kinds:
        raise ConfigError(f"there is no store {store!r}; the stores are: {', '.join(sorted(kinds)) or 'none'}")
    rows = rows_called(kinds[store]) if kinds[store] in NAMES else RowsOfKey.ONE
    path = f"/stores/{quote(store, safe='')}/{KEY_PATHS[rows]}/{quote(key, safe='')}"
    status, body = fetch(_host(answering[0].address), path, {}, _QUERY_TIMEOUT_S)
    return {"kind": kinds[store], "instance_status": status, "answer": body}


def _host(address: str) -> HostInfo:
    found = host_and_port(address)
    if found is None:
        raise ConfigError(f"{address!r} is not the address of an instance")
    return HostInfo(*found)
