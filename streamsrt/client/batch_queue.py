"""The batches of one partition that the producer has not delivered yet."""

from __future__ import annotations

from collections import deque

from streamsrt.client.values import TopicPartition


class QueuedBatch:
    """One record batch to send. ``number`` orders those of a partition; parts of (7,) are (7, 0) and (7, 1). ``parts``: what
    is sent, once it is ``stamped``: the records of ``data``, which are not copied, behind a head of their own."""

    __slots__ = ("count", "data", "expires_at", "may_be_written", "number", "parts", "sequence", "stamped")

    def __init__(
        self, data: bytes | bytearray | memoryview, count: int, number: tuple[int, ...], expires_at: float
    ) -> None:
        self.data: bytes | bytearray | memoryview = data
        self.parts: tuple[bytes | memoryview, ...] = ()
        self.count = count
        self.number = number
        self.expires_at = expires_at
        self.sequence = -1
        self.stamped = False
        self.may_be_written = False


class PartitionQueue:
    """The queue of one partition.

    ``retrying``: nothing is sent until ``in_flight`` is empty. ``is_known``: the broker has acknowledged a batch. Until
    then, only one batch is in flight: a broker accepts any first sequence number of a producer, so it could write the second
    batch after it has refused the first one because the topic is new. ``refused``: the number of batches that wait for
    ``on_refused``; nothing is sent meanwhile. ``first_refused``: the first batch that was never written, by number, and its
    sequence number.
    """

    __slots__ = (
        "first_refused",
        "in_flight",
        "is_known",
        "next_sequence",
        "node_id",
        "not_before",
        "queue",
        "queued_bytes",
        "reason",
        "refused",
        "retrying",
        "tp",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.queue: deque[QueuedBatch] = deque()
        self.queued_bytes = 0
        self.node_id = -1
        self.in_flight: dict[tuple[int, ...], QueuedBatch] = {}
        self.next_sequence = 0
        self.retrying = False
        self.is_known = False
        self.not_before = 0.0
        self.reason = "it has no leader"
        self.refused = 0
        self.first_refused: tuple[tuple[int, ...], int] | None = None

    @property
    def waits(self) -> bool:
        """Whether nothing more may be sent before responses arrive."""
        return self.refused > 0 or (bool(self.in_flight) and (self.retrying or not self.is_known))

    def is_behind_others(self, batch: QueuedBatch) -> bool:
        """Whether an earlier batch is neither acknowledged nor refused."""
        return (bool(self.queue) and self.queue[0].number < batch.number) or any(
            number < batch.number for number in self.in_flight
        )

    def note_refused(self, batch: QueuedBatch) -> None:
        """Records that the batch was not written under its sequence, nor anything after it."""
        self.retrying = True
        if batch.stamped and (self.first_refused is None or batch.number < self.first_refused[0]):
            self.first_refused = batch.number, batch.sequence

    def resume(self) -> None:
        """Resumes sending, with a gapless sequence. Called when nothing is in flight."""
        self.retrying = False
        if self.first_refused is not None:
            self.next_sequence = self.first_refused[1]
            self.first_refused = None
            for batch in self.queue:
                batch.stamped = False
