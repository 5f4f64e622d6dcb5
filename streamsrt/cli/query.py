"""``streamsrt query``: asks a running instance over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast
from urllib.parse import quote, unquote

import typer

from streamsrt.cli.output import note, print_json, print_rows
from streamsrt.cli.session import AsJson
from streamsrt.errors import ConfigError, StreamsError, UserError
from streamsrt.http.forwarding import fetch
from streamsrt.queries.errors import UnknownStateStoreError
from streamsrt.queries.values import HostInfo
from streamsrt.wording import host_and_port
from topology.graph.store_kinds import NAMES, RowsOfKey, rows_called

app = typer.Typer(help="Query the state of a running application (started with --http).", no_args_is_help=True)

Server = Annotated[
    str,
    typer.Option("--server", "-s", envvar="STREAMSRT_QUERY_SERVER", help="host:port of any instance (http.listen)"),
]
Store = Annotated[str, typer.Argument(help="name of the store")]
Stale = Annotated[bool, typer.Option("--stale", help="also query standby tasks")]
Partition = Annotated[int | None, typer.Option("--partition", help="only this partition")]
Position = Annotated[
    str | None, typer.Option("--position", help="position of an earlier response, which this one must include")
]
Limit = Annotated[int, typer.Option("--limit", help="maximum number of rows", min=1)]
_ROWS_TIMEOUT_S = 60.0
"""For rows: they can be many, and come through another instance."""
_OWN_TIMEOUT_S = 10.0
"""For what an instance knows of itself."""


_COMMANDS = {
    RowsOfKey.ONE: "use `streamsrt query key` or `range`",
    RowsOfKey.VERSIONS: "use `streamsrt query key` or `versions`",
    RowsOfKey.WINDOWS: "use `streamsrt query windows`",
    RowsOfKey.SESSIONS: "use `streamsrt query sessions`",
    RowsOfKey.HELD: "what waits in it can't be queried",
}


class QueryFailedError(StreamsError):
    """The instance could not answer the query. The message contains its response."""

    exit_code = 1


def _ask(server: str, path: str, **params: object) -> dict[str, Any]:
    address = host_and_port(server)
    if address is None:
        raise ConfigError(f"--server {server}: give HOST:PORT")
    given = {name: str(value).lower() if value is True else str(value) for name, value in params.items() if value}
    timeout_s = _ROWS_TIMEOUT_S if path.startswith("/stores/") else _OWN_TIMEOUT_S
    status, body = fetch(HostInfo(*address), path, given, timeout_s)
    if status != 200 and "message" in body:
        raise _failure(server, path, status, body)
    return body


def _failure(server: str, path: str, status: int, body: Mapping[str, object]) -> StreamsError:
    said, error = str(body["message"]), body.get("error")
    if error == "UnknownStateStore":
        return UnknownStateStoreError(said)
    if error == "UNKNOWN_QUERY_TYPE":
        return UnknownStateStoreError(f"{said}: {_advice(server, path)}")
    if status == 400 or error == "DOES_NOT_EXIST":
        return UserError(said)
    return QueryFailedError(said)


def _advice(server: str, path: str) -> str:
    """Which command shows what the store has that was asked for."""
    name = unquote(path.split("/")[2])
    kinds = {each["name"]: each["kind"] for each in _ask(server, "/stores")["stores"]}
    if kinds.get(name) not in NAMES:
        return "`streamsrt query` has no command for it"
    return _COMMANDS[rows_called(kinds[name])]


def _rows(body: Mapping[str, object]) -> list[dict[str, object]]:
    """The rows of an answer, and a note if there are more."""
    found = cast("list[dict[str, object]]", body["rows"])
    if body.get("truncated"):
        note(
            f"there are more rows than these {len(found):,}: --limit gives another maximum, up to http.max.rows of the "
            "instance"
        )
    return found


def _given(partition: int | None) -> str:
    return "" if partition is None else str(partition)


@app.command("key")
def key(
    store: Store,
    key: Annotated[str, typer.Argument(help="as text; 0x... for bytes")],
    server: Server = "127.0.0.1:8080",
    stale: Stale = False,
    partition: Partition = None,
    position: Position = None,
    as_of: Annotated[int | None, typer.Option("--as-of", help="for a versioned store: epoch milliseconds")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the value of a key, from whichever instance has it."""
    path = f"/stores/{quote(store, safe='')}/keys/{quote(key, safe='')}"
    row = _ask(server, path, stale=stale, partition=_given(partition), position=position, as_of=_given(as_of))
    if as_json:
        print_json(row)
    else:
        print_rows(["key", "value", "timestamp", "partition"], [row], as_json=False)


@app.command("range")
def rows(
    store: Store,
    server: Server = "127.0.0.1:8080",
    low: Annotated[str | None, typer.Option("--from", help="first key")] = None,
    high: Annotated[str | None, typer.Option("--to", help="last key, inclusive")] = None,
    prefix: Annotated[str | None, typer.Option("--prefix", help="keys that begin with this text")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="last key first")] = False,
    limit: Limit = 1_000,
    stale: Stale = False,
    partition: Partition = None,
    position: Position = None,
    as_json: AsJson = False,
) -> None:
    """Show the rows of all partitions, partition by partition."""
    params = {"from": low, "to": high, "prefix": prefix, "reverse": reverse, "limit": limit, "stale": stale}
    params["position"] = position
    body = _ask(server, f"/stores/{quote(store, safe='')}/range", **params, partition=_given(partition))
    print_rows(["key", "value", "timestamp", "partition"], _rows(body), as_json=as_json)


