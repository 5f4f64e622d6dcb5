"""``uniform``: equal numbers of partitions for all members, with as few moves as possible.

1. A member keeps its partitions of existing topics to which it still subscribes; no partition stays with two members.
2. Every other partition goes to the member with the fewest partitions among those that subscribe to its topic; topics
   with few subscribers come first.
3. Then partitions move, one by one, from the member with the most to the one with the fewest of the same subscribers,
   until the two differ by at most one. A member first gives away the partitions that it got last; of those that it got
   at the same time, the highest numbers.
4. With equal subscriptions, no two members differ by more than one. Otherwise no single move would bring two members
   closer together.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping

from coordinator.group.consumer.assignor import AssignmentSpec, SubscribedMembers, by_subscribers
from coordinator.group.consumer.partitions import Target, TopicIdPartition, in_topic_order


class UniformAssignor:
    """Implements Kafka's ``UniformAssignor``."""

    name = "uniform"

    def assign(self, spec: AssignmentSpec) -> Mapping[str, Target]:
        sharing = _Sharing(spec)
        kinds = by_subscribers(spec)
        for kind in kinds:
            sharing.hand_out(kind)
        while any([sharing.level(kind) for kind in kinds]):
            pass
        return sharing.targets()


class _Sharing:
    """An assignment that is being computed: by member and topic, the partitions that it keeps, oldest first, and those
    that it gets."""

    def __init__(self, spec: AssignmentSpec) -> None:
        self._topics = spec.topics
        self._owned: dict[str, dict[bytes, list[int]]] = {name: {} for name in sorted(spec.members)}
        self._given: dict[str, dict[bytes, list[int]]] = {name: {} for name in self._owned}
        self._load = dict.fromkeys(self._owned, 0)
        self._taken: set[TopicIdPartition] = set()
        for name in self._owned:
            self._keep(name, spec.members[name].topics, spec.members[name].target)

    def _keep(self, name: str, subscribed: frozenset[bytes], target: Iterable[TopicIdPartition]) -> None:
        for partition in target:
            topic_id, number = partition
            topic = self._topics.get(topic_id)
            if topic is None or number >= topic.partitions or topic_id not in subscribed or partition in self._taken:
                continue
            self._taken.add(partition)
            self._owned[name].setdefault(topic_id, []).append(number)
            self._load[name] += 1

    def _give(self, name: str, topic_id: bytes, number: int) -> None:
        self._given[name].setdefault(topic_id, []).append(number)
        self._load[name] += 1

    def hand_out(self, kind: SubscribedMembers) -> None:
        """Gives each free partition of these topics to the member with the fewest."""
        least = [(self._load[name], name) for name in kind.members]
        heapq.heapify(least)
        for topic_id in kind.topic_ids:
            for number in range(self._topics[topic_id].partitions):
                if TopicIdPartition(topic_id, number) not in self._taken:
                    load, name = least[0]
                    self._give(name, topic_id, number)
                    heapq.heapreplace(least, (load + 1, name))

    def level(self, kind: SubscribedMembers) -> bool:
        """Moves partitions of these topics from members with the most to members with the fewest; returns whether any
        moved."""
        least = [(self._load[name], name) for name in kind.members]
        heapq.heapify(least)
        most = [(-self._load[name], name) for name in kind.members if self._has_any(name, kind)]
        heapq.heapify(most)
        moved = False
        while most:
            (negative, giver), (low, taker) = most[0], least[0]
            if low != self._load[taker]:
                heapq.heapreplace(least, (self._load[taker], taker))
                continue
            if -negative != self._load[giver]:
                heapq.heapreplace(most, (-self._load[giver], giver))
                continue
            if -negative - low < 2:
                break
            self._move(giver, taker, kind)
            moved = True
            heapq.heapreplace(least, (low + 1, taker))
            if self._has_any(giver, kind):
                heapq.heapreplace(most, (negative + 1, giver))
            else:
                heapq.heappop(most)
        return moved

    def _has_any(self, name: str, kind: SubscribedMembers) -> bool:
        return any(self._count(name, topic_id) for topic_id in kind.topic_ids)

    def _count(self, name: str, topic_id: bytes) -> int:
        return len(self._owned[name].get(topic_id, ())) + len(self._given[name].get(topic_id, ()))

    def _move(self, giver: str, taker: str, kind: SubscribedMembers) -> None:
        topic_id = max(kind.topic_ids, key=lambda each: self._count(giver, each))
        given = self._given[giver].get(topic_id)
        number = given.pop() if given else self._owned[giver][topic_id].pop()
        self._load[giver] -= 1
        self._give(taker, topic_id, number)

    def targets(self) -> Mapping[str, Target]:
        return {name: in_topic_order(self._partitions(name)) for name in self._owned}

    def _partitions(self, name: str) -> Iterator[TopicIdPartition]:
        for topic_id, numbers in self._owned[name].items():
            yield from (TopicIdPartition(topic_id, number) for number in numbers)
        for topic_id, numbers in self._given[name].items():
            yield from (TopicIdPartition(topic_id, number) for number in sorted(numbers))
