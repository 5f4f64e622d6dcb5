"""Programs whose changelogs were captured from Kafka Streams in Java."""

from __future__ import annotations

import json

from tests.oracle.programs import GOLDEN, Case, build


def case(name: str) -> Case:
    found: Case = json.loads((GOLDEN / f"{name}.json").read_text())
    return found


CASES = {
    "counted": case("02-aggregation/count-group_by_key-store"),
    "windowed": case("03-windows/tumbling-count-named"),
    "sessions": case("03-windows/session-count"),
    "with_table": case("06-stores/changelog-headers-default"),
    "by_foreign_key": case("04-joins/fk_join-long-fk"),
    "to_itself": case("04-joins/fk_left_join-self"),
}
counted, windowed, sessions, with_table, by_foreign_key, to_itself = (build(each).topology for each in CASES.values())
