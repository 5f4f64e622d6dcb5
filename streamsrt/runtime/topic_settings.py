"""Lets the cluster judge the settings of internal topics, before the group is joined.

A group whose internal topics can't be created would wait for them, and would keep the settings with its topology: the
corrected ones would then be another version. The request creates no topic. Its name is one that no store has, so that
settings are also judged where the topics exist.
"""

from __future__ import annotations

from streamsrt.client.interface import Administering
from streamsrt.client.values import NewTopic
from streamsrt.config import StreamsConfig
from streamsrt.errors import ConfigError, RequestFailedError
from streamsrt.wire.error_codes import ErrorCode

_SUFFIX = "-judged-settings-changelog"
_NAME_MAX = 249


def refuse_topic_settings(config: StreamsConfig, admin: Administering) -> None:
    """Raises ConfigError if the cluster does not know a ``topic.KEY``, or refuses its value, and BrokerError. What the
    cluster refuses for other reasons, such as a missing right, is left to the creation of the topics."""
    if not config.topic_configs:
        return
    name = config.application_id[: _NAME_MAX - len(_SUFFIX)] + _SUFFIX
    asked = [NewTopic(name=name, configs=config.topic_configs)]
    for error in admin.create_topics(asked, validate_only=True).values():
        if isinstance(error, RequestFailedError) and error.error_code == ErrorCode.INVALID_CONFIG:
            given = ", ".join(f"topic.{key}={value}" for key, value in sorted(config.topic_configs.items()))
            said = str(error).partition(": ")[2]
            raise ConfigError(f"the cluster refuses to make internal topics with {given}. It said: {said}")
