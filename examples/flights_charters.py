"""Another version of ``examples.flights``, which includes the delays of charter flights.

It reads ``charters`` in addition to ``departures`` into the same store. So its tasks differ from those of the previous
version, but have the same state: instances with the old version keep each partition until a new one is warm.
"""

from __future__ import annotations

from examples import flights
from topology import StreamsBuilder

CHARTERS = "charters"

builder = StreamsBuilder()
flights.add_delays_per_hour(builder, CHARTERS)
topology = builder.build()
