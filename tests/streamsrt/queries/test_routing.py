"""Where keys and partitions of stores are."""

from __future__ import annotations

import re

from streamsrt.membership.values import Endpoint
from streamsrt.queries.routing import Routing, StoreDirectory
from streamsrt.queries.values import HostInfo
from topology import Store, StreamsBuilder, serdes


def test_a_store_of_topics_by_pattern_has_their_partitions() -> None:
    counts = {"in-small": 2, "in-large": 8, "other": 16}
    builder = StreamsBuilder()
    for pattern, store in (("in-.*", "counts"), ("other.*", "others")):
        records = builder.stream(re.compile(pattern), key=serdes.string, value=serdes.string)
        records.group_by_key().count(store=Store(store, logging=False))
    routing = Routing(StoreDirectory(builder.build(), "app"), counts.__getitem__)
    one, two = Endpoint("one", 80), Endpoint("two", 80)
    active = frozenset({("in-small", 0), ("in-large", 0), ("other", 0)})
    routing.update({one: (active, frozenset()), two: (frozenset({("in-large", 7)}), frozenset({("in-large", 0)}))})
    assert [routing.partition_count(store) for store in ("counts", "others")] == [8, 16]
    assert routing.key_metadata("counts", "f").partition == 7
    assert routing.key_metadata("counts", "f").active_host == HostInfo("two", 80)
