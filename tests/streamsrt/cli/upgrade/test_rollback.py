"""What a rollback is refused for, and what becomes of it if records appear meanwhile that only the later version reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamsrt.assignment.value_versions import ValueVersion
from streamsrt.cli.upgrade.abort import Rollback, show, stop_first
from streamsrt.runtime.group_facts import GroupFacts, MemberFacts
from topology import Store, StreamsBuilder, serdes
from topology.graph.topology import Topology

UNREAD = {"shop-by-word-repartition": 75}


def later() -> MemberFacts:
    return MemberFacts(
        member_id="m", instance_id="pod-1", process_id="p", client_id="shop", host="there", epoch=1, digest="d"
    )


def rollback(*leaving: MemberFacts, lose_in_flight: bool = False) -> Rollback:
    builder = StreamsBuilder()
    builder.stream("words", key=serdes.string, value=serdes.string).to("out")
    return Rollback(
        old="shop:first",
        group="shop",
        protocol="classic",
        next_one=replace(builder.build(), epoch=2),
        leaving=leaving,
        staying=(),
        topics=frozenset(UNREAD),
        in_flight={},
        refused="",
        lose_in_flight=lose_in_flight,
    )


def test_nobody_is_removed_if_records_have_appeared(capsys: pytest.CaptureFixture[str]) -> None:
    stopped = rollback(later()).after_claim(UNREAD)
    assert (stopped.exit_code, stopped.in_flight) == (12, UNREAD)
    show(stopped)
    said = capsys.readouterr()
    assert "is now that of shop:first, with topology epoch 2" in said.out
    assert "topology epoch 1: not removed" in said.out
    assert "repartition topic shop-by-word-repartition, which shop:first does not have, holds 75 records" in said.out
    assert "written while the rollback was under way" in said.out
    assert "let the instances of the later version run; restart the instances of shop:first one by one" in said.out
    assert "no instance is removed" in said.err


def test_it_goes_on_if_nothing_has_appeared_or_nothing_is_to_be_read() -> None:
    assert rollback(later()).after_claim({}).exit_code == 0
    assert not rollback(later(), lose_in_flight=True).after_claim(UNREAD).refused
    assert not rollback().after_claim(UNREAD).refused


def test_what_was_written_while_members_were_removed_is_another_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    done = replace(rollback(later()).after_claim({}), executed=True, in_flight=UNREAD)
    assert done.exit_code == 12
    show(done)
    assert (
        "start the later version again with topology.epoch=3, beside instances of shop:first" in capsys.readouterr().out
    )
    assert replace(done, lose_in_flight=True).exit_code == 0
    assert replace(done, in_flight={}).exit_code == 0


def test_a_classic_group_takes_no_version_that_cannot_read_what_its_members_write() -> None:
    def kept(store: str | Store) -> Topology:
        builder = StreamsBuilder()
        words = builder.stream("words", key=serdes.string, value=serdes.string).group_by_key()
        words.aggregate(str, lambda key, value, last: value, store=store, value=serdes.string)
        return builder.build()

    versions = {"shop-rows-changelog": ValueVersion(2)}
    new = replace(later(), value_versions=versions)
    group = GroupFacts(name="shop", kind="classic", state="Stable", epoch=1, members=(new,))
    why = stop_first(group, kept("rows"), [new])
    assert "about to write values which the former version can't read (pod-1), and a classic group takes no such" in why
    assert "Stop them first" in why
    assert not stop_first(group, kept(Store("rows", version=2, upcast={1: str.upper})), [new])
    assert not stop_first(replace(group, kind="streams"), kept("rows"), [new])
    assert not stop_first(group, kept("rows"), [])
