"""DescribeConfigs and IncrementalAlterConfigs for topics, the broker and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from coordinator.broker.broker import Answer, Broker, Handler, Request
from coordinator.broker.config_definitions import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigType,
    InvalidConfigError,
    Value,
)
from coordinator.broker.topics import Topic, TopicRefusedError
from coordinator.group.config import BROKER_SETTINGS
from coordinator.log import LogError
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.schema import ApiKey
from streamsrt.wire.types import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC, BROKER, GROUP = 2, 4, 32
_DYNAMIC_TOPIC, _STATIC_BROKER, _DEFAULT, _DYNAMIC_GROUP = 1, 4, 5, 8
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3

_Row = DescribeConfigsResponse.DescribeConfigsResourceResult


def config_source(broker: Broker, topic: Topic, key: str) -> int:
    """Where a topic's setting comes from, as DescribeConfigs and CreateTopics number it."""
    if key in topic.configs:
        return _DYNAMIC_TOPIC
    definition = TOPIC_CONFIGS[key]
    return _DEFAULT if broker.topics.defaults[key] == definition.default else _STATIC_BROKER


def handle_describe_configs(broker: Broker, request: Request) -> DescribeConfigsResponse:
    message: DescribeConfigsRequest = request.message
    synonyms = message.include_synonyms
    return DescribeConfigsResponse(
        results=[_describe(broker, resource, synonyms=synonyms) for resource in message.resources]
    )


def _describe(
    broker: Broker, resource: DescribeConfigsRequest.DescribeConfigsResource, *, synonyms: bool
) -> DescribeConfigsResponse.DescribeConfigsResult:
    result = DescribeConfigsResponse.DescribeConfigsResult(
        error_code=0,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    try:
        rows = _rows_of(broker, resource.resource_type, resource.resource_name, synonyms=synonyms)
    except TopicRefusedError as refused:
        result.error_code, result.error_message = refused.error_code, str(refused)
        return result
    wanted = set(resource.configuration_keys or ())
    result.configs = [row for row in rows if not wanted or row.name in wanted]
    return result


def _rows_of(broker: Broker, resource_type: int, name: str, *, synonyms: bool) -> list[_Row]:
    if resource_type == TOPIC:
        topic = broker.topics.get(name)
        if topic is None:
            raise TopicRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        return _topic_rows(broker, topic, synonyms=synonyms)
    if resource_type == BROKER:
        if name not in {"", str(broker.node_id)}:
            raise TopicRefusedError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker.node_id} but received {name}"
            )
        return _broker_rows(broker.configs) + _coordinator_rows(broker.groups.broker_configs)
    if resource_type == GROUP:
        return [
            _row(key, ConfigType.STRING, text, _DYNAMIC_GROUP if own else _DEFAULT)
            for key, text, own in broker.groups.describe_group_configs(name)
        ]
    raise TopicRefusedError(
        ErrorCode.INVALID_REQUEST, f"Configurations of resource type {resource_type} are not kept by this broker."
    )


def _topic_rows(broker: Broker, topic: Topic, *, synonyms: bool) -> list[_Row]:
    rows = []
    for key, value in sorted(broker.topics.effective_configs(topic).items()):
        definition = TOPIC_CONFIGS[key]
        row = _row(key, definition.type, definition.render(value), config_source(broker, topic, key))
        if synonyms:
            row.synonyms = _synonyms(broker, topic, key, row)
        rows.append(row)
    return rows


def _synonyms(
    broker: Broker, topic: Topic, key: str, row: _Row
) -> list[DescribeConfigsResponse.DescribeConfigsSynonym]:
    """Where the value comes from, and what would be used without it."""
    definition = TOPIC_CONFIGS[key]
    default = broker.topics.defaults[key]
    found = []
    if key in topic.configs:
        found.append(
            DescribeConfigsResponse.DescribeConfigsSynonym(name=key, value=row.value, source=row.config_source)
        )
    if definition.broker_key is not None:
        found.append(
            DescribeConfigsResponse.DescribeConfigsSynonym(
                name=definition.broker_key,
                value=definition.render(default),
                source=_DEFAULT if default == definition.default else _STATIC_BROKER,
            )
        )
    return found


def _coordinator_rows(given: Mapping[str, str]) -> list[_Row]:
    """The group coordinator's settings."""
    rows = []
    for key, setting in sorted(BROKER_SETTINGS.items()):
        value = given.get(key, setting.default)
        kind = ConfigType.INT if isinstance(setting.default, int) else ConfigType.STRING
        text = None if value is None else str(value)
        rows.append(_row(key, kind, text, _STATIC_BROKER if key in given else _DEFAULT, read_only=True))
    return rows


