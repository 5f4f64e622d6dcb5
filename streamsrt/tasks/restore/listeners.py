"""Calls the listeners of restoring and standby tasks: on the processing thread, between two batches.

A listener that raises ends the application, because its work was not done.
Source: ``StateRestoreListener``, ``StandbyUpdateListener`` of Kafka Streams.
"""

from __future__ import annotations

from typing import Literal

from streamsrt.client.values import TopicPartition

SuspendReason = Literal["promoted", "migrated"]


class RestoreListener:
    """Receives the progress of stores that are restored before their task runs. Override the methods that you need;
    offsets are those of the changelog. The speed and the estimated time are in ``KafkaStreams.progress``, which a
    listener may read.
    """

    def on_restore_start(self, changelog: TopicPartition, store: str, start_offset: int, end_offset: int) -> None:
        """Restoring starts at ``start_offset``; the task runs when ``end_offset`` is reached."""

    def on_batch_restored(self, changelog: TopicPartition, store: str, batch_end_offset: int, records: int) -> None:
        """``records`` records were applied."""

    def on_restore_end(self, changelog: TopicPartition, store: str, total_records: int) -> None:
        """The store is restored."""

    def on_restore_suspended(self, changelog: TopicPartition, store: str, total_records: int) -> None:
        """The task moved away or was closed before its store was restored."""


class StandbyListener:
    """Receives the progress of the stores of standby and warm-up tasks, which follow their changelogs."""

    def on_update_start(self, changelog: TopicPartition, store: str, start_offset: int) -> None:
        """The store starts to follow its changelog, at ``start_offset``."""

    def on_batch_loaded(
        self, changelog: TopicPartition, store: str, task_id: str, batch_end_offset: int, records: int, end_offset: int
    ) -> None:
        """``records`` records were applied; ``end_offset`` is the latest known end of the changelog."""

    def on_update_suspended(
        self, changelog: TopicPartition, store: str, offset: int, end_offset: int, reason: SuspendReason
    ) -> None:
        """The task is ``promoted`` to an active one, or has ``migrated`` to another instance."""


NO_RESTORE_LISTENER = RestoreListener()
NO_STANDBY_LISTENER = StandbyListener()
