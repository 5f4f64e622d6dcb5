"""What a state directory says of the version of state that was installed in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamsrt.backfill.installation import install_bundles
from streamsrt.backfill.plan import BackfillPlan, StoreRepair
from streamsrt.runtime.topology_version import LocalVersion
from topology import StreamsBuilder, serdes
from topology.graph.outline import outline
from topology.graph.topology import Topology

ANOTHER = "{}"
REPAIR = StoreRepair(store="counts", committed={})


def counting() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string).group_by_key().count(store="counts")
    return builder.build()


def installed(folder: Path, repair: StoreRepair | None, *, says: str | None = None, is_known: bool = True) -> Path:
    """The file that says which version it is, after an installation in a directory where it said this."""
    plan = BackfillPlan(
        application="shop:topology",
        application_id="shop",
        code_digest="",
        version="1",
        topology_digest=counting().digest,
        outline=json.loads(json.dumps(outline(counting()).to_json())) if is_known else {},
        repair=repair,
        created_ms=1,
    ).sealed()
    file = folder / "shop" / "topology.json"
    if says is not None:
        file.parent.mkdir(parents=True)
        file.write_text(says, encoding="utf-8")
    # What is in the plan's file is the same.
    again = BackfillPlan.model_validate_json(plan.model_dump_json())
    assert again.fingerprint == again.computed_fingerprint()
    assert install_bundles(folder, again, [], {}, folder) == 0
    return file


@pytest.mark.parametrize("says", [None, ANOTHER])
def test_state_of_a_whole_application_is_of_its_version(tmp_path: Path, says: str | None) -> None:
    file = installed(tmp_path, None, says=says)
    assert LocalVersion(file.parent, counting()).has_run


def test_a_repaired_store_leaves_the_version_of_the_others(tmp_path: Path) -> None:
    assert installed(tmp_path, REPAIR, says=ANOTHER).read_text(encoding="utf-8") == ANOTHER


def test_where_no_state_was_a_repaired_store_is_of_its_version(tmp_path: Path) -> None:
    assert LocalVersion(installed(tmp_path, REPAIR).parent, counting()).has_run


def test_a_store_that_an_upgrade_adds_is_not_of_the_version_that_still_runs(tmp_path: Path) -> None:
    assert not installed(tmp_path, REPAIR.model_copy(update={"beside": True})).exists()


def test_a_plan_of_an_earlier_release_does_not_know_it(tmp_path: Path) -> None:
    assert not installed(tmp_path, None, is_known=False).exists()