def _broker_rows(configs: Mapping[str, Value]) -> list[_Row]:
    rows = []
    for key, definition in sorted(BROKER_CONFIGS.items()):
        value = configs.get(key, definition.default)
        source = _DEFAULT if value == definition.default else _STATIC_BROKER
        rows.append(_row(key, definition.type, definition.render(value), source, read_only=True))
    return rows


def _row(name: str, kind: ConfigType, value: str | None, source: int, *, read_only: bool = False) -> _Row:
    return _Row(
        name=name,
        value=value,
        read_only=read_only,
        config_source=source,
        is_sensitive=False,
        synonyms=[],
        config_type=kind,
        documentation=None,
    )


def handle_incremental_alter_configs(broker: Broker, request: Request) -> Answer:
    message: IncrementalAlterConfigsRequest = request.message
    seen = Counter((resource.resource_type, resource.resource_name) for resource in message.resources)
    answer = IncrementalAlterConfigsResponse(responses=[])
    for resource in message.resources:
        result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
            error_code=0,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        answer.responses.append(result)
        try:
            if seen[resource.resource_type, resource.resource_name] > 1:
                raise TopicRefusedError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if len({change.name for change in resource.configs}) < len(resource.configs):
                raise TopicRefusedError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
            _alter(broker, resource, validate_only=message.validate_only)
        except TopicRefusedError as refused:
            result.error_code, result.error_message = refused.error_code, str(refused)
        except InvalidConfigError as error:
            result.error_code, result.error_message = ErrorCode.INVALID_CONFIG, str(error)
        except LogError as error:
            result.error_code, result.error_message = error.error_code, str(error)
    return broker.acknowledged(answer)


def _alter(
    broker: Broker, resource: IncrementalAlterConfigsRequest.AlterConfigsResource, *, validate_only: bool
) -> None:
    if resource.resource_type == GROUP:
        changes = {}
        for change in resource.configs:
            if change.config_operation not in {_SET, _DELETE}:
                raise TopicRefusedError(ErrorCode.INVALID_REQUEST, f"{change.name} is not a list: give SET or DELETE.")
            if change.config_operation == _SET and change.value is None:
                raise TopicRefusedError(ErrorCode.INVALID_REQUEST, f"Null value not supported for {change.name}.")
            changes[change.name] = change.value if change.config_operation == _SET else None
        broker.groups.alter_group_configs(resource.resource_name, changes, validate_only=validate_only)
        return
    if resource.resource_type != TOPIC:
        raise TopicRefusedError(
            ErrorCode.INVALID_REQUEST,
            "Settings of the broker are given at its start (--config, --properties); only topics' and groups' can change.",
        )
    topic = broker.topics.get(resource.resource_name)
    if topic is None:
        raise TopicRefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{resource.resource_name}' does not exist."
        )
    configs = dict(topic.configs)
    for change in resource.configs:
        _apply_change(broker, topic, configs, change)
    if validate_only:
        broker.topics.check_configs(configs)
    else:
        broker.topics.set_configs(topic, configs)


def _apply_change(
    broker: Broker, topic: Topic, configs: dict[str, str], change: IncrementalAlterConfigsRequest.AlterableConfig
) -> None:
    key, operation = change.name, change.config_operation
    if operation == _DELETE:
        configs.pop(key, None)
        return
    if change.value is None:
        raise TopicRefusedError(ErrorCode.INVALID_REQUEST, f"Null value not supported for {key}.")
    if operation == _SET:
        configs[key] = change.value
        return
    definition = TOPIC_CONFIGS.get(key)
    if operation not in {_APPEND, _SUBTRACT}:
        raise TopicRefusedError(ErrorCode.INVALID_REQUEST, f"Config operation {operation} is unknown.")
    if definition is None or definition.type != ConfigType.LIST:
        raise TopicRefusedError(ErrorCode.INVALID_CONFIG, f"{key} is not a list: APPEND and SUBTRACT don't apply.")
    current = definition.parse(configs[key]) if key in configs else broker.topics.effective_configs(topic)[key]
    assert isinstance(current, tuple)
    given = [part.strip() for part in change.value.split(",")]
    if operation == _APPEND:
        kept = [*current, *(part for part in given if part not in current)]
    else:
        kept = [part for part in current if part not in given]
    configs[key] = ",".join(kept)


HANDLERS: dict[int, Handler] = {
    ApiKey.DESCRIBE_CONFIGS: handle_describe_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: handle_incremental_alter_configs,
}
