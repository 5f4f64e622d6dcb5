"""Checks every requirement marker against the list of ids, so that a typing mistake cannot count as coverage."""

from __future__ import annotations

import gc
import signal
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long one example takes says more about the machine, and what else runs on it, than about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = ["tests.fixtures_brokers"]

KNOWN_REQUIREMENTS = {
    line.split()[0]
    for line in (Path(__file__).parent / "requirement_ids.txt").read_text(encoding="utf-8").splitlines()
    if line
}


# Where tests run in the background SIGINT may be ignored, and would be in the programs that they start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run every combination, not only a few of them")
    parser.addoption(
        "--layer",
        choices=LAYERS,
        default="all",
        help="quick: no broker, process or property; test: nothing long; all: everything",
    )


LAYERS = ("quick", "test", "all")
LONG = {"kafka", "long", "slow", "spark"}
"""Markers of what only the whole suite has."""
PROCESSES = {"system"}
BROKERS = {"any_version", "apache_kafka", "bootstrap_servers", "bundled_broker", "on_broker", "scene", "cluster"}
"""Fixtures that start a broker."""
LONG_FOLDERS = {"interop": "other people's clients", "bench": "measurements"}
SLOWER_FOLDERS = {"backfill", "examples", "http", "security", "server", "simulator", "system"}
"""What starts processes or listens, or runs whole applications: the folder's tests are not quick."""


def _is_in(item: pytest.Item, layer: str) -> bool:
    """Whether a test belongs to that layer of the suite."""
    marks = {mark.name for mark in item.iter_markers()}
    folders = set(item.path.relative_to(item.config.rootpath).parts)
    if layer == "all":
        return True
    if marks & LONG or folders & LONG_FOLDERS.keys():
        return False
    fixtures = set(getattr(item, "fixturenames", ()))
    has_examples = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return layer == "test" or not (marks & PROCESSES or fixtures & BROKERS or folders & SLOWER_FOLDERS or has_examples)


def pytest_collection_finish() -> None:
    """Thirteen thousand collected tests live until the end: the garbage collector need not visit them again and again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--full"):
        left_out = [item for item in items if item.get_closest_marker("full") is not None]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.get_closest_marker("full") is None]
    layer = config.getoption("--layer")
    others = [item for item in items if not _is_in(item, layer)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _is_in(item, layer)]
    for item in items:
        for mark in item.iter_markers("requirement"):
            unknown = sorted(set(mark.args) - KNOWN_REQUIREMENTS)
            if unknown or not mark.args:
                raise pytest.UsageError(f"{item.nodeid}: no such requirement: {', '.join(unknown) or '(none given)'}")
