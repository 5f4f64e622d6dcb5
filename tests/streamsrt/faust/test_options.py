"""Every setting of faust's, and every parameter of what declares: honoured, without a counterpart, or refused."""

from __future__ import annotations

import inspect
import logging
import re
import ssl
from pathlib import Path
from typing import Any

import pytest

from streamsrt.errors import UserError
from tests.streamsrt.faust.apps import an_app, counting
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402
from faust.agents.agent import Agent  # noqa: E402
from faust.tables.base import Collection  # noqa: E402

import streamsrt.faust  # noqa: E402
from streamsrt.config import StreamsConfig  # noqa: E402
from streamsrt.faust.options import HONOURED, MAPPED, REFUSED, WITHOUT_EFFECT  # noqa: E402

DOCS = Path(streamsrt.__file__).parent.parent / "docs" / "faust.md"
PARAMETERS = {
    faust.App.topic: """
        topics pattern schema key_type value_type key_serializer value_serializer partitions retention compacting deleting
        replicas acks internal config maxsize allow_empty has_prefix loop
    """,
    Collection.__init__: """
        app name default store schema key_type value_type partitions window changelog_topic help on_recover
        on_changelog_event recovery_buffer_size standby_buffer_size extra_topic_configs recover_callbacks options
        use_partitioner on_window_close is_global synchronize_all_active_partitions kwargs
    """,
    faust.App.Table: "name default window partitions help kwargs",
    faust.App.GlobalTable: "name default window partitions help synchronize_all_active_partitions kwargs",
    faust.App.SetTable: "name window partitions start_manager help kwargs",
    faust.App.SetGlobalTable: "name window partitions start_manager help kwargs",
    faust.App.agent: "channel name concurrency supervisor_strategy sink isolated_partitions use_reply_headers kwargs",
    Agent.__init__: """
        fun app name channel concurrency sink on_error supervisor_strategy help schema key_type value_type
        isolated_partitions use_reply_headers kwargs
    """,
}
"""Each was looked at: those that are not honoured are refused (``reading``), or say how faust's worker does its work."""


def test_each_setting_of_faust_is_dealt_with_once() -> None:
    kinds = (HONOURED, set(MAPPED), WITHOUT_EFFECT, set(REFUSED))
    assert sum(map(len, kinds)) == len(set().union(*kinds))
    assert set().union(*kinds) == set(faust.Settings.SETTINGS)


@pytest.mark.parametrize("function", PARAMETERS, ids=lambda function: str(function.__qualname__))
def test_no_parameter_is_new(function: Any) -> None:
    assert set(inspect.signature(function).parameters) - {"self"} == set(PARAMETERS[function].split())


def test_the_page_has_each_setting() -> None:
    words = set(re.findall(r"`(\w+)`", DOCS.read_text()))
    assert {*HONOURED, *MAPPED, *WITHOUT_EFFECT, *REFUSED} <= words


def test_settings_of_the_runtime_come_of_what_is_set() -> None:
    app = an_app(
        broker_client_id="me",
        broker_heartbeat_interval=1.5,
        broker_max_poll_interval=60.0,
        broker_request_timeout=20.0,
        broker_session_timeout=30,
        consumer_group_instance_id="one",
        consumer_max_fetch_size=200_000,
        consumer_metadata_max_age_ms=5000,
        producer_compression_type="gzip",
        producer_max_request_size=2_000_000,
        table_standby_replicas=1,
    )
    counting(app)
    found, plain = streamsrt.faust.config(app), streamsrt.faust.config(an_app())
    assert {key: value for key, value in found.items() if key not in plain} == {
        "client.id": "me",
        "heartbeat.interval.ms": 1500,
        "max.poll.interval.ms": 60_000,
        "request.timeout.ms": 20_000,
        "session.timeout.ms": 30_000,
        "group.instance.id": "one",
        "max.partition.fetch.bytes": 200_000,
        "metadata.max.age.ms": 5000,
        "compression.type": "gzip",
        "max.request.size": 2_000_000,
        "num.standby.replicas": 1,
    }
    assert StreamsConfig.of(found).session_timeout_ms == 30_000


def test_a_configuration_object_and_the_environment_set_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    app = an_app()
    app.config_from_object({"broker_session_timeout": 30.0})
    monkeypatch.setenv("PRODUCER_COMPRESSION_TYPE", "lz4")
    found = streamsrt.faust.config(app)
    assert (found["session.timeout.ms"], found["compression.type"]) == (30_000, "lz4")


class Own(faust.Agent):
    """An agent that does something else."""


REFUSALS: list[tuple[str, Any]] = [
    ("Agent", Own),
    ("broker_consumer", "kafka://elsewhere:9092"),
    ("broker_producer", "kafka://elsewhere:9092"),
    ("broker_credentials", faust.SASLCredentials(username="u", password="p", mechanism="PLAIN")),
    ("cache", "redis://localhost"),
    ("ssl_context", ssl.create_default_context()),
    ("store", "aerospike://localhost"),
]


@pytest.mark.parametrize(("name", "value"), REFUSALS)
def test_what_would_change_results_or_security_is_one_message(name: str, value: Any) -> None:
    app = an_app(**{name: value})
    counting(app)
    for start in (streamsrt.faust.topology, streamsrt.faust.config):
        with pytest.raises(UserError, match=rf"^shop: {name}= is not supported by streamsrt\.faust: \w+"):
            start(app)


def test_faust_s_defaults_and_the_usual_stores_are_taken() -> None:
    app = an_app(store="rocksdb://", ssl_context=None, broker_consumer="kafka://localhost:9092", Agent=faust.Agent)
    counting(app)
    assert streamsrt.faust.topology(app)


def test_what_has_no_effect_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    app = an_app(stream_wait_empty=False, producer_acks=1, worker_redirect_stdouts=None)
    with caplog.at_level(logging.INFO, "streamsrt.faust.options"):
        streamsrt.faust.config(app)
    assert [each.getMessage() for each in caplog.records] == [
        "shop: these settings of its faust.App have no counterpart in streamsrt, and no effect: producer_acks, "
        "stream_wait_empty",
        "shop: records are sent with acks=all, which an idempotent producer needs",
    ]


async def _read(stream: Any) -> None:
    async for _ in stream:
        pass


@pytest.mark.parametrize("kind", [bool, list, faust.Record])
def test_a_type_that_faust_can_not_read_is_refused(kind: Any) -> None:
    for declare, where in (
        (lambda app: app.Table("rows", value_type=kind), "of table rows"),
        (lambda app: app.agent(app.topic("typed", value_type=kind))(_read), "of topic typed of agent .*_read"),
    ):
        app = an_app()
        counting(app)
        declare(app)
        with pytest.raises(UserError, match=rf"^value_type={kind!r} {where}.* is not supported .* Leave it out"):
            streamsrt.faust.topology(app)


def test_a_topic_without_acknowledgements_is_refused() -> None:
    app = an_app()
    app.agent(app.topic("in", acks=False))(_read)
    with pytest.raises(UserError, match=r"^acks=False of topic in of agent .*_read .*noack"):
        streamsrt.faust.topology(app)


def test_a_table_in_a_store_elsewhere_is_refused() -> None:
    app = an_app()
    counting(app)
    app.Table("far", store="aerospike://localhost")
    with pytest.raises(UserError, match=r"^store='aerospike://localhost' of table far"):
        streamsrt.faust.topology(app)
