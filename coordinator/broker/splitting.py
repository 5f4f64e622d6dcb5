"""Large requests are answered in pieces: which arrays of which API can be split, and how responses are merged.

1. A request is split if its entries are answered independently. Its pieces go through the API's handler one by one,
   with the same authorization as the whole.
2. Repeated entries of a query are answered once: such queries have a key in :data:`SPLITS`. Entries that change
   something stay unchanged, in order.
3. Requests that are not in :data:`SPLITS` are handled at once, and may have :data:`WHOLE_ELEMENTS_MAX` elements in
   their arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from copy import copy
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

from streamsrt.wire.schema import ApiKey, Message

ELEMENTS_MAX = 50_000
"""How many elements the arrays of one request may have together: five times what a request may create."""
WHOLE_ELEMENTS_MAX = 20_000
_FOLDED_AT_ONCE = 64
_COMMITTED_AT_ONCE = 400
_BATCHED_FETCH_VERSION = 8

M = TypeVar("M", bound=Message)
Entry: TypeAlias = Any  # a struct, a name or a number: whatever the array has that a row of SPLITS names


class Level(NamedTuple):
    """An array of a request and the one of the answer that has an entry for each of its entries.

    ``key``: entries with the same one are the same question; None: each stays. ``same``: the names of the answer's
    attributes by which entries that were taken apart are recognised. ``cost``: how many of the innermost entries one of
    these costs at least.
    """

    wanted: str
    answered: str
    key: Callable[[Entry], object] | None = None
    same: tuple[str, ...] = ()
    cost: int = 1


class Split(NamedTuple):
    """How requests of an API are taken apart: its arrays from the outside in, and how many entries a piece has.

    ``merged``: an array of the innermost entries that stays whole, and is put together where entries are the same question.
    """

    levels: tuple[Level, ...]
    entries: int = 16
    merged: tuple[Level, ...] = ()


def _itself(entry: object) -> object:
    return entry


_name = attrgetter("name")
_NAMED = ("name",)
_by_name_or_id = attrgetter("name", "topic_id")
_NAMED_OR_ID = ("name", "topic_id")
_partition_index = attrgetter("partition_index")
_TOPICS = Level("topics", "topics", _name, _NAMED)
_GROUPS = Split((Level("group_ids", "groups", _itself),))

SPLITS: Mapping[int, Split] = {
    ApiKey.PRODUCE: Split(
        (Level("topic_data", "responses", None, _NAMED_OR_ID), Level("partition_data", "partition_responses")),
        200,
    ),
    ApiKey.LIST_OFFSETS: Split(
        (
            _TOPICS,
            Level("partitions", "partitions", attrgetter("partition_index", "timestamp", "current_leader_epoch")),
        ),
        4,
    ),
    ApiKey.METADATA: Split((Level("topics", "topics", _by_name_or_id),), 64),
    ApiKey.OFFSET_COMMIT: Split(
        (Level("topics", "topics", None, _NAMED_OR_ID, 2), Level("partitions", "partitions")), _COMMITTED_AT_ONCE
    ),
    ApiKey.TXN_OFFSET_COMMIT: Split(
        (Level("topics", "topics", None, _NAMED), Level("partitions", "partitions")), _COMMITTED_AT_ONCE
    ),
    ApiKey.OFFSET_DELETE: Split((Level("topics", "topics", None, _NAMED), Level("partitions", "partitions")), 200),
    ApiKey.OFFSET_FETCH: Split(
        (
            Level("groups", "groups", attrgetter("group_id"), ("group_id",), 8),
            Level("topics", "topics", _by_name_or_id, _NAMED_OR_ID),
            Level("partition_indexes", "partitions", _itself),
        ),
        200,
    ),
    ApiKey.FIND_COORDINATOR: Split((Level("coordinator_keys", "coordinators", _itself),), 64),
    ApiKey.DESCRIBE_GROUPS: Split((Level("groups", "groups", _itself),)),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _GROUPS,
    ApiKey.STREAMS_GROUP_DESCRIBE: _GROUPS,
    ApiKey.DELETE_GROUPS: Split((Level("groups_names", "results", _itself),)),
    ApiKey.DELETE_RECORDS: Split((_TOPICS, Level("partitions", "partitions", _partition_index))),
    ApiKey.WRITE_TXN_MARKERS: Split(
        (
            Level("markers", "markers", None, ("producer_id",)),
            Level("topics", "topics", None, _NAMED),
            Level("partition_indexes", "partitions", _itself),
        )
    ),
    ApiKey.DESCRIBE_PRODUCERS: Split((_TOPICS, Level("partition_indexes", "partitions", _itself))),
    ApiKey.DESCRIBE_TRANSACTIONS: Split((Level("transactional_ids", "transaction_states", _itself),)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Split(
        (
            Level("topics", "topics", attrgetter("topic"), ("topic",)),
            Level("partitions", "partitions", attrgetter("partition", "leader_epoch")),
        )
    ),
    ApiKey.CREATE_ACLS: Split((Level("creations", "results"),), 4),
    ApiKey.DELETE_ACLS: Split((Level("filters", "filter_results"),), 1),
    ApiKey.DESCRIBE_CONFIGS: Split(
        (Level("resources", "results", attrgetter("resource_type", "resource_name")),),
        1,
        (Level("configuration_keys", "configs", _itself),),
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Split(
        (
            Level("dirs", "results"),
            Level("topics", "results", _name, ("topic_name",)),
            Level("partitions", "partitions", _itself),
        )
    ),
    ApiKey.ELECT_LEADERS: Split(
        (
            Level("topic_partitions", "replica_election_results", attrgetter("topic"), ("topic",)),
            Level("partitions", "partition_result", _itself),
        )
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Split(
        (Level("topics", "responses", _name, _NAMED), Level("partitions", "partitions", _partition_index))
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Split((Level("entries", "entries"),)),
}

_FETCH_OF_ONE_GROUP = Split(
    (Level("topics", "topics", None, _NAMED), Level("partition_indexes", "partitions")),
    200,
)
"""OffsetFetch before it had several groups. Each repeated entry was answered."""


def split_of(api_key: int, api_version: int) -> Split | None:
    """Returns how requests of this API and version are taken apart; None if they are not."""
    if api_key == ApiKey.OFFSET_FETCH and api_version < _BATCHED_FETCH_VERSION:
        return _FETCH_OF_ONE_GROUP
    return SPLITS.get(api_key)


def elements_max(api_key: int) -> int:
    """Returns how many array elements a request of this API may have."""
    return ELEMENTS_MAX if api_key in SPLITS or api_key == ApiKey.FETCH else WHOLE_ELEMENTS_MAX


def is_long(split: Split | None, message: Message) -> bool:
    """Whether a request has more entries than are handled at once."""
    return split is not None and _exceeds(message, split.levels, split.entries)


def _exceeds(message: Message, levels: tuple[Level, ...], entries: int) -> bool:
    found = getattr(message, levels[0].wanted) or ()
    return len(found) * levels[0].cost > entries or (
        len(levels) > 1 and any(_exceeds(each, levels[1:], entries) for each in found)
    )


# ------------------------------------------------------------------------------------------------------------- apart


def in_pieces(split: Split, message: M) -> Generator[M | None, None, None]:
    """Yields the request as smaller ones, and None in between when that took a while."""
    first = split.levels[0]
    whole = getattr(message, first.wanted)
    if whole is None:
        yield message
        return
    folded = yield from _folded(whole, split.levels + split.merged)
    for _, entries in _bundles(folded, split.levels, split.entries):
        piece = copy(message)
        setattr(piece, first.wanted, entries)
        yield piece


def _folded(entries: list[Entry], levels: tuple[Level, ...]) -> Generator[None, None, list[Entry]]:
    """Returns the entries without repeated ones."""
    level, rest = levels[0], levels[1:]
    found: dict[object, Entry] = {}
    extended: set[object] = set()
    for count, entry in enumerate(entries):
        if count % _FOLDED_AT_ONCE == 0:
            yield
        key = count if level.key is None else level.key(entry)
        first = found.setdefault(key, entry)
        if rest and first is not entry:
            _extend(first, entry, rest[0].wanted, key in extended)
            extended.add(key)
    if rest:
        for count, entry in enumerate(found.values()):
            if count % _FOLDED_AT_ONCE == 0:
                yield
            if getattr(entry, rest[0].wanted) is not None:
                setattr(entry, rest[0].wanted, (yield from _folded(getattr(entry, rest[0].wanted), rest)))
    return list(found.values())


def _extend(first: Entry, entry: Entry, name: str, is_own: bool) -> None:
    """Adds what the second entry asks for to the first one. ``is_own``: its list is not shared."""
    mine, others = getattr(first, name), getattr(entry, name)
    if mine is None or others is None:
        # Null asks for everything.
        setattr(first, name, None)
    elif is_own:
        mine.extend(others)
    else:
        setattr(first, name, [*mine, *others])


def _bundles(entries: Iterable[Entry], levels: tuple[Level, ...], size: int) -> Iterator[tuple[int, list[Entry]]]:
    """Yields the entries of the first level in lists with about ``size`` innermost ones, each with their number."""
    bundle: list[Entry] = []
    held = 0
    for count, part in _parts(entries, levels, size):
        if bundle and held + count > size:
            yield held, bundle
            bundle, held = [], 0
        bundle.append(part)
        held += count
    if bundle:
        yield held, bundle


def _parts(entries: Iterable[Entry], levels: tuple[Level, ...], size: int) -> Iterator[tuple[int, Entry]]:
    cost = levels[0].cost
    for entry in entries:
        inner = getattr(entry, levels[1].wanted) if len(levels) > 1 else None
        if not inner:
            yield cost, entry
            continue
        for count, bundle in _bundles(inner, levels[1:], size):
            count = max(count, cost)
            if len(bundle) == len(inner) and all(map(_is, bundle, inner)):
                yield count, entry
                continue
            part = copy(entry)
            setattr(part, levels[1].wanted, bundle)
            yield count, part


def _is(left: object, right: object) -> bool:
    return left is right


# ----------------------------------------------------------------------------------------------------------- together


def joined(split: Split, answers: list[Message | None]) -> Generator[None, None, Message | None]:
    """Merges the responses to the pieces into one, in steps; None if there are none."""
    answer = answers[0]
    if answer is not None:
        for count, each in enumerate(answers[1:]):
            if count % _FOLDED_AT_ONCE == 0:
                yield
            _join(answer, each, split.levels)
    return answer


def released(message: Message) -> Generator[None, None, None]:
    """Empties the arrays of a message that is no longer needed: freeing it at once would take long."""
    for field in message.SCHEMA.root.fields:
        entries = getattr(message, field.attribute)
        while isinstance(entries, list) and entries:
            del entries[-_FOLDED_AT_ONCE:]
            yield


def _join(answer: Message, further: object, levels: tuple[Level, ...]) -> None:
    level = levels[0]
    mine, others = getattr(answer, level.answered, None), getattr(further, level.answered, None)
    if mine is None or not others:
        return
    last, first = (mine[-1] if mine else None), others[0]
    if len(levels) > 1 and level.same and last is not None and _are_same(level, last, first):
        _join(last, first, levels[1:])
        others = others[1:]
    mine.extend(others)


def _are_same(level: Level, last: object, first: object) -> bool:
    return all(getattr(last, name) == getattr(first, name) for name in level.same)
