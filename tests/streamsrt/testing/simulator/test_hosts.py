"""Hosts that are killed."""

from __future__ import annotations

import gc
import random
import warnings

from streamsrt.testing.simulator.hosts import Host
from streamsrt.testing.simulator.loop import VirtualLoop


def test_nobody_is_warned_of_what_a_killed_host_had_yet_to_begin() -> None:
    async def work() -> None:
        raise AssertionError

    loop = VirtualLoop(0.0)  # type: ignore[abstract]
    host = Host("a", random.Random(1))
    host.context.run(loop.create_task, work())
    host.kill()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        host.tasks.clear()
        loop.close()
        del loop, host
        gc.collect()
    assert told == []
