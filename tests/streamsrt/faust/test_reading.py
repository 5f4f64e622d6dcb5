"""What an application declares: names, settings, and one message for what is not supported."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from streamsrt.errors import ConfigError, UserError
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

import streamsrt.faust  # noqa: E402
from streamsrt.faust import TestApp  # noqa: E402
from streamsrt.faust.reading import called, topics_of  # noqa: E402


async def nothing(stream: Any) -> None:
    """An agent that only reads."""
    async for _ in stream:
        pass


def test_topics_tables_and_changelogs_have_the_names_that_faust_gives_them() -> None:
    app = an_app(version=2)
    app.Table("totals", default=int)
    app.agent(app.topic("orders", "returns"))(nothing)
    app.agent(name="shop.unnamed")(nothing)
    topology = streamsrt.faust.topology(app)
    (part,) = topology.subtopologies
    assert streamsrt.faust.config(app)["application.id"] == "shop-v2"
    assert sorted(part.source_topics) == ["orders", "returns", "shop-v2-shop.unnamed"]
    assert [spec.name for spec in part.stores] == ["totals"]
    assert any(node.name == "shop.unnamed" for node in part.nodes)


def test_agents_without_tables_are_assigned_one_by_one() -> None:
    app = an_app()
    app.agent(app.topic("orders"), name="a")(nothing)
    app.agent(app.topic("returns"), name="b")(nothing)
    assert len(streamsrt.faust.topology(app).subtopologies) == 2


def test_the_topics_that_faust_would_create() -> None:
    app = an_app(topic_partitions=3, topic_replication_factor=1)
    out = app.topic("out", partitions=5, compacting=True, retention=60)
    app.agent(app.topic("orders"), sink=[out])(nothing)
    found = {each.name: each for each in topics_of(app)}
    assert {name: each.partitions for name, each in found.items()} == {"orders": 3, "out": 5}
    assert found["out"].configs == {"cleanup.policy": "compact", "retention.ms": "60000"}


def test_settings_are_taken_over() -> None:
    app = an_app(broker_commit_interval=0.5, producer_linger=0.02, consumer_auto_offset_reset="latest")
    assert streamsrt.faust.config(app) == {
        "application.id": "shop",
        "bootstrap.servers": "localhost:9092",
        "processing.guarantee": "at_least_once",
        "commit.interval.ms": 500,
        "linger.ms": 20,
        "auto.offset.reset": "latest",
        "deserialization.exception.handler": "continue",
        "processing.exception.handler": "continue",
    }
    exact = faust.App("shop", broker="kafka://a:1;kafka://b:2", processing_guarantee="exactly_once")
    found = streamsrt.faust.config(exact)
    assert (found["processing.guarantee"], found["bootstrap.servers"]) == ("exactly_once_v2", "a:1,b:2")
    assert "commit.interval.ms" not in found
    assert found["linger.ms"] == 0, "as faust does: an event that is sent waits for nobody"


def test_what_runs_beside_the_agents_is_looked_after_often() -> None:
    app = an_app()
    app.timer(1.0)(nothing)
    assert "poll.ms" not in streamsrt.faust.config(app)
    app.timer(0.05)(nothing)
    assert streamsrt.faust.config(app)["poll.ms"] == 10
    app = an_app()
    app.task(nothing)
    assert streamsrt.faust.config(app)["poll.ms"] == 10


def test_credentials_are_for_the_runtime_to_have() -> None:
    app = an_app(broker_credentials=faust.SASLCredentials(username="u", password="p", mechanism="PLAIN"))
    with pytest.raises(ConfigError, match=r"Set security\.protocol"):
        streamsrt.faust.config(app)


answering: Any = None
"""An agent, as modules of users have them."""


async def asking(stream: Any) -> None:
    """An agent that asks the other one."""
    async for value in stream:
        await answering.ask(value)


def _asking(app: faust.App) -> None:
    sys.modules[__name__].answering = app.agent(app.topic("questions"), name="answering")(nothing)
    app.agent(app.topic("numbers"))(asking)


HERE = r"\S*test_reading\.py:\d+"


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (_asking, rf"answering.ask \({HERE}\) in agent .*asking"),
        (lambda app: app.web_server(object), "@app.web_server of shop"),
        (lambda app: app.SetTable("t", on_changelog_event=print), "on_changelog_event= of table t"),
        (lambda app: app.Table("t", use_partitioner=True), "use_partitioner=True of table t"),
    ],
)
def test_what_is_not_supported_is_one_message_at_the_start(declare: Any, message: str) -> None:
    app = an_app()
    app.agent(app.topic("orders"), name="plain")(nothing)
    declare(app)
    with pytest.raises(UserError, match=rf"{message}.* is not supported by streamsrt\.faust: .+\. docs.faust.md lists"):
        streamsrt.faust.topology(app)


def test_an_application_without_agents_and_what_is_none_at_all() -> None:
    with pytest.raises(UserError, match="has no agent"):
        streamsrt.faust.topology(an_app())
    with pytest.raises(UserError, match=r"runs a faust\.App, not 3"):
        streamsrt.faust.topology(3)


def test_two_agents_of_one_name_are_refused_with_both_lines() -> None:
    app = an_app()
    for name in ("orders", "returns"):

        @app.agent(app.topic(name))
        async def take(stream: Any) -> None:
            async for _ in stream:
                """Nothing."""

    with pytest.raises(UserError, match=r"two agents are called \S*take \(\S*py:\d+, \S*py:\d+\): .* another name"):
        streamsrt.faust.topology(app)


def test_an_agent_that_is_declared_again_is_no_other() -> None:
    app = an_app()

    def declare() -> None:
        @app.agent(app.topic("orders"))
        async def take(stream: Any) -> None:
            async for _ in stream:
                """Nothing."""

    declare()
    declare()
    assert len(streamsrt.faust.topology(app).subtopologies) == 1


def test_a_name_that_is_never_assigned_is_no_reason_not_to_start() -> None:
    app = an_app()

    def declare(with_more: bool) -> None:
        @app.agent(app.topic("in"))
        async def read(stream: Any) -> None:
            async for value in stream:
                if value:
                    await more.send(value=value)

        if with_more:
            more = app.topic("more")

    declare(False)
    with TestApp(app) as test:
        test.send("in", value=0)


def test_the_line_of_a_call_is_a_number() -> None:
    def reads(stream: Any) -> None:
        stream.group_by(len)

    assert list(called(reads)) == [("group_by", reads.__code__.co_firstlineno + 1)]
