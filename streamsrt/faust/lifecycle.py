"""Methods of an application's own class that Faust calls when it starts and ends.

1. What is called here is called where Faust calls it; what is not is refused at the start, with the line.
2. The class's own versions start and end Faust's worker. ``super().on_start()`` reaches them, so that they are replaced
   while the application runs here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from faust import App

from streamsrt.faust.locations import NOT_OF_PROGRAM, line_of

if TYPE_CHECKING:
    import faust

CALLED = ("on_first_start", "on_start", "on_started", "on_stop", "on_shutdown")
"""Here."""
_ELSEWHERE = frozenset(("on_init", "on_webserver_init"))
"""By Faust's own code, which makes the application and its pages."""
_OF_WORKER = (
    *("start", "stop", "maybe_start", "restart", "crash", "service_reset", "wait_until_stopped"),
    *("worker_init", "worker_init_post_autodiscover", "maybe_start_client", "maybe_start_producer", "start_client"),
)


class Ending(Protocol):
    """What says that the application shuts down."""

    async def say_shutdown(self) -> None: ...


def own_hooks(app: faust.App) -> dict[str, Callable[..., object]]:
    """Those of :data:`CALLED` that the program has written, by name."""
    return {name: found for name in CALLED if (found := _own(type(app), name)) is not None}


def uncalled_hooks(app: faust.App) -> Iterator[tuple[str, str]]:
    """What the application's class overrides that nobody would call, and what to do instead."""
    hooks = (name for name in dir(App) if name.startswith("on_"))
    for name in sorted({*hooks, *_OF_WORKER} - {*CALLED, *_ELSEWHERE}):
        function = _own(type(app), name)
        if function is not None:
            location = f"method {name} of {type(app).__name__} ({line_of(function)})"
            yield (
                location,
                f"nobody would call it. These are called: {', '.join(CALLED)}. Or connect a function to a signal",
            )


def _own(kind: type, name: str) -> Callable[..., object] | None:
    owner = next((each for each in kind.__mro__ if name in vars(each)), object)
    found = vars(owner).get(name)
    is_of_program = not f"{owner.__module__}.".startswith(NOT_OF_PROGRAM)
    return found if is_of_program and callable(found) else None


_ending: dict[int, Callable[[], Ending | None]] = {}
_PLAIN: Mapping[str, Callable[..., object]] = MappingProxyType(
    {name: vars(App)[name] for name in CALLED if name in vars(App)}
)


def _replacement(name: str) -> Callable[..., object]:
    async def call(self: faust.App) -> None:
        ending = _ending.get(id(self))
        if ending is None:
            await _PLAIN[name](self)  # type: ignore[misc]  # all of them are coroutines
        elif name == "on_stop" and (background := ending()) is not None:
            await background.say_shutdown()

    return call


def bind_life(app: faust.App, ending: Callable[[], Ending | None]) -> None:
    """Lets what the class has from Faust start and end nothing for this application."""
    _ending[id(app)] = ending
    for name in _PLAIN:
        setattr(App, name, _replacement(name))


def unbind_life(app: faust.App) -> None:
    """Gives it back, when the last of these applications ends."""
    del _ending[id(app)]
    if not _ending:
        for name, plain in _PLAIN.items():
            setattr(App, name, plain)
