"""The error message of a record batch that can't be read: where it is, what is wrong with it, how to continue after it."""

from __future__ import annotations

from streamsrt.client.values import TopicPartition
from streamsrt.errors import DeserializationError
from streamsrt.wire.primitives import DecodeError


def unreadable_batch(tp: TopicPartition, offset: int, error: DecodeError) -> DeserializationError:
    """Returns the error for a batch of an input topic that starts at ``offset`` or after it."""
    topic, partition = tp
    message = (
        f"{topic}-{partition} has a record batch at or after offset {offset} that can't be read: {error}. It was "
        "produced like this, or the broker's log is damaged"
    )
    if error.next_offset >= 0:
        message += (
            f". The next batch begins at offset {error.next_offset}. To skip this one, stop the application and run: "
            f"streamsrt groups reset-offsets APPLICATION_ID --topic {topic}:{partition} --to-offset "
            f"{error.next_offset} --execute"
        )
    else:
        message += ". It is not known where the next batch begins: repair the broker's log"
    return DeserializationError(message, topic, partition, offset)
