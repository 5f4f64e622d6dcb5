"""Random rolling upgrades: members of a settled group are replaced by newer versions, one by one, killed or not."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.coordinator.group.test_machine_stateful import NEWEST_EPOCH, Client, GroupLife


class RollingUpgrades(GroupLife):
    """The life of a group whose topics are as they should be, and whose members mostly do as they are told."""

    # Rules of the other life that would mostly end this one.
    topic_changes = heartbeat = rejoin = None  # type: ignore[assignment]

    @initialize(epoch=st.integers(0, NEWEST_EPOCH - 1), members=st.integers(1, 4), standbys=st.integers(0, 1))
    def start(self, epoch: int, members: int, standbys: int) -> None:
        self.begin(delay_ms=0, interval_ms=0, standbys=standbys, warmups=1, first_epoch=epoch)
        for number in range(members):
            self.add(f"P{number}", epoch)
        for _ in range(4):
            self.everybody_beats(backwards=False, topics_right=True)

    @rule(data=st.data(), ahead=st.sampled_from([0, 1, 1]), killed=st.booleans(), settled=st.integers(0, 3))
    def replace(self, data: st.DataObject, ahead: int, killed: bool, settled: int) -> None:
        old = self.pick(data)
        if old is None or old.away:
            return
        if not killed and old.epoch > 0:
            old.epoch = -1
            self.beat(old)
        self.clients.pop(old.member_id, None)
        self.add(old.process_id, min(self.newest + ahead, NEWEST_EPOCH))
        for _ in range(settled):
            self.everybody_beats(backwards=bool(settled % 2), topics_right=settled != 1)

    @rule(data=st.data(), lazy=st.booleans())
    def one_beats(self, data: st.DataObject, lazy: bool) -> None:
        client = self.pick(data)
        if client is not None and not client.away:
            self.beat(client, lazy=lazy)

    def add(self, process: str, epoch: int) -> None:
        self.numbers += 1
        client = Client(f"m{self.numbers}", process, None, epoch, reports=bool(self.numbers % 3))
        self.clients[client.member_id] = client
        self.beat(client)


RollingUpgrades.TestCase.settings = settings(GroupLife.TestCase.settings, max_examples=50)
TestRollingUpgrades = pytest.mark.requirement("SG-119", "SG-120", "SG-121", "SG-125")(RollingUpgrades.TestCase)
