"""Errors, by who is at fault and what the caller must do.

::

    StreamsError
    ├── UserError                    the program, its configuration or its surroundings must be changed; exit code 2
    │   ├── ConfigError              a setting is unknown or out of bounds
    │   ├── MissingTopicError        a source topic does not exist
    │   └── TopologyMismatchError    the group runs another topology at this epoch
    ├── BrokerError                  the cluster: start it, repair it, or use another one; exit code 3
    │   ├── BrokerUnreachableError   no bootstrap server answers
    │   ├── NotABrokerError          the server that answers does not speak Kafka's protocol
    │   ├── UnsupportedBrokerError   a needed API or version is missing
    │   └── RequestFailedError       the broker answered a request with an error code
    ├── OutageError                  a service that a serde needs: start the instance again when it answers; exit code 3
    ├── StateError                   the state directory: free it, or let it be rebuilt; exit code 4
    │   ├── StateDirectoryLockedError
    │   ├── ChangelogLostError       the changelog was deleted: the state is on the disks of instances only
    │   └── StoreCorruptedError      the task's state is wiped and restored from its changelog
    ├── RecordError                  one record could not be handled; exit code 5
    │   ├── DeserializationError     the serde can't read its bytes
    │   ├── ProcessingError          the user's function raised
    │   └── ProductionError          it could not be serialized or written
    ├── MembershipError              this member was fenced, or its group is gone: give up the tasks and rejoin; exit code 6
    └── ApplicationShutdownError     another instance failed and asked all of them to stop; exit code 7

Every message says what happened, where, and what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence


class StreamsError(Exception):
    """The root of this package's errors. ``exit_code`` is the exit code of the command line. ``is_in_order``:
    everything read before the failure was processed and nothing after it, so the progress may be committed.
    ``is_of_program``: the record is not at fault but the program (a suppression that is full), and all ends as in Kafka
    Streams: what was written before is sent, in order or not.
    """

    exit_code = 1
    is_in_order = True
    is_of_program = False


class UserError(StreamsError):
    """The program, its configuration or its environment must be changed before it can run."""

    exit_code = 2


class ConfigError(UserError):
    """A setting is unknown, malformed or out of bounds. Correct it: the message names it, and the nearest known
    one."""


class MissingTopicError(UserError):
    """A topic that the topology reads or writes does not exist. Create it, e.g. with ``streamsrt topics create``, or
    correct its name."""


class TopologyMismatchError(UserError):
    """The group already runs another topology at this epoch. Raise the epoch: ``streamsrt topology diff`` says to
    which, and what happens to the state."""


class BrokerError(StreamsError):
    """The cluster can't do what was requested."""

    exit_code = 3


class BrokerUnreachableError(BrokerError):
    """No bootstrap server responds. Start the broker, or correct ``bootstrap.servers``."""


class NotABrokerError(BrokerError):
    """The server at the bootstrap address does not speak Kafka's protocol. Correct host and port in
    ``bootstrap.servers``, or ``security.protocol`` where one side uses TLS and the other does not."""


class UnsupportedBrokerError(BrokerError):
    """The broker lacks a required API, or the required version of one. Upgrade it, or use what the message names
    instead, e.g. ``group.protocol=classic``."""


class RequestFailedError(BrokerError):
    """The broker answered with an error code, ``error_code``. The message names it; a missing right comes with the
    command that grants it."""

    def __init__(self, message: str, error_code: int = -1) -> None:
        super().__init__(message)
        self.error_code = error_code


def missing_acl(
    operation: str,
    resource: str,
    names: Sequence[str] = (),
    principal: str | None = None,
    *,
    prefix: str | None = None,
) -> str:
    """Which ACL is missing, and the command that grants it.

    ``operation`` by Kafka's name (``READ``); ``resource`` is ``topic``, ``group``, ``transactional-id`` or ``cluster``,
    the last without ``names``; ``principal`` as ``User:name``, None if unknown. ``prefix``: the command grants the right on
    all names that begin like this, because others of them are needed as well.
    """
    who = principal or "this principal"
    what = " ".join((resource, ", ".join(map(repr, names)))).rstrip()
    options = " ".join(f"--{resource} {name}" for name in names) or f"--{resource}"
    if prefix:
        options = f"--resource-pattern-type prefixed --{resource} {prefix}"
    return (
        f"{who} lacks {operation} on {what}. Grant it: kafka-acls --bootstrap-server HOST:PORT --add "
        f"--allow-principal {principal or 'User:NAME'} --operation {operation} {options}"
    )


class OutageError(StreamsError):
    """A service that a serde needs does not answer, or admits nobody. The record is not at fault, so no handler is asked and
    nothing becomes a dead letter. Start the instance again when the service answers."""

    exit_code = 3


class StateError(StreamsError):
    """The local state can't be used."""

    exit_code = 4


class StateDirectoryLockedError(StateError):
    """Another process holds the state directory. Stop it, or give each instance its own ``state.dir``."""


class ChangelogLostError(StateError):
    """The changelog of a store was deleted while the application has rows in it. Keep copies of the state directories, then
    follow the message."""


class StoreCorruptedError(StateError):
    """A local store is unreadable or inconsistent with its changelog. No action is needed: it is wiped and restored.
    ``path``: its directory."""

    path = ""


class RecordError(StreamsError):
    """A record could not be processed. ``topic``, ``partition`` and ``offset`` say which."""

    exit_code = 5

    def __init__(self, message: str, topic: str = "", partition: int = -1, offset: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class DeserializationError(RecordError):
    """The bytes of a key or value are not what the serde expects. Correct the serde, or skip such records with
    ``deserialization.exception.handler=continue``."""


class ProcessingError(RecordError):
    """A user's function raised; the cause is attached. Correct the function at the line that the message names, or
    skip such records with ``processing.exception.handler=continue``."""


class ProductionError(RecordError):
    """A result could not be serialized, or the broker rejected it permanently. Correct the serde or the topic's
    settings, or skip such results with ``production.exception.handler=continue``.

    The exit code is 3 if the broker would have refused any record, for example because of a missing right.
    ``is_retriable``: it may succeed if retried later.
    """

    is_retriable = False


class MembershipError(StreamsError):
    """This member was fenced, or its group was deleted. Start it again; if another instance has the same
    ``group.instance.id``, give each its own."""

    exit_code = 6


class ApplicationShutdownError(StreamsError):
    """An instance of the application failed and asked all of them to stop (KIP-1071, ``SHUTDOWN_APPLICATION``). Its
    log gives the reason: fix the cause there, then start all instances."""

    exit_code = 7


def message_and_exit_code(error: Exception) -> tuple[str | None, int]:
    """What a command prints of an error, and its exit code; None for one that nobody expected."""
    code = getattr(error, "exit_code", None)
    if isinstance(code, int) and type(error).__module__.partition(".")[0] in ("streamsrt", "topology"):
        return str(error), code
    if type(error).__name__ == "EncodeError":
        return f"a number is too large for Kafka's protocol, or a text too long: {error}", UserError.exit_code
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}", UserError.exit_code
    return None, 1
