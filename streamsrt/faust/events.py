"""Messages as faust knows them: made when somebody asks for one, not for each record."""

from __future__ import annotations

from collections.abc import Callable

from faust.types.tuples import Message


class AgentMessage(Message):  # type: ignore[misc]  # faust is not typed here
    """A message that is acknowledged to the agent that it was given to."""

    __slots__ = ("on_ack",)

    on_ack: Callable[[], bool]

    def ack(self, consumer: object, n: int = 1) -> bool:
        """Acknowledges it, once."""
        return self.on_ack()
