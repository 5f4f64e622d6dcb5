"""Outputs, repartition and changelog records, final stores and dropped records of each case equal Kafka Streams'."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.comparison import in_order, value_of, without_headers
from tests.oracle.programs import Case, case_name, unsupported
from tests.oracle.replay import expected_sent, replay

DIFFERENT: dict[str, str] = {
    "04-joins/st-left_join-versioned-grace-null-key-crashes": "a record without a key is joined with None at once here",
    "01-stateless/table-filter-store-does-not-inherit-serdes": "a derived table's store inherits the serdes here",
    "01-stateless/table-lru": "Java leaves what a table's LRU store drops in the changelog, so it comes back",
    "01-stateless/table-map_values-store-does-not-inherit-serdes": "the serde from before is assumed here",
    "02-aggregation/aggregate-windowed-then-table-group_by-cached": "Java's cache shows what its store has expired",
    "02-aggregation/caching-on-tiny-cache-evicts": "a full cache asks for a commit here, and evicts what was written then",
    "02-aggregation/caching-on-windowed-commit-manual": "Java's cache still shows windows that its store has expired",
    "10-errors/topic-function-throws-below-a-source": "Java asks no handler below a source; here it is asked",
    "03-windows/session-closes-with-the-record": "a session that is not closed yet is still there here",
    "05-names/self-left-join-opt-single": "left and outer joins of a stream with itself stay what they are here",
    "03-windows/session-before-the-first-gap-cached": "Java's cache fails to look for sessions before the epoch",
    "04-joins/tt-join-versioned-filter-with-serdes": "serdes for no store leave a table versioned here",
    "03-windows/emit-on-close-with-production-emit-interval": "windows are emitted when they close, after no interval",
}
"""Cases whose outcome differs on purpose, each with the reason."""

_JUMP = "Java loses windows that expire by the record that closes them; here each is emitted"
SENDS_MORE: dict[str, str] = {
    "03-windows/emit-on-close-boundaries": _JUMP,
    "03-windows/emit-on-close-hopping": _JUMP,
    "03-windows/emit-on-close-tumbling": _JUMP,
    "03-windows/suppress-then-filter-forgets-what-it-forwarded": "Java's old value is that of the change held back before",
    "04-joins/tt-join-self": "Java keeps the result of a table's join with itself when the row is deleted",
}
"""Cases in which everything is sent that Java sends, in its order, and more on purpose; their dropped records are equal."""

OTHER_CHANGELOG: dict[str, str] = {
    "03-windows/suppress-window-close-sliding": "Java takes the aggregate of another window for a new one's old value",
}
"""Cases whose changelogs hold what Java gets wrong; all else is equal."""

_SEGMENT = "Java shows rows beyond retention until their segment is deleted"
KEEPS_LESS: dict[str, str] = {
    "02-aggregation/caching-on-session-commit-manual": _SEGMENT,
    "03-windows/emit-on-close-boundaries": _SEGMENT,
    "03-windows/emit-on-close-hopping": _SEGMENT,
    "03-windows/emit-on-close-tumbling": _SEGMENT,
    "03-windows/emit-on-close-tumbling-default-name": _SEGMENT,
}
"""Cases at whose end Java's stores show rows that are beyond retention, and ours do not."""


@pytest.mark.parametrize("generate", [True, False], ids=["generated", "nodes"])
@pytest.mark.matrix
def test_case(oracle_case: Case, generate: bool) -> None:
    case = oracle_case
    if "build_error" in case:
        pytest.skip("does not build, on purpose: see the tests of the topology")
    reason = DIFFERENT.get(case_name(case)) or unsupported(case)
    if reason is not None:
        pytest.skip(reason)
    done = replay(case, generate=generate)
    expected_step = case["error"]["step"] if "error" in case else None
    if done.failed_step != expected_step and done.error is not None:
        raise done.error
    assert done.failed_step == expected_step
    expected = expected_sent(case)
    for topic, step in sorted({*done.sent, *expected}):
        sent, wanted = done.sent.get((topic, step), []), expected.get((topic, step), [])
        if topic.endswith("-changelog") and case_name(case) in OTHER_CHANGELOG:
            continue
        if any(record["ts"] is None for record in wanted):
            # The producer stamps these, and Java logs them in the order of a hash set.
            sent, wanted = ([{**record, "ts": None} for record in in_order(records)] for records in (sent, wanted))
        if case_name(case) in SENDS_MORE:
            rest = iter(sent)
            assert all(record in rest for record in wanted), f"{topic} at step {step}"
        else:
            assert sent == wanted, f"{topic} at step {step}"
    if expected_step is None:
        _check_stores(case, done.stores)
        assert done.dropped == case["dropped_records"]


def _check_stores(case: Case, stores: dict[str, list[Any]]) -> None:
    for name, expected in case["stores"].items():
        if expected["kind"] in ("unconnected", "RocksDBTimeOrderedKeyValueBuffer"):
            # Nothing is known of what the latter held: Java has no way to list it.
            continue
        entries = expected["entries"]
        if expected["kind"].startswith("headers_"):
            timestamped = any("ts" in value_of(row) for row in stores[name])
            entries = [without_headers(entry, timestamped=timestamped) for entry in entries]
        rows, wanted = in_order(stores[name]), in_order(entries)
        if case_name(case) in KEEPS_LESS:
            assert all(row in wanted for row in rows), f"store {name}"
        else:
            assert rows == wanted, f"store {name}"
