"""Whether a replay has put rows where they were before source topics got more partitions and ``state repartition`` moved
them.

1. Each task says which of its rows lie elsewhere than their keys belong (:mod:`streamsrt.backfill.row_places`). The same
   keys are looked for in the changelog that is still in the cluster.
2. If the application has them in the same partitions, it got them like that: it began after the topics had grown, or the
   producer has a partitioner of its own. If it has them where they belong, they were moved.
3. If it has neither, because the changelog is lost, one smaller number of partitions that explains the places of all of
   them says the same. Where the program chooses the keys, there must be so many that chance is no explanation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from streamsrt.backfill.errors import HandOverError
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.manifest import StrayRows, TaskManifest
from streamsrt.backfill.row_places import BY_THEIR_KEYS, explaining, is_explained
from streamsrt.client.interface import Network
from streamsrt.client.values import LATEST
from streamsrt.wording import counted

_ADVICE = f"{BY_THEIR_KEYS}. Or replace the whole state with a backfill of that lake, under another --application-id"
_LISTED = 3


class MovedRows(NamedTuple):
    """Rows of a store that a replay has put where they are no longer. ``before``: the number of partitions by which they
    were placed; None if more than one explains them, or none does. ``keys``: the first ones, by partition; ``is_seen``:
    the changelog in the cluster has them elsewhere, and is not lost."""

    store: str
    changelog: str
    rows: int
    before: int | None
    keys: Sequence[tuple[int, bytes]]
    is_seen: bool

    def refusal(self, repaired: str, partitions: int) -> HandOverError:
        """The error about it. ``partitions``: how many the changelog has."""
        listed = ", ".join(f"0x{key.hex()} in partition {partition}" for partition, key in self.keys[:_LISTED])
        before = "a smaller number of partitions" if self.before is None else counted(self.before, "partition")
        also = "" if self.store == repaired else f" ({repaired!r} is computed from it)"
        moved = (
            "the application has them elsewhere, since its state was moved"
            if self.is_seen
            else "the changelog that would show where the application had them is lost, and its state was probably moved"
        )
        return HandOverError(
            f"store {repaired!r} can't be rebuilt from these records: {counted(self.rows, 'row')} of store "
            f"{self.store!r}{also} would lie where {before} put their keys, and {self.changelog} has {partitions} (keys "
            f"{listed}{', ...' if len(self.keys) > _LISTED else ''}). The records are from before the source topics got "
            f"more partitions, and {moved} (streamsrt state repartition): a key would have rows in two partitions. {_ADVICE}"
        )


def moved_rows(
    network: Network, manifests: Iterable[TaskManifest], stores: Collection[str], counts: Mapping[str, int]
) -> Iterator[MovedRows]:
    """What the tasks have put where it was before the application's state was moved, store by store.

    ``stores``: those that are looked at; ``counts``: the number of partitions of each changelog."""
    strays: dict[str, dict[int, StrayRows]] = {}
    changelogs = {}
    for manifest in manifests:
        for store in manifest.stores:
            if store.name in stores and store.strays is not None and store.changelog is not None:
                strays.setdefault(store.name, {})[store.changelog.partition] = store.strays
                changelogs[store.name] = store.changelog.topic
    for name, by_partition in sorted(strays.items()):
        topic = changelogs[name]
        seen = _seen_elsewhere(network, topic, by_partition)
        if seen is None and not is_explained(by_partition.values(), counts[topic]):
            seen = False
        if seen is False:
            continue
        explained = explaining(by_partition.values())
        yield MovedRows(
            store=name,
            changelog=topic,
            rows=sum(each.rows for each in by_partition.values()),
            before=explained[0] if len(explained) == 1 else None,
            keys=[
                (partition, bytes.fromhex(key))
                for partition, each in sorted(by_partition.items())
                for key in each.belong_to
            ],
            is_seen=seen is True,
        )


def _seen_elsewhere(network: Network, topic: str, strays: Mapping[int, StrayRows]) -> bool | None:
    """Whether the application has most of the rows where their keys belong; False: where the tasks have them, None: it has
    them nowhere. The changelog may be damaged, so a single key says nothing."""
    there = _places(network, topic, {bytes.fromhex(key) for each in strays.values() for key in each.belong_to})
    looked_for = same = moved = 0
    for partition, each in strays.items():
        for key, belongs in each.belong_to.items():
            places = there.get(bytes.fromhex(key), ())
            looked_for += 1
            same += partition in places
            moved += partition not in places and belongs in places
    if same * 2 >= looked_for:
        return False
    return True if moved * 2 > looked_for else None


def _places(network: Network, topic: str, keys: Collection[bytes]) -> dict[bytes, set[int]]:
    """In which partitions of a changelog there are rows with these keys."""
    found: dict[bytes, set[int]] = {}
    count = network.admin.partitions_for([topic]).get(topic, 0)
    partitions = {(topic, index): LATEST for index in range(count)}
    ends = network.admin.list_offsets(partitions, read_committed=True) if partitions else {}
    for (_, partition), end in ends.items():
        for columns in read_log(network, (topic, partition), 0, end.offset):
            for key, value in zip(columns.keys, columns.values, strict=True):
                if key is None or key not in keys:
                    continue
                places = found.setdefault(key, set())
                if value is None:
                    places.discard(partition)
                else:
                    places.add(partition)
    return found
