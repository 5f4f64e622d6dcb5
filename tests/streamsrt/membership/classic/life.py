"""A random life of a classic group by a seed: whatever happens, the invariants hold, and in the end it settles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from streamsrt.membership.classic.leader_assignments import LeaderOutcome
from streamsrt.membership.classic.values import Joined
from tests.streamsrt.membership.classic import warm_takers
from tests.streamsrt.membership.classic.group_model import VERSIONS, GroupModel, Player

PROCESSES = ("01", "02", "03", "04")
NEWEST_EPOCH = len(VERSIONS) - 1


class WarmGroup(GroupModel):
    """What each leader decides is looked at."""

    def lead(self, player: Player, generation: int, joined: Sequence[Joined]) -> LeaderOutcome:
        outcome = super().lead(player, generation, joined)
        if self.settings.num_warmup_replicas:
            warm_takers.check(generation, joined, outcome, self.settings)
        return outcome


class Life:
    """A group that things happen to. ``troubles``: how often they go wrong."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.troubles = random.choice([0.0, 0.05, 0.3])
        self.laziness = random.choice([0.2, 0.6, 0.9])
        self.statics = random.choice([0.0, 0.5, 1.0])
        self.model = WarmGroup(
            standbys=random.choice([0, 0, 1]), warmups=random.choice([0, 2, 4]), join_version=random.choice([7, 9])
        )
        self.newest = random.randrange(NEWEST_EPOCH)
        self.stuck: set[str] = set()
        for _ in range(random.randrange(1, 5)):
            self.start(self.newest)
        self.everybody(8)

    def live(self, steps: int) -> int:
        """How many generations the group took to settle in the end."""
        for _ in range(steps):
            if self.random.random() < self.troubles:
                self.trouble()
            else:
                self.choice(self.upgrade, self.everybody, self.everybody, self.one_acts, self.one_acts)
            self.model.check()
        before = self.model.generations
        self.model.finish(self.random)
        return self.model.generations - before

    def choice(self, *steps: Callable[[], None]) -> None:
        self.random.choice(steps)()

    # What is as it should be

    def start(self, epoch: int, variant: int = 0, instance_id: str | None = None) -> None:
        if instance_id is None and self.random.random() < self.statics:
            instance_id = f"i{self.model.numbers}"
        self.newest = max(self.newest, epoch)
        self.model.start(VERSIONS[epoch][variant], self.process(epoch), instance_id)

    def process(self, epoch: int) -> str:
        """A process runs one version."""
        taken = {p.process: p.version.epoch for p in self.model.players.values()}
        fitting = [name for name in PROCESSES if taken.get(name, epoch) == epoch]
        return self.random.choice(fitting) if fitting else f"{10 + self.model.numbers % 80}"

    def everybody(self, rounds: int | None = None) -> None:
        """All members go on for a while; their threads are slow."""
        random, model = self.random, self.model
        for _ in range(rounds or random.randrange(1, 6)):
            for player in list(model.players.values()):
                if player.name in model.players:
                    if player.name not in self.stuck:
                        model.act(player)
                    if random.random() > self.laziness:
                        model.thread_acts(player, random)
                    model.check()
            model.broker.complete(timeout=bool(self.stuck) and random.random() < 0.2)

    def one_acts(self) -> None:
        player = self.pick()
        if player is not None and player.name not in self.stuck:
            self.model.act(player, lost=self.random.random() < self.troubles / 3)
        self.model.broker.complete(timeout=False)

    def upgrade(self) -> None:
        """A member is stopped or killed, and the next version starts in its place."""
        random, model, player = self.random, self.model, self.pick()
        if player is None or random.random() < 0.4:
            return
        epoch = min(self.newest + random.choice([0, 0, 1]), NEWEST_EPOCH)
        if player.instance_id is not None:
            model.kill(player)
            self.start(epoch, instance_id=player.instance_id)
        elif random.random() < 0.7:
            model.leave(player)
            self.start(epoch)
        else:
            model.kill(player)
            self.start(epoch)

    # What goes wrong

    def trouble(self) -> None:
        members = (self.kill, self.leader_dies, self.pause, self.odd_start, self.joins_for_nothing)
        times = (self.gets_stuck, self.gets_stuck, self.recovers, self.session_ends, self.timeout, self.topics_fail)
        self.choice(*members, *times)

    def kill(self) -> None:
        player = self.pick()
        if player is not None and len(self.model.players) > 1:
            self.model.kill(player)

    def leader_dies(self) -> None:
        for player in list(self.model.players.values()):
            if player.member_id and player.member_id == self.model.broker.leader and len(self.model.players) > 1:
                self.model.kill(player)
                self.model.session_ends(player.member_id)

    def session_ends(self) -> None:
        if self.model.dead:
            self.model.session_ends(self.model.dead.pop(self.random.randrange(len(self.model.dead))))

    def gets_stuck(self) -> None:
        """The network half of a member does nothing for a while; its thread goes on."""
        player = self.pick()
        if player is not None and len(self.stuck) < 2:
            self.stuck.add(player.name)

    def recovers(self) -> None:
        self.stuck.clear()

    def pause(self) -> None:
        """A process stands still for longer than its session."""
        player = self.pick()
        if player is not None:
            self.model.session_ends(player.member_id)

    def timeout(self) -> None:
        self.model.broker.complete(timeout=True)

    def odd_start(self) -> None:
        if len(self.model.players) < 6:
            epoch = max(0, min(self.newest + self.random.choice([-1, 0, 1, 2]), NEWEST_EPOCH))
            self.start(epoch, self.random.choice([0, 1]))

    def topics_fail(self) -> None:
        self.model.cluster.is_down = not self.model.cluster.is_down

    def joins_for_nothing(self) -> None:
        player = self.pick()
        if player is not None:
            player.wants = True

    def pick(self) -> Player | None:
        players = list(self.model.players.values())
        return self.random.choice(players) if players else None


def live(random: Random, steps: int = 60) -> int:
    return Life(random).live(steps)
