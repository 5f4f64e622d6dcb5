"""Names of Faust's objects that are not supported, and where an application uses them.

1. Every public name of faust's ``App``, ``Agent``, ``Stream``, ``Table`` and ``Topic`` works, or is listed in
   :data:`REFUSED` with its replacement. A test derives the names from the package.
2. The code of agents, timers and tasks is searched for uses: through module-level names and, in agents, through the
   stream. All other uses raise at run time.
"""

from __future__ import annotations

import ast
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from textwrap import dedent
from types import FunctionType, MappingProxyType
from typing import NamedTuple

from faust import App, Stream, Topic
from faust.agents.agent import Agent
from faust.tables.base import Collection
from mode import Service

from streamsrt.faust.locations import NOT_OF_PROGRAM, is_of_program, written

_JOIN = "faust does not support it, either: look the other side up in a table"
BY_HAND = "records come to agents only: give the topic an agent, @app.agent(topic)"
_STATE = "there is no worker of faust's: use the signals, such as app.on_partitions_assigned"
_CONSUMER = "the runtime reads the topics: agents acknowledge, and streamsrt offsets resets"
INTERNAL = "it belongs to faust's worker: iterate over the stream"
_OF_TABLES = "the store of the table does it: assign rows, and delete them"
_CALLS = "the runtime calls the agent: send to it, or let another agent read the topic"

_OF_STREAMS = ("label", "shortlabel")
"""Names of mode's services that streams have here."""
_STARTED = ("start", "maybe_start", "restart", "service_reset", "set_shutdown", "wait_for_shutdown", "join_services")
_KEPT = ("add_context", "add_async_context", "remove_dependency", "transition_with")
_WAITING = ("sleep", "itertimer", "wait", "wait_first", "wait_many", "wait_for_stopped", "wait_until_stopped")
_ADDED = ("add_dependency", "add_runtime_dependency", "add_future")
SERVICE_METHODS = (*_STARTED, *_KEPT, *_WAITING, *_ADDED, "stop", "crash")
"""The methods of mode's services that do something with a service that Faust's worker has started."""
_SERVICE_STATE = ("started", "should_stop", "state", "crashed", "crash_reason")
_BY_RUNTIME = "streamsrt starts and stops it: use the app, as in app.sleep(), or an @app.service"
_OF_SERVICES = {name: _BY_RUNTIME for name in (*SERVICE_METHODS, *_SERVICE_STATE)}
_BY_APP = {
    **dict.fromkeys(_STARTED, "streamsrt starts and stops the application: app.stop() ends it"),
    **dict.fromkeys(_KEPT, "open it in an @app.service or in on_start, and close it in on_stop"),
}

REFUSED: Mapping[type, Mapping[str, str]] = MappingProxyType(
    {
        App: {
            **_BY_APP,
            **dict.fromkeys(("in_recovery", "in_transaction", "in_worker", "rebalancing", "rebalancing_count"), _STATE),
            **dict.fromkeys(("unassigned", "on_rebalance_start", "on_rebalance_end", "on_rebalance_return"), _STATE),
            **dict.fromkeys(("assignor", "consumer", "consumer_generation_id", "topics", "flow_control"), _CONSUMER),
            **dict.fromkeys(("commit", "transport", "producer_transport", "FlowControlQueue"), _CONSUMER),
            "web_server": "write pages with @app.page, or run the server beside",
            "LiveCheck": "run faust livecheck beside it",
        },
        Stream: {
            **dict.fromkeys((each for each in dir(Service) if each not in _OF_STREAMS and each[0] != "_"), INTERNAL),
            **dict.fromkeys(("combine", "join", "inner_join", "left_join", "outer_join", "join_strategy"), _JOIN),
            **dict.fromkeys(("contribute_to_stream", "remove_from_stream", "on_merge"), _JOIN),
            **dict.fromkeys(("clone", "info", "outbox", "prefix", "throw", "events_total"), INTERNAL),
            "concurrency_index": "records of one key come to the same call of the agent: it needs no number",
            "derive_topic": "app.topic()",
            "enable_acks": "stream.noack()",
        },
        Collection: {
            **_OF_SERVICES,
            **dict.fromkeys(("combine", "join", "inner_join", "left_join", "outer_join"), _JOIN),
            **dict.fromkeys(("contribute_to_stream", "remove_from_stream", "copy", "raw_update", "data"), _OF_TABLES),
            **dict.fromkeys(("apply_changelog_batch", "send_changelog", "reset_state", "persisted_offset"), _OF_TABLES),
            **dict.fromkeys(("partition_for_key", "need_active_standby_for", "on_rebalance", "on_clear"), _OF_TABLES),
            **dict.fromkeys(("on_key_get", "on_key_set", "on_key_del", "on_recovery_completed"), _OF_TABLES),
            "on_changelog_event": "the agent that changes the table, or on_recover",
        },
        Agent: {
            **_OF_SERVICES,
            **dict.fromkeys(("actor_from_stream", "stream", "channel_iterator", "cancel"), _CALLS),
            **dict.fromkeys(("actor_tracebacks", "on_isolated_partitions_assigned"), _STATE),
            **dict.fromkeys(("on_isolated_partitions_revoked", "on_partitions_assigned"), _STATE),
            **dict.fromkeys(("on_partitions_revoked", "on_shared_partitions_assigned"), _STATE),
            "on_shared_partitions_revoked": _STATE,
        },
        Topic: {
            **dict.fromkeys(("stream", "get", "put", "queue", "deliver", "decode", "throw", "empty"), BY_HAND),
            **dict.fromkeys(("subscriber_count", "clone_using_queue", "on_stop_iteration"), BY_HAND),
            **dict.fromkeys(("on_decode_error", "on_key_decode_error", "on_value_decode_error"), BY_HAND),
            **dict.fromkeys(("publish_message", "as_future_message"), "topic.send()"),
        },
    }
)
"""By class, what is refused, and what to use instead."""

