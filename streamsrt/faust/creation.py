"""What an application needs on the cluster before its start: topics that are missing, and the settings of changelogs and of
its group.

Faust lets the broker delete old records from changelogs of windows. Here, records have the time of the event, so the broker
would delete windows that have not expired: such topics become compacted only.

A streams group has one session timeout and one heartbeat interval, which the coordinator knows. Faust's settings of these
become settings of the group. A cluster that refuses them has bounds of its own, or no such groups: the application starts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import NewTopic
from streamsrt.config import StreamsConfig
from streamsrt.errors import ConfigError, StreamsError
from streamsrt.faust.asking import is_there_already
from streamsrt.faust.options import mapped_options
from streamsrt.faust.program import declared_changelogs, declared_topics
from streamsrt.faust.reading import DeclaredTopic
from streamsrt.faust.tables import changelog_of, store_of
from streamsrt.runtime.assembly import client_config
from streamsrt.runtime.group_protocol import decided, look

if TYPE_CHECKING:
    import faust

    from streamsrt.client.interface import Administering

logger = logging.getLogger(__name__)

_POLICY = "cleanup.policy"
_START_TIMEOUT_S = 10.0
_GROUPS_NAME = {
    "session.timeout.ms": "streams.session.timeout.ms",
    "heartbeat.interval.ms": "streams.heartbeat.interval.ms",
}


def create_topics(app: faust.App, config: StreamsConfig) -> None:
    """Creates what is missing, on the cluster of ``config``. Raises StreamsError."""
    own = client_config(config)
    network = NetworkThread(replace(own, client_id=f"{own.client_id}-topics"))
    network.start(timeout_s=_START_TIMEOUT_S)
    try:
        if app.conf.topic_allow_declare:
            create_missing(network.admin, declared_topics(app))
        if any(table.is_global for table in app.tables.values()):
            there = network.admin.topics(None)
            partitions = {name: each.partitions for name, each in there.items()}
            create_missing(network.admin, declared_changelogs(app, partitions))
        compact_windows(network.admin, app)
        set_group_timeouts(network.admin, app, config)
    finally:
        network.stop()


def _is_classic(admin: Administering, config: StreamsConfig) -> bool:
    if config.group_protocol == "auto":
        return decided(look(config.application_id, admin)).protocol == "classic"
    return config.group_protocol == "classic"


def set_group_timeouts(admin: Administering, app: faust.App, config: StreamsConfig) -> None:
    """Gives a streams group the timeouts that the application sets, unless it has them. Raises BrokerError."""
    own = mapped_options(app)
    # What the command line gives overrides it. With group.protocol=streams a configuration has neither of them.
    given = {**own, **config.settings(only_given=True)}
    wanted = {name: str(given[key]) for key, name in _GROUPS_NAME.items() if key in own}
    if not wanted or _is_classic(admin, config):
        return
    try:
        known = admin.describe_group_configs(config.application_id)
        new = {name: value for name, value in wanted.items() if known.get(name) != value}
        if new:
            admin.alter_group_configs(config.application_id, new)
            logger.info("%s: the settings of its group are %s now, as of its faust.App", config.application_id, new)
    except StreamsError as error:
        logger.warning(
            "%s: its group can't have the settings %s, which its faust.App gives: %s. The group's own apply",
            *(config.application_id, wanted, error),
        )


def compact_windows(admin: Administering, app: faust.App) -> None:
    """Lets the broker delete nothing of the changelogs of windows that are there already."""
    wanted = {
        changelog_of(table)
        for table in app.tables.values()
        if table.window is not None and _POLICY not in (store_of(table).changelog_config or {})
    }
    present = sorted(admin.topics(wanted)) if wanted else []
    for name, configs in (admin.describe_topic_configs(present) if present else {}).items():
        if "delete" not in (configs.get(_POLICY) or ""):
            continue
        try:
            admin.alter_topic_configs(name, {_POLICY: "compact"})
            logger.info(
                "%s: %s of its changelog %s was %s, and is compact now", app.conf.id, _POLICY, name, configs[_POLICY]
            )
        except StreamsError as error:
            logger.warning(
                "%s: the broker may delete windows from the changelog %s that have not expired: it refuses %s=compact: %s "
                "Alter the topic with Kafka's tools",
                *(app.conf.id, name, _POLICY, error),
            )


def create_missing(admin: Administering, topics: Sequence[DeclaredTopic]) -> None:
    """Creates those of these topics that are missing. Raises ConfigError."""
    wanted = {topic.name: topic for topic in topics}
    present = admin.topics(wanted)
    missing = [
        NewTopic(
            name=name, partitions=each.partitions, replication_factor=each.replication_factor, configs=each.configs
        )
        for name, each in wanted.items()
        if name not in present
    ]
    failed = admin.create_topics(missing) if missing else {}
    errors = [str(error) for error in failed.values() if error is not None and not is_there_already(error)]
    if errors:
        raise ConfigError("; ".join(errors))
