"""Replays a case of the oracle in TopologyTestDriver, and says what it did in the words of the case file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import unpack
from typing import Any
from uuid import UUID

from streamsrt.errors import StreamsError
from streamsrt.operators.engine.handlers import LETTER_HEADER_PREFIX
from streamsrt.operators.kinds.foreign_key_joins import ForeignKeySubscription
from streamsrt.operators.kinds.stream_joins import listed_values
from streamsrt.testing.topology_test_driver import ProducedRecord, TopologyTestDriver
from tests.oracle.programs import EMIT_INTERVAL, Case, application_config, build, serde, to_value
from topology import ValueAndTimestamp

HANDLERS = ("deserialization.exception.handler", "processing.exception.handler", "production.exception.handler")
LISTS = ("output", "repartition", "changelog")

Sent = dict[str, Any]


@dataclass
class Replayed:
    """``sent``: what the producer got, by topic and step. ``failed_step``: where a record failed, else None."""

    sent: dict[tuple[str, int], list[Sent]] = field(default_factory=dict)
    stores: dict[str, list[Any]] = field(default_factory=dict)
    dropped: int = 0
    failed_step: int | None = None
    error: StreamsError | None = None


def expected_sent(case: Case) -> dict[tuple[str, int], list[Sent]]:
    """What Kafka Streams sent, by topic and step, in order."""
    sent: dict[tuple[str, int], list[Sent]] = {}
    records = [record for name in LISTS for record in case.get(name, [])]
    for record in sorted(records, key=lambda record: record["seq"]):
        sent.setdefault((record["topic"], record["step"]), []).append(
            {
                **{name: record[name] for name in ("key_hex", "value_hex", "ts")},
                "headers": [[name, _masked(name, value)] for name, value in record["headers"]],
            }
        )
    return sent


def _masked(name: str, value: str | None) -> str | None:
    """What an exception is called and says is another thing in each language."""
    words = ("__streams.errors.exception", "__streams.errors.message", "__streams.errors.stacktrace")
    return "..." if name in words else value


def replay(case: Case, *, generate: bool) -> Replayed:
    """Runs the case's inputs; stops where a record fails."""
    program = build(case)
    config: dict[str, Any] = {"statestore.cache.max.bytes": 0, **application_config(case), "application.id": "app"}
    for key in HANDLERS:
        if key in config:
            config[key] = "continue" if config[key] == "continue" else "fail"
    if f"__{EMIT_INTERVAL}__" in config:
        config[EMIT_INTERVAL] = config[f"__{EMIT_INTERVAL}__"]
    known = {
        "default.key.serde",
        "default.value.serde",
        "statestore.cache.max.bytes",
        "application.id",
        "default.timestamp.extractor",
        "errors.dead.letter.queue.topic.name",
        EMIT_INTERVAL,
        *HANDLERS,
    }
    done = Replayed()
    try:
        driver = TopologyTestDriver(
            program.topology,
            {key: value for key, value in config.items() if key in known},
            initial_wall_clock_ms=case.get("initial_wall_clock_ms", 0),
            commit="manual" if case.get("commit") == "manual" else "each record",
            generate=generate,
            refuse=_refuse(case.get("producer_fails")),
        )
    except StreamsError as error:
        done.failed_step, done.error = -1, error
        return done
    seen = 0
    for step, action in enumerate(case.get("input", [])):
        try:
            _act(driver, case, action, program.topic_serdes)
        except StreamsError as error:
            done.failed_step, done.error = step, error
        for record in driver.producer_history[seen:]:
            done.sent.setdefault((record.topic, step), []).append(_sent(record))
        seen = len(driver.producer_history)
        if done.failed_step is not None:
            break
    done.dropped = driver.counters()["dropped"]
    if done.failed_step is None:
        done.stores = {name: _entries(driver, case, name) for name in driver.store_names()}
    driver.close()
    return done


def _refuse(fails: dict[str, Any] | None) -> Callable[[str, bytes | None, bytes | None], Exception | None] | None:
    if fails is None:
        return None
    topic, refused, reason = fails["topic"], fails["value"].encode(), ValueError(fails["message"])
    return lambda to, key, value: reason if (to, value) == (topic, refused) else None


def _act(driver: TopologyTestDriver, case: Case, action: dict[str, Any], topic_serdes: dict[str, Any]) -> None:
    if "advance_wall_clock_ms" in action:
        driver.advance_wall_clock_time(action["advance_wall_clock_ms"])
    elif "commit" in action:
        driver.commit()
    else:
        key_serde, value_serde = topic_serdes.get(action["topic"], (None, None))
        config = case.get("config", {})
        driver.pipe_raw(
            action["topic"],
            _bytes(action, "key", key_serde or config.get("default.key.serde") or "string"),
            _bytes(action, "value", value_serde or config.get("default.value.serde") or "string"),
            action["ts"],
            tuple((name, None if value is None else bytes.fromhex(value)) for name, value in action.get("headers", [])),
        )


