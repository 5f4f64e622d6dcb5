"""Random lives of groups with members of Java's, which lead or follow: no task runs twice, and all run in the end."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamsrt.membership.classic.values import PROTOCOL_NAME
from tests.streamsrt.membership.classic.group_model import VERSIONS
from tests.streamsrt.membership.classic.mixed_model import MixedModel

VERSION = VERSIONS[2][0]


class MixedLife:
    """What can happen to a group while an application of Java is taken over, or joined by Java's."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.laziness = random.choice([0.0, 0.3, 0.7])
        self.model = MixedModel(VERSION, standbys=random.choice([0, 0, 1]), warmups=random.choice([0, 2]))
        for _ in range(random.randrange(1, 4)):
            random.choice([self.java_comes, self.we_come])()

    def live(self, steps: int) -> MixedModel:
        model = self.model
        changes: list[Callable[[], None]] = [
            self.java_comes,
            self.we_come,
            self.java_goes,
            self.we_go,
            self.session_ends,
            self.timeout,
        ]
        for _ in range(steps):
            if self.random.random() < 0.3:
                self.random.choice(changes)()
            for _ in range(self.random.randrange(1, 8)):
                model.round(self.random, self.laziness)
                model.now_ms += 1_000
        model.settle(self.random)
        return model

    def java_comes(self) -> None:
        if len(self.model.javas) < 3:
            self.model.start_java(self.random.choice([9, 10, 11]))

    def we_come(self) -> None:
        if len(self.model.players) < 3:
            self.model.start(VERSION, f"{10 + self.model.numbers % 80}")

    def java_goes(self) -> None:
        if self.model.javas:
            player = self.random.choice(list(self.model.javas.values()))
            self.model.stop_java(player, says_so=self.random.random() < 0.5)

    def we_go(self) -> None:
        if self.model.players:
            player = self.random.choice(list(self.model.players.values()))
            self.random.choice([self.model.leave, self.model.kill])(player)

    def session_ends(self) -> None:
        if self.model.dead:
            self.model.session_ends(self.model.dead.pop())

    def timeout(self) -> None:
        self.model.broker.complete(timeout=True)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
@example(seed=1)
@example(seed=2)
def test_whoever_leads_no_task_runs_twice_and_all_run_in_the_end(seed: int) -> None:
    MixedLife(Random(seed)).live(25)


@pytest.mark.parametrize("newest_version", [7, 9, 10, 11])
def test_an_application_of_java_is_taken_over_member_by_member(newest_version: int) -> None:
    random, model = Random(0), MixedModel(VERSION)
    for _ in range(3):
        model.start_java(newest_version)
    model.settle(random)
    for number, java in enumerate(list(model.javas.values())):
        model.start(VERSION, f"2{number}")
        model.settle(random)
        model.stop_java(java)
        model.settle(random)
    assert model.led_by_java > 1
    assert model.protocol == PROTOCOL_NAME
    assert all(player.session.stream_version == newest_version for player in model.players.values())
    assert not model.refusals
    model.finish(random)


def test_members_of_java_join_a_group_that_we_lead_and_leave_it() -> None:
    random, model = Random(0), MixedModel(VERSION)
    ours = model.start(VERSION, "01")
    model.settle(random)
    java = model.start_java()
    model.settle(random)
    assert model.led_by_java == 0
    assert java.open.active
    assert ours.open.active
    model.stop_java(java)
    model.settle(random)
    assert sorted(ours.open.active) == model.all_tasks()
