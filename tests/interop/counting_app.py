"""What ``java/StreamsMember.java`` does, in Python: the same topology, with the same names.

The topics are those of the environment variables COUNTING_INPUT and COUNTING_OUTPUT. ``in_more_partitions``: with another
number of partitions of the counts.
"""

from __future__ import annotations

import os

from topology import StreamsBuilder, Topology, serdes


def _counting(partitions: int | None) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(os.environ["COUNTING_INPUT"], key=serdes.string, value=serdes.string)
    if partitions is None:
        grouped = words.group_by(lambda _, value: value, name="by-value", key=serdes.string, value=serdes.string)
    else:
        by_value = words.select_key(lambda _, value: value).repartition(
            name="by-value", partitions=partitions, key=serdes.string, value=serdes.string
        )
        grouped = by_value.group_by_key()
    counts = grouped.count(store="counts").to_stream().map_values(str)
    counts.to(os.environ["COUNTING_OUTPUT"], key=serdes.string, value=serdes.string)
    return builder.build()


topology = _counting(None)
in_more_partitions = _counting(6)
