"""What ``java/StreamsMember.java`` does, in Python: the same topology, with the same names.

The topics are those of the environment variables COUNTING_INPUT and COUNTING_OUTPUT.
"""

from __future__ import annotations

import os

from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
(
    builder.stream(os.environ["COUNTING_INPUT"], key=serdes.string, value=serdes.string)
    .group_by(lambda _, value: value, name="by-value", key=serdes.string, value=serdes.string)
    .count(store="counts")
    .to_stream()
    .map_values(str)
    .to(os.environ["COUNTING_OUTPUT"], key=serdes.string, value=serdes.string)
)
topology = builder.build()
