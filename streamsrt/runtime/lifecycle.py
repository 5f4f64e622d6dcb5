"""An application's decisions about its own life: failures, and how it leaves."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from streamsrt.errors import ApplicationShutdownError, StreamsError


class Response(Enum):
    """What happens to an instance whose processing thread failed. Source: ``StreamThreadExceptionResponse``."""

    REPLACE_THREAD = "replace_thread"
    """A new one joins the group and goes on where the last commit was."""
    SHUTDOWN_CLIENT = "shutdown_client"
    """This instance ends, the others go on."""
    SHUTDOWN_APPLICATION = "shutdown_application"
    """All instances end: the group tells them."""


OnFailure: TypeAlias = Callable[[StreamsError], Response]
"""Called on the processing thread with what ended it (Kafka Streams' ``StreamsUncaughtExceptionHandler``)."""


class GroupMembershipOperation(Enum):
    """What happens to the membership when an instance closes. Source: ``CloseOptions.GroupMembershipOperation``."""

    DEFAULT = "default"
    """A static member stays until its session ends, any other leaves."""
    LEAVE_GROUP = "leave_group"
    """Its tasks move at once, those of a static member too."""
    REMAIN_IN_GROUP = "remain_in_group"
    """Its tasks wait for it until its session ends."""


def application_shutdown() -> ApplicationShutdownError:
    """What an instance ends with that another one asked to stop."""
    return ApplicationShutdownError(
        "an instance of the application failed and requested a shutdown for the entire application: its log says why. This "
        "one has committed its work; restart the instances when the cause is fixed."
    )
