"""Whether the logs into which a hand-over has begun to write are still those, and still end where it left them.

Between two attempts anything may happen to them: an operator deletes topics in order to start over, an instance creates them
again. What an attempt has written down says nothing then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamsrt.client.interface import Network
from streamsrt.client.values import LATEST, TopicPartition

_AGAIN = "streamsrt backfill abort --execute, then streamsrt backfill commit again"


def why_lost(
    network: Network,
    internal: Collection[str],
    ids: Mapping[str, str],
    ends: Mapping[TopicPartition, int],
    *,
    may_be_longer: bool = False,
) -> str | None:
    """What is wrong with the logs, and what to do; None if nothing is.

    ``internal``: the application's own topics, which nobody else writes to, unless ``may_be_longer``; ``ids``: of topics, as
    far as they are known; ``ends``: where all was written, the end of each log then.
    """
    names = sorted({*internal, *(topic for topic, _ in ends)})
    there = network.admin.topics(names) if names else {}
    for name in names:
        if name not in there:
            return f"topic {name!r} is gone: {_AGAIN}"
        topic_id = there[name].topic_id
        if any(topic_id) and ids.get(name, topic_id.hex()) != topic_id.hex():
            return f"topic {name!r} was deleted and created again since this hand-over began: {_AGAIN}"
    found = network.admin.list_offsets(dict.fromkeys(ends, LATEST)) if ends else {}
    for (topic, partition), end in ends.items():
        now = found[topic, partition].offset if (topic, partition) in found else 0
        if now < end:
            return (
                f"{topic}-{partition} ends at offset {now}, and this backfill wrote it up to {end}: its last records are "
                f"gone. {_AGAIN}"
            )
        if now > end and topic in internal and not may_be_longer:
            return (
                f"{topic}-{partition} ends at offset {now}, and this backfill wrote it up to {end}: something else writes "
                f"to it. Stop that, then {_AGAIN}"
            )
    return None
