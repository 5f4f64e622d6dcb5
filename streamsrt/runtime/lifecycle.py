"""An application's decisions about its own life: failures, and how it leaves."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from streamsrt.errors import ApplicationShutdownError, StreamsError


class Response(Enum):
    """What happens to an instance whose processing thread failed. Source: ``StreamThreadExceptionResponse``."""

    REPLACE_THREAD = "replace_thread"
    """A new one joins the group and continues from the last commit."""
    SHUTDOWN_CLIENT = "shutdown_client"
    """This instance ends, the others continue."""
    SHUTDOWN_APPLICATION = "shutdown_application"
    """All instances end: the group distributes the request."""


OnFailure: TypeAlias = Callable[[StreamsError], Response]
"""Called on the processing thread with what ended it (Kafka Streams' ``StreamsUncaughtExceptionHandler``)."""


class GroupMembershipOperation(Enum):
    """What happens to the membership when an instance closes. Source: ``CloseOptions.GroupMembershipOperation``."""

    DEFAULT = "default"
    """A static member stays until its session ends, any other leaves."""
    LEAVE_GROUP = "leave_group"
    """It leaves the group: its tasks move at once, those of a static member too."""
    REMAIN_IN_GROUP = "remain_in_group"
    """It stays in the group: its tasks wait for it until its session ends."""


def application_shutdown() -> ApplicationShutdownError:
    """Returns the error with which an instance ends if another one requested a shutdown."""
    return ApplicationShutdownError(
        "an instance of the application failed and requested a shutdown for the entire application: its log says why. This "
        "one has committed its work; restart the instances when the cause is fixed."
    )
