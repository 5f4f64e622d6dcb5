"""A run has a share of many cases, the next one another; long tests stand where each worker begins."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.run_order import long_first, of_this_run

MODULE = """
import pytest

@pytest.mark.share(4)
@pytest.mark.parametrize("first", range(100))
def test_shared(first): ...

@pytest.mark.parametrize("first", [0, *(pytest.param(part, marks=pytest.mark.share(2)) for part in range(1, 11))])
def test_partly_shared(first): ...

@pytest.mark.kafka
@pytest.mark.parametrize("number", range(5))
def test_on_kafka(number): ...

@pytest.mark.spark
@pytest.mark.parametrize("number", range(3))
def test_on_spark(number): ...

@pytest.mark.slow
@pytest.mark.parametrize("number", range(6))
def test_slow(number): ...
"""


class Collected:
    """A plugin that keeps what another run of pytest in this process collects."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.items = list(items)


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[pytest.Item]:
    folder = tmp_path_factory.mktemp("order")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  share\n  kafka\n  spark\n  slow\n")
    (folder / "test_shares.py").write_text(MODULE)
    found = Collected()
    without = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:terminal", "--import-mode=importlib")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_ADDOPTS", raising=False)
        code = pytest.main(["--collect-only", *without, "--rootdir", str(folder), str(folder)], plugins=[found])
    assert code == pytest.ExitCode.OK
    assert len(found.items) == 125
    return found.items


def names(items: list[pytest.Item]) -> list[str]:
    return [item.name for item in items]


def test_a_run_has_every_fourth_case_and_the_runs_together_all(items: list[pytest.Item]) -> None:
    seen = Counter[str]()
    for seed in range(40):
        kept = names(of_this_run(items, seed))
        seen.update(kept)
        shared = [int(name[12:-1]) for name in kept if name.startswith("test_shared")]
        assert shared == list(range(shared[0], 100, 4))
        assert sum(name.startswith("test_partly_shared") for name in kept) == 1 + 5
    assert set(seen) == set(names(items))
    assert seen["test_partly_shared[0]"] == 40


def test_a_seed_has_its_share_in_whatever_order_the_items_are(items: list[pytest.Item]) -> None:
    assert set(names(of_this_run(items, 7))) == set(names(of_this_run(items[::-1], 7)))


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_long_tests_stand_where_each_worker_begins(items: list[pytest.Item], workers: int) -> None:
    found = long_first(items, workers)
    assert sorted(names(found)) == sorted(names(items))
    starts, left = [0], len(items)
    for remaining in range(workers, 1, -1):  # as pytest-xdist divides them
        starts.append(starts[-1] + left // remaining)
        left -= left // remaining
    parts = [names(found)[start:end] for start, end in zip(starts, [*starts[1:], len(items)], strict=True)]
    for part in parts:
        is_short = ["shared" in name for name in part]
        assert is_short == sorted(is_short)
        assert is_short[-1]
    kinds = [{name.partition("[")[0] for name in part if "shared" not in name} for part in parts]
    assert [number for number, of_part in enumerate(kinds) if "test_on_kafka" in of_part] == [workers - 1]
    assert [number for number, of_part in enumerate(kinds) if "test_on_spark" in of_part] == [0]
    assert all("test_slow" in of_part for of_part in kinds[:-1])
