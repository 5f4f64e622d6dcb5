"""Every setting of a ``faust.App``, and what becomes of it here.

1. Each name of Faust's own list stands in exactly one of :data:`HONOURED`, :data:`MAPPED`, :data:`WITHOUT_EFFECT` and
   :data:`REFUSED`. A test derives the list from Faust.
2. Only what the program has set counts: in ``App()``, in its configuration object, in the environment. Faust's default
   counts as set only where it becomes a setting of the runtime.
3. What would change results, guarantees or security is never passed over: it is one error at the start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from faust import Settings

from streamsrt.errors import ConfigError
from streamsrt.faust.locations import declared_at

if TYPE_CHECKING:
    import faust

logger = logging.getLogger(__name__)

HONOURED = frozenset(
    [
        "GlobalTable",
        "HttpClient",
        "Monitor",
        "Schema",
        "Serializers",
        "SetGlobalTable",
        "SetTable",
        "Table",
        "Topic",
        "agent_supervisor",
        "autodiscover",
        "broker",
        "broker_commit_interval",
        "canonical_url",
        "consumer_auto_offset_reset",
        "env_prefix",
        "id_format",
        "key_serializer",
        "origin",
        "processing_guarantee",
        "producer_linger",
        "producer_linger_ms",
        "producer_partitioner",
        "reply_create_topic",
        "reply_expires",
        "reply_to",
        "reply_to_prefix",
        "table_cleanup_interval",
        "timezone",
        "topic_allow_declare",
        "topic_partitions",
        "topic_replication_factor",
        "url",
        "value_serializer",
        "version",
        "web",
        "web_application_options",
        "web_bind",
        "web_cors_options",
        "web_enabled",
        "web_graph_enabled",
        "web_host",
        "web_metrics_enabled",
        "web_port",
        "web_router_enabled",
        "web_ssl_context",
        "web_stats_enabled",
        "web_tables_enabled",
        "web_transport",
    ]
)
"""Those that mean here what they mean in Faust."""


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


class Mapped(NamedTuple):
    """A setting of the runtime that one of Faust's becomes."""

    name: str
    convert: Callable[[float], object] = int


MAPPED: Mapping[str, Mapped] = MappingProxyType(
    {
        "broker_client_id": Mapped("client.id", str),
        "broker_heartbeat_interval": Mapped("heartbeat.interval.ms", _ms),
        "broker_max_poll_interval": Mapped("max.poll.interval.ms", _ms),
        "broker_request_timeout": Mapped("request.timeout.ms", _ms),
        "broker_session_timeout": Mapped("session.timeout.ms", _ms),
        "consumer_group_instance_id": Mapped("group.instance.id", str),
        "consumer_max_fetch_size": Mapped("max.partition.fetch.bytes"),
        "consumer_metadata_max_age_ms": Mapped("metadata.max.age.ms"),
        "producer_compression_type": Mapped("compression.type", str),
        "producer_max_request_size": Mapped("max.request.size"),
        "table_standby_replicas": Mapped("num.standby.replicas"),
    }
)

WITHOUT_EFFECT = frozenset(
    [
        "Worker",
        "aerospike_retries_on_exception",
        "aerospike_sleep_seconds_between_retries_on_exception",
        "blocking_timeout",
        "broker_api_version",
        "broker_check_crcs",
        "broker_commit_every",
        "broker_commit_livelock_soft_timeout",
        "broker_max_poll_records",
        "broker_rebalance_timeout",
        "consumer_api_version",
        "consumer_connections_max_idle_ms",
        "crash_app_on_aerospike_exception",
        "cython_optimizations",
        "datadir",
        "debug",
        "logging_config",
        "loghandlers",
        "producer_acks",
        "producer_api_version",
        "producer_connections_max_idle_ms",
        "producer_max_batch_size",
        "producer_metadata_max_age_ms",
        "producer_request_timeout",
        "producer_threaded",
        "recovery_consistency_check",
        "store_check_exists",
        "stream_ack_cancelled_tasks",
        "stream_ack_exceptions",
        "stream_buffer_maxsize",
        "stream_processing_timeout",
        "stream_publish_on_commit",
        "stream_recovery_delay",
        "stream_wait_empty",
        "table_key_index_size",
        "tabledir",
        "topic_disable_leader",
        "web_in_thread",
        "worker_redirect_stdouts",
        "worker_redirect_stdouts_level",
    ]
)
"""Those of how Faust's worker does its work, which are not needed for the same results and guarantees."""