REFUSED_METHODS = (
    *("LiveCheck", "commit", "on_rebalance_end", "on_rebalance_return", "on_rebalance_start", "web_server"),
    *_BY_APP,
)
"""Of the application, those that Faust's own code does not call here: while it runs, a call of one ends it."""

REFUSED_ATTRIBUTES = frozenset(REFUSED[App]) - {"consumer", *REFUSED_METHODS}
"""Of the application, those that Faust's own code reads here: while it runs, it ends if the program reads one."""

_refusing: dict[int, Callable[[str], None]] = {}
_PLAIN = MappingProxyType({name: inspect.getattr_static(App, name) for name in REFUSED_ATTRIBUTES})


class _RefusedAttribute:
    """An attribute of every application: as it is in Faust, but for the program of one that runs here."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._plain = _PLAIN[name]

    def __get__(self, app: App | None, kind: type) -> object:
        if app is None:
            return self._plain
        refuse = _refusing.get(id(app))
        if refuse is not None and is_of_program(sys._getframe(1)):
            refuse(self._name)
        if hasattr(type(self._plain), "__get__"):
            return self._plain.__get__(app, kind)
        return app.__dict__.get(self._name, self._plain)

    def __set__(self, app: App, value: object) -> None:
        if hasattr(type(self._plain), "__set__"):
            self._plain.__set__(app, value)
        else:
            app.__dict__[self._name] = value

    def __delete__(self, app: App) -> None:
        if hasattr(type(self._plain), "__delete__"):
            self._plain.__delete__(app)
        else:
            del app.__dict__[self._name]


def bind_attributes(app: App, refuse: Callable[[str], None]) -> None:
    """Calls ``refuse`` with the name when the program reads one of :data:`REFUSED_ATTRIBUTES` of this application."""
    if not _refusing:
        for name in REFUSED_ATTRIBUTES:
            setattr(App, name, _RefusedAttribute(name))
    _refusing[id(app)] = refuse


def unbind_attributes(app: App) -> None:
    """Gives them back, when the last of these applications ends."""
    del _refusing[id(app)]
    if not _refusing:
        for name in REFUSED_ATTRIBUTES:
            setattr(App, name, _PLAIN[name])


_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


class Use(NamedTuple):
    """A use of what is refused."""

    what: str
    location: str
    instead: str


def reachable(function: Callable[..., object]) -> list[FunctionType]:
    """A function of the program, and those of it that it names, which are known by a name of its module or around it."""
    found = [written(function)]
    for each in found:
        for value in scope_of(each).values():
            if isinstance(value, FunctionType) and not f"{value.__module__}.".startswith(NOT_OF_PROGRAM):
                plain = written(value)
                if plain not in found and not _is_of_library(plain):
                    found.append(plain)
    return found


def _is_of_library(function: FunctionType) -> bool:
    return function.__code__.co_filename.startswith(_LIBRARIES)


def refused_in(function: Callable[..., object], *, of_stream: bool = False) -> Iterator[Use]:
    """What a function of an application uses that is refused. ``of_stream``: its first argument is a stream."""
    plain = written(function)
    try:
        tree = ast.parse(dedent(inspect.getsource(plain)))
    except (OSError, TypeError, SyntaxError):
        # Without its text it is refused when it is used.
        return
    code = plain.__code__
    kinds = _kinds(plain)
    if of_stream and code.co_argcount:
        is_method = code.co_varnames[0] == "self" and code.co_argcount > 1
        kinds[code.co_varnames[int(is_method)]] = Stream
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if attribute in REFUSED.get(
                kinds.get(name, object), ()
            ):
                location = f"{code.co_filename}:{code.co_firstlineno + node.lineno - 1}"
                yield Use(f"{name}.{attribute}", location, REFUSED[kinds[name]][attribute])


def _kinds(function: FunctionType) -> dict[str, type]:
    """What the names mean that a function has from its module and from what is around it."""
    code = function.__code__
    return {
        name: next((kind for kind in REFUSED if isinstance(value, kind)), object)
        for name, value in scope_of(function).items()
        if name not in code.co_varnames
    }


def scope_of(function: FunctionType) -> dict[str, object]:
    """What a function has from its module and from what is around it, by name, as far as it is assigned."""
    code = function.__code__
    scope = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        # The cell is empty until the enclosing function has assigned the variable.
        with suppress(ValueError):
            scope[name] = cell.cell_contents
    return scope
