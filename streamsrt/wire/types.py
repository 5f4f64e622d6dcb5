"""One class for each message of the protocol, created when it is first used. ``types.pyi`` lists every field.

Fields are Kafka's in snake_case, structs inside a message are attributes of its class:

    StreamsGroupHeartbeatRequest(group_id="g", active_tasks=[StreamsGroupHeartbeatRequest.TaskIds(subtopology_id="0")])

UUIDs are 16 ``bytes``, ``records`` are ``memoryview`` when decoded and any bytes-like (or a list of them) to encode.
"""

from __future__ import annotations

from streamsrt.wire.schema import Message, Request, message_names, named_class, private_message_names

__all__ = ["Message", "Request"]


def __getattr__(name: str) -> type[Message]:
    try:
        made = named_class(name)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no message {name!r}") from None
    globals()[name] = made
    return made


def __dir__() -> list[str]:
    return [*globals(), *message_names(), *private_message_names()]