def _bytes(action: dict[str, Any], side: str, serde_name: Any) -> bytes | None:
    if f"{side}_hex" in action:
        raw = action[f"{side}_hex"]
        return None if raw is None else bytes.fromhex(raw)
    value = action.get(side)
    if value is None:
        return None
    raw = serde(serde_name).serialize(to_value(value, serde_name))
    assert isinstance(raw, bytes)
    return raw


def _sent(record: ProducedRecord) -> Sent:
    return {
        "key_hex": None if record.key is None else record.key.hex(),
        "value_hex": None if record.value is None else record.value.hex(),
        "ts": record.timestamp,
        "headers": [
            [name, _masked(name, None if value is None else value.hex())]
            for name, value in record.headers
            # What a dead letter says beyond Kafka Streams' headers.
            if not name.startswith(LETTER_HEADER_PREFIX)
        ],
    }


def _entries(driver: TopologyTestDriver, case: Case, name: str) -> list[Any]:
    kind = driver.store_kind(name)
    if kind == "buffer":
        return []
    if kind == "versioned":
        return _versions(driver, case, name)
    if name.endswith("-shared-join-store") or "-OUTERSHARED-" in name:
        return _unmatched(driver, case, name)
    if "-SUBSCRIPTION-STATE-STORE-" in name or name.endswith("-subscription-store"):
        return _subscriptions(driver, case, name)
    rows: Any
    if kind == "session":
        rows = driver.get_session_store(name)
    elif kind == "window":
        rows = driver.get_window_store(name, timestamped=True)
    else:
        rows = driver.get_key_value_store(name, timestamped=True)
    return [{"key": _json(key), "value": _json(value)} for key, value in rows.all()]


def _unmatched(driver: TopologyTestDriver, case: Case, name: str) -> list[Any]:
    """What waits for a match in a stream-stream join with string keys, in the words of Java's toString()."""
    joined = [step.get("stream_joined") or {} for step in case["dsl"] if "windows" in step][-1]
    serdes = {side: serde(joined.get(name, "string")) for side, name in (("left", "value"), ("right", "other"))}
    entries = []
    for key, values in driver.get_key_value_store(name).all():
        side = "left" if key[8] else "right"
        text = f"TimestampedKeyAndJoinSide:<{side},{key[9:].decode()}:{int.from_bytes(key[:8], 'big')}>"
        entries += [
            {"key": text, "value": f"LeftOrRightValue:<{side},{serdes[side].deserialize(value)}>"}
            for value in listed_values(values)
        ]
    return entries


def _subscriptions(driver: TopologyTestDriver, case: Case, name: str) -> list[Any]:
    """The subscriptions of a foreign-key join, in the words of Java's toString()."""
    key_serde = serde(next((step["consumed"]["key"] for step in case["dsl"] if step["op"] == "table"), "string"))
    entries = []
    for key, (raw, timestamp) in driver.get_timestamped_key_value_store(name).all():
        each = ForeignKeySubscription.from_bytes(raw)
        assert each.value_hash is not None
        text = (
            f"SubscriptionWrapper:SubscriptionWrapper{{version=1, primaryKey={key_serde.deserialize(each.primary_key)}, "
            f"instruction={each.instruction.name}, hash={list(unpack('>qq', each.value_hash))}, "
            f"primaryPartition={each.partition}}}"
        )
        entries.append({"key": key.hex(), "value": {"value": text, "ts": timestamp}})
    return entries


def _versions(driver: TopologyTestDriver, case: Case, name: str) -> list[Any]:
    """The versions of all keys that the case has."""
    store = driver.get_versioned_key_value_store(name)
    entries = []
    for key in sorted({action["key"] for action in case["input"] if action.get("key") is not None}):
        versions = [
            {"value": _json(version.value), "ts": version.timestamp, "valid_to": version.valid_to}
            for version in store.versions(key)
        ]
        if versions:
            entries.append({"key": key, "versions_latest_first": versions})
    return entries


def _json(value: Any) -> Any:
    if isinstance(value, ValueAndTimestamp):
        return {"value": _json(value.value), "ts": value.timestamp}
    if isinstance(value, tuple) and hasattr(value, "start_ms"):
        return {"key": _json(value.key), "start": value.start_ms, "end": value.end_ms}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, UUID):
        return str(value)
    return value
