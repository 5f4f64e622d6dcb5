"""What a plan says of its cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsrt.cli.upgrade.plan import AgreedPlan
from streamsrt.errors import ConfigError


def plan(servers: str | None, cluster_id: str | None) -> AgreedPlan:
    return AgreedPlan("shop", 0, 1, "digest", (), servers, cluster_id)


@pytest.mark.parametrize(
    ("made_with", "given"),
    [
        (("a:1", "one"), ("b:2", "one")),
        ((None, "one"), ("b:2", "one")),
        (("a:1", None), ("a:1", "one")),
        (("a:1, b:2", None), ("b:2,a:1", None)),
        ((None, None), (None, "one")),
    ],
)
def test_the_same_cluster(made_with: tuple[str | None, str | None], given: tuple[str | None, str | None]) -> None:
    plan(*made_with).check_cluster(Path("plan.json"), *given)


@pytest.mark.parametrize(
    ("made_with", "given"),
    [(("a:1", "one"), ("a:1", "two")), (("a:1", None), ("b:2", "two")), (("a:1", "one"), ("b:2", None))],
)
def test_another_cluster(made_with: tuple[str | None, str | None], given: tuple[str | None, str | None]) -> None:
    with pytest.raises(ConfigError, match=r"plan plan.json was made for another cluster \(a:1\) than [ab]:\d"):
        plan(*made_with).check_cluster(Path("plan.json"), *given)
