"""Another version of ``examples.flights``, whose delays are those of charter flights, too.

It reads ``charters`` beside ``departures`` into the same store. So its tasks are other tasks than those of the version
before, with the same state: instances that run the old version keep each partition until a new one is warm.
"""

from __future__ import annotations

from examples import flights
from topology import StreamsBuilder

CHARTERS = "charters"

builder = StreamsBuilder()
flights.add_delays_per_hour(builder, CHARTERS)
topology = builder.build()
