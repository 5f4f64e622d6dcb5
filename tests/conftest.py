"""Checks every requirement marker against the list of ids, so that a typing mistake cannot count as coverage."""

from __future__ import annotations

import gc
import signal
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.example_budget import halve
from tests.kafka_server import VERSION
from tests.run_order import long_first, of_this_run

# How long one example takes says more about the machine, and what else runs on it, than about the code.
# Nor are examples the same in each run of CI, as hypothesis would have them: its seed says which (tests/example_budget.py).
settings.register_profile("any machine", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = ["tests.fixtures_brokers", "tests.fixtures_native"]

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
        "--group-protocol",
        choices=["streams", "classic"],
        default="streams",
        help="by which applications of the system tests join their groups, where a test says nothing",
    )
    parser.addoption("--kafka-version", default=VERSION, help="which Apache Kafka the tests run over")
    parser.addoption(
        "--layer",
        choices=LAYERS,
        default="all",
        help="quick: no broker, process or property, and some of many cases; test: nothing long; all: everything",
    )


LAYERS = ("quick", "test", "all")
LONG = {"kafka", "long", "slow", "spark"}
"""Markers of what only the whole suite has."""
NOT_QUICK = {"house", "matrix", "system", "waits"}
"""Markers of what starts processes, runs hundreds of whole applications, waits, or reads the whole tree."""
QUICK_CASES = 20
"""How many cases of one test with many parameters are quick; the others differ in data, not in what they look for."""
BROKERS = {"any_version", "apache_kafka", "bootstrap_servers", "bundled_broker", "on_broker", "scene", "cluster"}
"""Fixtures that start a broker."""
LONG_FOLDERS = {"interop": "other people's clients", "bench": "measurements"}
SLOWER_FOLDERS = {"backfill", "examples", "http", "security", "server", "simulator", "system", "upgrades"}
"""What starts processes or listens, or runs whole applications: the folder's tests are not quick."""


OTHER_FOLDERS = {"quick": SLOWER_FOLDERS | LONG_FOLDERS.keys(), "test": set(LONG_FOLDERS), "all": set[str]()}
"""By layer: folders without any test of it."""


def _is_in(item: pytest.Item, layer: str) -> bool:
    """Whether a test belongs to that layer of the suite, as far as its folder does not say so."""
    marks = {mark.name for mark in item.iter_markers()}
    if layer == "all":
        return True
    if marks & LONG:
        return False
    fixtures = set(getattr(item, "fixturenames", ()))
    has_examples = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return layer == "test" or not (marks & NOT_QUICK or fixtures & BROKERS or has_examples)


def _few_cases(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of a test with many cases those that stand at equal distances, so that all kinds of cases are among them."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = set[pytest.Item]()
    for of_one in cases.values():
        step = max(1, -(-len(of_one) // QUICK_CASES))
        kept.update(of_one[::step])
    return [item for item in items if item in kept]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What has no test of the layer is not even imported."""
    below = (
        collection_path.relative_to(config.rootpath).parts if collection_path.is_relative_to(config.rootpath) else ()
    )
    return True if OTHER_FOLDERS[config.getoption("--layer")] & set(below) else None


def pytest_collection() -> None:
    """While tests are collected everything is kept: the garbage collector would find nothing."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Thirteen thousand collected tests live until the end: the garbage collector need not visit them again and again."""
    gc.enable()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--full"):
        left_out = [item for item in items if item.get_closest_marker("full") is not None]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.get_closest_marker("full") is None]
    layer = config.getoption("--layer")
    chosen = [item for item in items if _is_in(item, layer)]
    if layer == "quick":
        chosen = _few_cases(chosen)
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=list(set(items).difference(chosen)))
        items[:] = chosen
    if not config.getoption("--full") and not any("::" in argument for argument in config.args):
        chosen = of_this_run(items, config.getoption("randomly_seed", 0))
        config.hook.pytest_deselected(items=list(set(items).difference(chosen)))
        items[:] = chosen
        halve(items)
    if hasattr(config, "workerinput"):
        items[:] = long_first(items, config.workerinput["workercount"])
    for item in items:
        for mark in item.iter_markers("requirement"):
            unknown = sorted(set(mark.args) - KNOWN_REQUIREMENTS)
            if unknown or not mark.args:
                raise pytest.UsageError(f"{item.nodeid}: no such requirement: {', '.join(unknown) or '(none given)'}")
