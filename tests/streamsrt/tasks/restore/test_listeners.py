"""Who is told how state is restored and followed, and what becomes of the speed of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamsrt.client.values import Fetched
from streamsrt.errors import UserError
from streamsrt.membership.values import Tasks
from streamsrt.tasks.restore.listeners import RestoreListener, StandbyListener
from streamsrt.tasks.restore.progress import ChangelogProgress, Restorer
from tests.streamsrt.rig import CHANGELOG, MakeRig, number
from tests.streamsrt.tasks.restore.test_progress import PLACE, Reading, fetched


class Notes(RestoreListener, StandbyListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def note(*news: object) -> None:
            self.told.append((name, *news))

        return note


def following(notes: Notes, end_offset: int | None) -> tuple[Restorer, Callable[[Fetched], bool]]:
    reading = Reading(ChangelogProgress("counts", PLACE, 4, 4, end_offset, 9), on_restore=notes, on_standby=notes)
    return reading.restorer, reading.restore


def test_a_restore_from_its_start_to_its_end() -> None:
    notes = Notes()
    restorer, restore = following(notes, 8)
    restore(fetched([b"a", b"b"], 4, 6))
    restore(fetched([b"c", b"d"], 6, 8))
    restorer.remove(PLACE)
    assert notes.told == [
        ("on_restore_start", PLACE, "counts", 4, 8),
        ("on_batch_restored", PLACE, "counts", 6, 2),
        ("on_batch_restored", PLACE, "counts", 8, 2),
        ("on_restore_end", PLACE, "counts", 4),
    ]


def test_a_changelog_without_records_is_restored_too(make_rig: MakeRig) -> None:
    """Whoever waits until all stores are restored would wait for ever, as Kafka Streams tells of these as well."""
    notes = Notes()
    rig = make_rig(on_restore=notes)
    rig.start(Tasks(active=rig.tasks(0)))
    rig.restore()
    changelog = (CHANGELOG, 0)
    assert notes.told == [("on_restore_start", changelog, "counts", 0, 0), ("on_restore_end", changelog, "counts", 0)]
    rig.network.write(("in", 0), [(b"a", number(1))])
    rig.move()
    rig.commit()
    rig.start(Tasks())
    rig.start(Tasks(active=rig.tasks(0)))
    rig.restore()
    assert notes.told[2:] == [
        ("on_restore_start", changelog, "counts", 1, 1),
        ("on_restore_end", changelog, "counts", 0),
    ]


def test_a_restore_that_is_given_up() -> None:
    notes = Notes()
    restorer, restore = following(notes, 8)
    restore(fetched([b"a", b"b"], 4, 6))
    restorer.remove(PLACE)
    assert notes.told[-1] == ("on_restore_suspended", PLACE, "counts", 2)


@pytest.mark.parametrize(("promoted", "reason"), [(True, "promoted"), (False, "migrated")])
def test_a_standby_task_follows_until_it_goes_or_is_promoted(promoted: bool, reason: str) -> None:
    notes = Notes()
    restorer, restore = following(notes, None)
    restore(fetched([b"a", b"b"], 4, 6, 12))
    restorer.remove(PLACE, promoted=promoted)
    assert notes.told == [
        ("on_update_start", PLACE, "counts", 4),
        ("on_batch_loaded", PLACE, "counts", "sub_3", 6, 2, 12),
        ("on_update_suspended", PLACE, "counts", 6, 12, reason),
    ]


def test_a_listener_that_raises_ends_the_application() -> None:
    class Broken(RestoreListener):
        def on_restore_start(self, *_news: object) -> None:
            raise KeyError("x")

    with pytest.raises(UserError, match=r"Broken\.on_restore_start raised KeyError: 'x'"):
        Restorer(Broken()).add(ChangelogProgress("counts", PLACE, 4, 4, 8))


def test_what_is_left_takes_as_long_as_the_speed_so_far_says() -> None:
    progress = ChangelogProgress("counts", PLACE, 100, 100, 1_100, started_at_ms=5_000)
    assert progress.eta_s(6_000) is None
    progress.position = 300
    assert progress.offsets_per_second(7_000) == 100
    assert progress.eta_s(7_000) == 8.0
    progress.position = 1_100
    assert progress.eta_s(9_000) == 0.0
    assert ChangelogProgress("counts", PLACE, 0, 50, None, 100).eta_s(9_000) is None
