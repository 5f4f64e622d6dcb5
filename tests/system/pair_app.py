"""The versions of the pair of tests/upgrades that ``PAIR`` numbers."""

from __future__ import annotations

import os

from tests.upgrades.judging import compared
from tests.upgrades.pairs import pair
from tests.upgrades.programs import build
from topology.graph.topology import Topology

PAIR = pair(int(os.environ.get("PAIR", "0")))


def old() -> Topology:
    return build(PAIR.old, "old").topology


def new() -> Topology:
    return build(PAIR.new, "new", epoch=compared(PAIR).epoch_needed).topology
