"""Every operation that the DSL has: offline up to some record, then live, is one live run, or the plan refuses it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.app import KafkaStreams
from streamsrt.backfill import Backfill
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.operators import check_topology, notes
from streamsrt.operators.table import OPERATIONS
from tests.streamsrt.backfill import held
from tests.streamsrt.backfill.frozen import filled, frozen
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import Scene
from tests.streamsrt.backfill.test_replay import Outcome, _sources, all_live, config, offline_then_live, per_topic
from tests.streamsrt.operators.programs import Piped
from tests.streamsrt.operators.test_every_operator import PROGRAMS, Row, rows, topology_of
from topology import Topology, serdes
from topology.graph.nodes import ProcessorNode

REFUSED = {"foreign-key join", "foreign-key left join"}
SEVERAL_TASKS = {"stateless", "table grouped anew", "tables made of tables"}
"""Through repartition topics: each task is one of the others, and :mod:`.test_engine_local` chains them."""
SHOWS_EARLIER = {"stream left join", "stream outer join"}
"""After a restart unmatched records are shown as soon as they are over, which may be earlier than without it."""
NUMBERED = {"stream join", "self-join"}
"""A record without a value takes a sequence number, of which only its place in a full changelog tells."""
HERE = sorted(PROGRAMS.keys() - REFUSED - SEVERAL_TASKS - SHOWS_EARLIER)


def program(name: str) -> Topology:
    return topology_of(name).with_default_serdes(serdes.string, serdes.string)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_can_not_be_computed_is_refused_with_the_choice_that_there_is(name: str) -> None:
    if name not in REFUSED:
        check_topology(program(name))
        return
    with pytest.raises(PlanError, match="or let the application read its topics from the beginning"):
        check_topology(program(name))


def placed(outcome: Outcome) -> tuple[dict[str, Any], dict[str, Any]]:
    """Its rows and changelogs. Held records come in their order, without the numbers in their keys: after a restart these go
    on from those that are held, and not from those that were."""
    rows = {
        name: [(key[:-4], row) for key, row in sorted(found)] if name.endswith("-Buffer") else found
        for name, found in outcome.rows.items()
    }
    changelogs = {
        topic: [(key[:-4], found[key][1:]) for key in sorted(found)] if topic.endswith("-Buffer-changelog") else found
        for topic, found in outcome.compacted().items()
    }
    return rows, changelogs


def test_held_records_are_numbered_anew_and_stay_in_order() -> None:
    topology = program("stream-table join with grace")
    reads = _sources(topology)
    found = [Piped("left", "a", "a", at, ()) for at in (41, 33, 34)]
    first, second = per_topic(found[:2], reads), per_topic(found[2:], reads)
    live, mixed = all_live(topology, first, second, False), offline_then_live(topology, first, second, False)
    assert live.rows != mixed.rows
    assert placed(mixed) == placed(live)


@pytest.mark.parametrize("name", HERE)
@settings(max_examples=6, deadline=None)
@given(piped=rows, cut=st.integers(1, 10), cached=st.booleans())
def test_offline_then_live_is_one_live_run(name: str, piped: list[Row], cut: int, cached: bool) -> None:
    topology = program(name)
    reads = _sources(topology)
    found = [
        Piped(topic, key, value, at, ())
        for topic, key, value, at in piped
        if topic in reads and (value is not None or name not in NUMBERED)
    ]
    first, second = per_topic(found[:cut], reads), per_topic(found[cut:], reads)
    tables = [Piped(*row, ()) for row in piped]
    shared = filled(topology, tables, config(cached))
    live = all_live(topology, first, second, cached, shared)
    with frozen(topology, tables, config(cached)) as seen:
        mixed = offline_then_live(topology, first, second, cached, frozen=seen, shared=shared)
    assert placed(mixed) == placed(live)
    versioned = {
        f"-{store.name}-changelog"
        for part in topology.subtopologies
        for store in part.stores
        if store.kind == "versioned"
    }
    if not cached:
        whole = {
            topic
            for topic in live.outputs
            if not topic.endswith("-changelog") or any(topic.endswith(each) for each in versioned)
        }
        assert {topic: mixed.outputs.get(topic) for topic in whole} == {topic: live.outputs[topic] for topic in whole}


def test_the_plan_names_what_somebody_may_not_expect() -> None:
    said = " ".join(notes(program("key-value store")))
    assert "the wall clock stands still" in said
    assert "asks what it asks now" in " ".join(notes(program("lookup join")))
    assert not list(notes(program("count")))


def test_processors_are_found_in_every_subtopology() -> None:
    topology = program("stateless")
    nodes = [node for part in topology.subtopologies for node in part.nodes if isinstance(node, ProcessorNode)]
    assert len(topology.subtopologies) == 2
    again = [node.name for node in nodes if OPERATIONS[type(node.operation)].offline.outcome == "again"]
    assert all(any(name in note for note in notes(topology)) for name in again)
    assert len(again) >= 3


def test_what_is_held_back_and_versions_go_on_live(scene: Scene) -> None:
    """A suppression and a versioned table, handed over to an application that runs on a broker."""
    chance = random.Random(3)
    lines = [(f"k{chance.randrange(5)}", f"v{number}", 7 * number + chance.randrange(60)) for number in range(300)]
    names = [(f"k{chance.randrange(5)}", f"n{number}", 40 * number) for number in range(50)]
    topics = ("held-lines", "held-names", "held-counts", "held-named")

    def load(part: slice) -> None:
        for topic, found in (("held-names", names[part.start // 6 : part.stop // 6]), ("held-lines", lines[part])):
            columns = zip(*((key.encode(), value.encode(), at) for key, value, at in found), strict=True)
            keys, values, times = map(list, columns)
            scene._write(topic, keys, values, times)

    def run_live(application_id: str) -> dict[str, Any]:
        settings = {"application.id": application_id, "bootstrap.servers": scene.servers}
        state = scene.folder / application_id
        KafkaStreams(held.topology, {**settings, "state.dir": state}).run(until="quiet", timeout_s=60, signals=False)
        internal = sorted(
            each.name for each in scene.network.admin.topics().values() if each.name.startswith(application_id)
        )
        return {name.removeprefix(application_id): scene.compacted(name) for name in internal}

    scene.create_topics(*topics)
    load(slice(0, 180))
    backfill = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers)
    backfill.plan("tests.streamsrt.backfill.held:topology", application_id="mixed", changelogs="full")
    backfill.run(InProcess())
    backfill.commit(state_dir=scene.folder / "mixed")
    load(slice(180, 300))
    mixed = run_live("mixed")
    outputs = {topic: scene.compacted(topic) for topic in topics[2:]}
    assert all(any(rows for rows in topic.values()) for topic in outputs.values())
    ends = {topic: scene.ends(topic) for topic in topics[2:]}
    live = run_live("live")
    assert {topic: scene.compacted(topic, ends[topic]) for topic in topics[2:]} == outputs
    by_number = lambda found: {name: {tp[1]: rows for tp, rows in topic.items()} for name, topic in found.items()}  # noqa: E731
    assert by_number(without_deletions(mixed)) == by_number(without_deletions(live))


def without_deletions(topics: dict[str, Any]) -> dict[str, Any]:
    """A deletion of what was never there to see is no difference; what is held back is logged with the time of the clock."""
    return {
        name: {
            tp: {key: row[: 1 if "SUPPRESS" in name else 2] for key, row in rows.items() if row[0] is not None}
            for tp, rows in topic.items()
        }
        for name, topic in topics.items()
    }


def test_the_clock_in_changelogs_of_what_is_held_back_is_said() -> None:
    said = [note for note in notes(held.topology) if "SUPPRESS" in note]
    assert len(said) == 1
    assert "records have the time at which the plan was made" in said[0]


def test_what_is_true_of_several_nodes_is_said_once() -> None:
    topology = program("stateless")
    said = list(notes(topology))
    texts = [note.partition("): ")[2] for note in said]
    assert len(texts) == len(set(texts)), said
    assert sum("its function is called" in text for text in texts) == 1
