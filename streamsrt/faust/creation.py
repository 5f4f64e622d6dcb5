"""Creates the topics of an application that are missing, as faust does at its start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import NewTopic
from streamsrt.config import StreamsConfig
from streamsrt.errors import ConfigError, RequestFailedError, StreamsError
from streamsrt.faust.program import declared_changelogs, declared_topics
from streamsrt.faust.reading import DeclaredTopic
from streamsrt.runtime.assembly import client_config
from streamsrt.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    import faust

    from streamsrt.client.interface import Administering

_START_TIMEOUT_S = 10.0


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
    finally:
        network.stop()


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
    errors = [str(error) for error in failed.values() if error is not None and not _is_there(error)]
    if errors:
        raise ConfigError("; ".join(errors))


def _is_there(error: StreamsError) -> bool:
    """Another instance that starts at the same time was first."""
    return isinstance(error, RequestFailedError) and error.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
