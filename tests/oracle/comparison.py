"""What differs between Java's answer to a case and what we build and do."""

from __future__ import annotations

import re
from difflib import unified_diff
from typing import Any, NamedTuple

from tests.oracle.programs import Case, build
from tests.oracle.replay import Replayed, expected_sent, replay
from tests.topology.build.test_oracle_structure import heartbeat
from topology import Topology, TopologyError


class Difference(NamedTuple):
    """``kind``: description, groups, topics, refusal, failure, records, store or dropped. ``place``: a topic or store."""

    kind: str
    place: str
    here: Any
    java: Any

    def __str__(self) -> str:
        return f"{self.kind} {self.place}: here {_told(self.here)}, Java {_told(self.java)}"


def differences(answer: Case, *, generate: bool) -> list[Difference]:
    """The first ones first. ``answer``: the case with what Java says of it."""
    if "not_run" in answer:
        return [Difference("failure", "Java's program", None, answer["not_run"]["message"])]
    try:
        topology = build(answer).topology
    except TopologyError as error:
        return [] if "build_error" in answer else [Difference("refusal", "", str(error), None)]
    if "build_error" in answer:
        return [Difference("refusal", "", None, answer["build_error"]["message"])]
    found = []
    if topology.describe() != answer["describe"]:
        lines = unified_diff(topology.describe().splitlines(), answer["describe"].splitlines(), lineterm="", n=1)
        found.append(Difference("description", "", "\n".join(lines), ""))
    found += of_topics(topology, answer)
    return found + of_outputs(answer, replay(answer, generate=generate))


def of_topics(topology: Topology, answer: Case) -> list[Difference]:
    if "heartbeat_topology" not in answer:
        return []
    found = []
    for ours, javas in zip(heartbeat(topology, answer), answer["heartbeat_topology"]["subtopologies"], strict=False):
        for key in ours:
            if ours[key] != javas[key]:
                kind = "groups" if key == "copartitionGroups" else "topics"
                found.append(Difference(kind, key, ours[key], javas[key]))
    return found


def of_outputs(answer: Case, done: Replayed) -> list[Difference]:
    failed = answer["error"]["step"] if "error" in answer else None
    if done.failed_step != failed:
        javas = answer.get("error", {})
        return [
            Difference(
                "failure",
                "",
                f"{done.failed_step} {done.error!r}",
                f"{failed} {javas.get('message')} {javas.get('causes')}",
            )
        ]
    found = []
    expected = expected_sent(answer)
    for topic, step in sorted({*done.sent, *expected}, key=lambda each: (each[1], each[0])):
        sent, wanted = done.sent.get((topic, step), []), expected.get((topic, step), [])
        if any(record["ts"] is None for record in wanted):
            # The producer stamps these, and Java logs them in the order of a hash set.
            sent, wanted = ([{**record, "ts": None} for record in in_order(records)] for records in (sent, wanted))
        if sent != wanted:
            found.append(Difference("records", f"{topic} at {step}", sent, wanted))
    if failed is None:
        found += of_stores(answer, done.stores)
        if done.dropped != answer["dropped_records"]:
            found.append(Difference("dropped", "", done.dropped, answer["dropped_records"]))
    return found


def of_stores(answer: Case, stores: dict[str, list[Any]]) -> list[Difference]:
    found = []
    for name, javas in answer["stores"].items():
        kind = javas["kind"]
        if kind == "unconnected" or "TimeOrdered" in kind or "not_readable" in javas:
            # Nothing is known of what these held: Java has no way to list them, nor rows of windows without a length.
            continue
        if name not in stores:
            found.append(Difference("store", name, None, kind))
            continue
        rows, wanted = in_order(stores[name]), in_order(javas["entries"])
        if kind.startswith("headers_"):
            timestamped = any("ts" in value_of(row) for row in rows)
            wanted = in_order([without_headers(row, timestamped=timestamped) for row in wanted])
        if kind == "versioned":
            # Java's program knows the keys from the changelog.
            wanted = [row for row in wanted if row["versions_latest_first"]]
            rows = rows if f"app-{name}-changelog" in {record["topic"] for record in answer["changelog"]} else wanted
        if rows != wanted:
            ours, others = [row for row in rows if row not in wanted], [row for row in wanted if row not in rows]
            found.append(Difference("store", name, ours, others))
    return found


def without_headers(entry: Any, *, timestamped: bool) -> Any:
    """Java's rows may have headers; nobody reads those of joins, and the DSL's other operators leave them empty.

    So with the timestamps of what a join keeps.
    """
    value = entry["value"]
    if not timestamped:
        return {"key": entry["key"], "value": value["value"]}
    return {"key": entry["key"], "value": {"value": value["value"], "ts": value["ts"]}}


def value_of(entry: Any) -> Any:
    return entry["value"] if isinstance(entry["value"], dict) else {}


def in_order(entries: list[Any]) -> list[Any]:
    return sorted(entries, key=repr)


def _told(side: Any) -> str:
    if isinstance(side, list) and side and "key_hex" in side[0]:
        return "[" + ", ".join(_readable(record) for record in side) + "]"
    return str(side)


def _readable(record: dict[str, Any]) -> str:
    key, value = (_text(record[side]) for side in ("key_hex", "value_hex"))
    headers = f" {record['headers']}" if record["headers"] else ""
    return f"{key}={value}@{record['ts']}{headers}"


def _text(raw: str | None) -> str:
    return "null" if raw is None else re.sub(r"^b'|'$", "", repr(bytes.fromhex(raw)))