@app.command("windows")
def windows(
    store: Store,
    key: Annotated[str | None, typer.Argument(help="without it, the windows of all keys")] = None,
    server: Server = "127.0.0.1:8080",
    low: Annotated[int, typer.Option("--from", help="earliest window start, epoch milliseconds")] = 0,
    high: Annotated[int | None, typer.Option("--to", help="latest window start, inclusive")] = None,
    limit: Limit = 1_000,
    stale: Stale = False,
    partition: Partition = None,
    position: Position = None,
    as_json: AsJson = False,
) -> None:
    """Show the windows of a key, or of all keys."""
    path = f"/stores/{quote(store, safe='')}/windows" + ("" if key is None else f"/{quote(key, safe='')}")
    params = {"from": low, "to": _given(high), "limit": limit, "stale": stale, "position": position}
    body = _ask(server, path, **params, partition=_given(partition))
    found = [{"key": key, **row} for row in _rows(body)]
    print_rows(["key", "start", "value", "timestamp"], found, as_json=as_json)


@app.command("sessions")
def sessions(
    store: Store,
    key: Annotated[str | None, typer.Argument(help="without it, the sessions of all keys")] = None,
    server: Server = "127.0.0.1:8080",
    low: Annotated[
        int, typer.Option("--from", help="only sessions that end at or after this time, epoch milliseconds")
    ] = 0,
    limit: Limit = 1_000,
    stale: Stale = False,
    position: Position = None,
    as_json: AsJson = False,
) -> None:
    """Show the sessions of a key, or of all keys."""
    path = f"/stores/{quote(store, safe='')}/sessions" + ("" if key is None else f"/{quote(key, safe='')}")
    body = _ask(server, path, **{"from": low}, limit=limit, stale=stale, position=position)
    print_rows(["key", "start", "end", "value"], _rows(body), as_json=as_json)


@app.command("versions")
def versions(
    store: Store,
    key: Annotated[str, typer.Argument(help="as text; 0x... for bytes")],
    server: Server = "127.0.0.1:8080",
    low: Annotated[
        int, typer.Option("--from", help="only versions valid at or after this time, epoch milliseconds")
    ] = 0,
    high: Annotated[int | None, typer.Option("--to", help="only versions valid at or before this time")] = None,
    limit: Limit = 1_000,
    stale: Stale = False,
    position: Position = None,
    as_json: AsJson = False,
) -> None:
    """Show the versions of a key in a versioned store, newest first."""
    params = {"from": low, "to": _given(high), "limit": limit, "stale": stale, "position": position}
    body = _ask(server, f"/stores/{quote(store, safe='')}/versions/{quote(key, safe='')}", **params)
    print_rows(["key", "value", "timestamp", "valid_to"], _rows(body), as_json=as_json)


@app.command("tasks")
def tasks(server: Server = "127.0.0.1:8080", as_json: AsJson = False) -> None:
    """Show the tasks of an instance, and what each of them is waiting for."""
    body = _ask(server, "/tasks")
    print_rows(["task_id", "role", "phase", "lag_records", "why"], body["tasks"], as_json=as_json)
    for loop in body["loops"]:
        _, is_busy, what = loop["poll"].partition("skipped: ")
        if is_busy:
            note(f"these tasks were not looked at since the last poll: {what}")


@app.command("loops")
def loops(server: Server = "127.0.0.1:8080", as_json: AsJson = False) -> None:
    """Show what each stream thread of an instance is waiting for: why it does or does not poll, and why its last
    commit was late."""
    body = _ask(server, "/tasks")
    rows = [{**loop, "tasks": "; ".join(loop["tasks"])} for loop in body["loops"]]
    print_rows(["life", "poll", "commit_due_ms", "commit_took_ms", "commit", "tasks"], rows, as_json=as_json)


@app.command("assignment-changes")
def assignment_changes(server: Server = "127.0.0.1:8080", as_json: AsJson = False) -> None:
    """Show which tasks an instance got, lost or changed the role of, and why; newest last."""
    body = _ask(server, "/tasks")
    print_rows(["task_id", "change", "why"], body["assignment_changes"], as_json=as_json)


@app.command("instances")
def instances(server: Server = "127.0.0.1:8080", as_json: AsJson = False) -> None:
    """Show which instance has which stores."""
    body = _ask(server, "/metadata")
    print_rows(["host", "stores", "standby_stores"], body["instances"], as_json=as_json)


@app.command("ready")
def ready(server: Server = "127.0.0.1:8080", as_json: AsJson = False) -> None:
    """Show whether all tasks of an instance are processing, and if not, why. Exit code 1 if not."""
    body = _ask(server, "/readyz")
    if as_json:
        print_json(body)
    else:
        print_rows(["state", "ready", "why"], [{**body, "why": "; ".join(body["why"])}], as_json=False)
    if not body["ready"]:
        raise typer.Exit(1)
