"""``streamsrt state repartition``: what it shows, when it refuses, and what it leaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.backfill.repartition.counted_app import topic_of
from tests.streamsrt.backfill.repartition.written import Record, Written, written
from tests.streamsrt.cli.conftest import Command

RECORDS: list[Record] = [(b"key-%d" % number, b"12345678", 1_000, ()) for number in range(30)]
NAME = "typed"


@pytest.fixture
def raised(bundled_broker: BundledBroker) -> Iterator[Written]:
    with written(bundled_broker.bootstrap_servers, NAME) as made:
        topic = topic_of(NAME)
        made.create({topic: 2, made.changelog: 2})
        made.write_by_key(made.changelog, 2, RECORDS)
        made.write_by_key(topic, 2, RECORDS)
        made.commit(made.ends(topic))
        made.raise_counts({topic: 5})
        yield made


def test_it_is_shown_before_it_is_done(on_broker: Command, raised: Written) -> None:
    words = ("state", "repartition", f"tests.streamsrt.backfill.repartition.counted_app:{NAME}", "-a")
    shown = on_broker(*words, raised.application_id, "--json")
    (row,) = shown.rows
    moves = row.pop("moves")
    assert row == {
        "store": "counts",
        "changelog": raised.changelog,
        "partitions": 2,
        "needed": 5,
        "rows": 30,
    }
    assert (shown.code, 0 < moves < 30, "nothing is changed" in shown.err) == (0, True, True)
    raised.write_by_key(topic_of(NAME), 2, RECORDS)
    refused = on_broker(*words, raised.application_id, "--execute")
    assert refused.code == 12
    assert refused.out.splitlines()[0].split() == ["STORE", "CHANGELOG", "PARTITIONS", "NEEDED", "ROWS", "MOVES"]
    assert "refused: " in refused.err
    told = on_broker(*words, raised.application_id, "--json").rows[-1]
    assert "are not processed yet" in told["refused"][0]
    raised.commit(raised.ends(topic_of(NAME)))
    done = on_broker(*words, raised.application_id, "--execute")
    assert (done.code, f"{moves} rows moved" in done.err) == (0, True)
    assert f"application {raised.application_id} can be started" in done.err
    again = on_broker(*words, raised.application_id)
    assert (again.code, again.out, "there is nothing to repartition" in again.err) == (0, "", True)
    nobody = on_broker(*words, "nosuch")
    assert (nobody.code, "no such group: nosuch" in nobody.err) == (2, True)