_OF_WORKERS = frozenset(["Worker", "datadir", "logging_config", "loghandlers", "worker_redirect_stdouts_level"])
"""Those that an application has an effect of that ``app.main()`` runs here."""

_ALL_REPLICAS = -1

_RUNS_HERE = "the runtime does this itself, so the class would not be used. Remove it from the App"

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "Agent": "agents are called by the runtime, so its methods would not be. Put that into the agent's function",
        "ConsumerScheduler": "the runtime reads records in the order of their timestamps. Remove it from the App",
        "Event": "events are made by the runtime. Put that into the agent's function",
        "LeaderAssignor": _RUNS_HERE,
        "PartitionAssignor": _RUNS_HERE,
        "Router": "pages are routed by the runtime. Remove it from the App",
        "Stream": "streams are made by the runtime. Use add_processor(), or put that into the agent's function",
        "TableManager": _RUNS_HERE,
        "broker_consumer": "all connections go to broker=. Give that, or bootstrap.servers as a setting of the runtime (-c)",
        "broker_credentials": (
            "they are objects of Faust. Set security.protocol and sasl.* as settings of the runtime (-c or --config-file), "
            "and remove them from the App"
        ),
        "broker_producer": "all connections go to broker=. Give that, or bootstrap.servers as a setting of the runtime (-c)",
        "cache": "pages are cached in memory only. Give memory://, or remove it from the App",
        "ssl_context": (
            "it is an object of Python. Set security.protocol=SSL and ssl.* as settings of the runtime (-c or "
            "--config-file), and remove it from the App"
        ),
        "store": "tables are kept by the runtime. Give memory:// or rocksdb://, or remove it from the App",
    }
)
"""What to do instead. Refused only where the value is not the one that Faust has by default."""

STORES = ("memory", "rocksdb")
"""Both mean stores of one process, which are restored from changelogs."""
_TAKEN = {"cache": ("memory",), "store": STORES}
"""Of settings that are URLs, the schemes that are not refused."""


def check_options(app: faust.App) -> None:
    """Raises ConfigError for a setting whose meaning would be lost here."""
    conf = app.conf
    plain = Settings(conf.name, env={}, broker=conf.broker)
    for name, instead in REFUSED.items():
        value = getattr(conf, name)
        if value == getattr(plain, name) or (name in _TAKEN and value.scheme in _TAKEN[name]):
            continue
        raise ConfigError(f"{conf.id}{declared_at(app)}: {name}= is not supported by streamsrt.faust: {instead}")


def mapped_options(app: faust.App) -> dict[str, object]:
    """The settings of the runtime that come of what the program has set."""
    given = given_options(app)
    return {to.name: to.convert(getattr(app.conf, name)) for name, to in MAPPED.items() if name in given}


def note_options(app: faust.App) -> None:
    """Says once, in the log, what has no effect."""
    idle = WITHOUT_EFFECT & set(given_options(app))
    if getattr(app.conf.Worker, "runs_here", False):
        idle -= _OF_WORKERS
    if idle:
        logger.info(
            "%s: these settings of its faust.App have no counterpart in streamsrt, and no effect: %s",
            app.conf.id,
            ", ".join(sorted(idle)),
        )
    if "producer_acks" in idle and app.conf.producer_acks != _ALL_REPLICAS:
        logger.info("%s: records are sent with acks=all, which an idempotent producer needs", app.conf.id)


def given_options(app: faust.App) -> Collection[str]:
    """The names of those that the program, its configuration object or the environment has set."""
    conf = app.conf
    given = {**app._default_options[1]}
    if app._config_source:
        given.update(app._load_settings_from_source(app._config_source, silent=True))
    named = {name for name, value in given.items() if value is not None}
    return named | {name for name, each in conf.SETTINGS.items() if each.env_name and conf.getenv(each.env_name)}
