"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs for topics, the broker and groups.

1. Each resource has an answer of its own. To alter one twice in a request, or one of its keys twice, is refused.
2. Both ways of altering replace what is set for the resource itself, in one step: a refused value changes nothing.
3. A description names where each value comes from, the one in force first. Passwords are never shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TypeVar

from coordinator.broker.broker import Answer, Broker, Handler, Request
from coordinator.broker.broker_configs import (
    ALL_BROKERS,
    DEFAULT,
    DYNAMIC_DEFAULT_BROKER,
    DYNAMIC_KEYS,
    DYNAMIC_TOPIC,
    STATIC_BROKER,
)
from coordinator.broker.config_definitions import BROKER_CONFIGS, TOPIC_CONFIGS, ConfigType, Definition
from coordinator.broker.slices import in_steps
from coordinator.broker.topics import Topic, TopicRefusedError
from coordinator.group.config import BROKER_SETTINGS
from coordinator.group.settings import InvalidConfigError
from coordinator.log import LogError
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.schema import ApiKey, Message
from streamsrt.wire.types import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC, BROKER, GROUP = 2, 4, 32
_DYNAMIC_GROUP = 8
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3

_Row = DescribeConfigsResponse.DescribeConfigsResourceResult
_Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


def topic_origins(broker: Broker, topic: Topic, key: str) -> list[_Synonym]:
    """Returns the sources of a topic's setting: the value in effect first, then those that would be used without it."""
    definition = TOPIC_CONFIGS[key]
    found = []
    if key in topic.configs:
        text = definition.render(definition.parse(topic.configs[key]))
        found.append(_Synonym(name=key, value=text, source=DYNAMIC_TOPIC))
    if definition.broker_key is None:
        return [*found, _Synonym(name=key, value=definition.render(definition.default), source=DEFAULT)]
    return found + _broker_origins(broker, definition.broker_key)


def _broker_origins(broker: Broker, key: str) -> list[_Synonym]:
    return [_Synonym(name=key, value=text, source=source) for source, text in broker.configs.origins(key)]


def handle_describe_configs(broker: Broker, request: Request) -> DescribeConfigsResponse:
    message: DescribeConfigsRequest = request.message
    synonyms = message.include_synonyms
    results = [_describe(broker, resource, synonyms=synonyms) for resource in message.resources]
    if not message.include_documentation:
        for row in (row for result in results for row in result.configs):
            row.documentation = None
    return DescribeConfigsResponse(results=results)


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
        return _topic_rows(broker, _known_topic(broker, name), synonyms=synonyms)
    if resource_type == BROKER:
        _check_node(broker, name)
        if not name:
            return _cluster_rows(broker, synonyms=synonyms)
        return _broker_rows(broker, synonyms=synonyms) + _coordinator_rows(broker.groups.broker_configs)
    if resource_type == GROUP:
        _check_group(name)
        return [
            _group_row(broker, key, text, own=own, synonyms=synonyms)
            for key, text, own in broker.groups.describe_group_configs(name)
        ]
    raise TopicRefusedError(
        ErrorCode.INVALID_REQUEST, f"Configurations of resource type {resource_type} are not kept by this broker."
    )


def _topic_rows(broker: Broker, topic: Topic, *, synonyms: bool) -> list[_Row]:
    return [
        _row_of(TOPIC_CONFIGS[key], topic_origins(broker, topic, key), synonyms=synonyms)
        for key in sorted(broker.topics.effective_configs(topic))
    ]


def _row_of(definition: Definition, origins: list[_Synonym], *, synonyms: bool, read_only: bool = False) -> _Row:
    first = origins[0]
    row = _row(definition.key, definition.type, first.value, first.source, read_only=read_only)
    row.synonyms = origins if synonyms else []
    if definition.type == ConfigType.PASSWORD:
        row.is_sensitive, row.value = True, None
        row.synonyms = [_Synonym(name=each.name, value=None, source=each.source) for each in row.synonyms]
    row.documentation = definition.documentation or None
    return row


def _coordinator_rows(given: Mapping[str, str]) -> list[_Row]:
    """Returns the group coordinator's settings."""
    rows = []
    for key, setting in sorted(BROKER_SETTINGS.items()):
        value = given.get(key, setting.default)
        kind = ConfigType.INT if isinstance(setting.default, int) else ConfigType.STRING
        text = None if value is None else str(value)
        rows.append(_row(key, kind, text, STATIC_BROKER if key in given else DEFAULT, read_only=True))
    return rows


def _broker_rows(broker: Broker, *, synonyms: bool) -> list[_Row]:
    return [
        _row_of(definition, _broker_origins(broker, key), synonyms=synonyms, read_only=key not in DYNAMIC_KEYS)
        for key, definition in sorted(BROKER_CONFIGS.items())
    ]


def _cluster_rows(broker: Broker, *, synonyms: bool) -> list[_Row]:
    """Returns the run-time settings for all brokers: Kafka describes nothing else of the cluster itself."""
    return [
        _row_of(BROKER_CONFIGS[key], [_Synonym(name=key, value=text, source=DYNAMIC_DEFAULT_BROKER)], synonyms=synonyms)
        for key, text in sorted(broker.configs.dynamic(ALL_BROKERS).items())
    ]


def _group_row(broker: Broker, key: str, text: str, *, own: bool, synonyms: bool) -> _Row:
    """Returns a setting of a group; the broker has one of the same meaning for all groups, with ``group.`` before its
    name."""
    origins = [_Synonym(name=key, value=text, source=_DYNAMIC_GROUP)] if own else []
    broker_key = f"group.{key}"
    setting, given = BROKER_SETTINGS.get(broker_key), broker.groups.broker_configs
    if broker_key in given:
        origins.append(_Synonym(name=broker_key, value=given[broker_key], source=STATIC_BROKER))
    if setting is not None and setting.default is not None:
        origins.append(_Synonym(name=broker_key, value=str(setting.default), source=DEFAULT))
    numeric = setting is not None and isinstance(setting.default, int)
    row = _row(key, ConfigType.INT if numeric else ConfigType.STRING, text, origins[0].source if origins else DEFAULT)
    row.synonyms = origins if synonyms else []
    return row


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


# ----------------------------------------------------------------------------------------------------------- changing

_Resource = IncrementalAlterConfigsRequest.AlterConfigsResource | AlterConfigsRequest.AlterConfigsResource

Resource = TypeVar(
    "Resource", IncrementalAlterConfigsRequest.AlterConfigsResource, AlterConfigsRequest.AlterConfigsResource
)
Result = TypeVar(
    "Result",
    IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
    AlterConfigsResponse.AlterConfigsResourceResponse,
)


def handle_incremental_alter_configs(broker: Broker, request: Request) -> Answer:
    message: IncrementalAlterConfigsRequest = request.message

    def alter(resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> None:
        own = _own_settings(broker, resource)
        changed = dict(own)
        for change in resource.configs:
            _apply_change(broker, resource, changed, change)
        _set(broker, resource, own, changed, validate_only=message.validate_only)

    kind = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return _alter_each(broker, message.resources, alter, IncrementalAlterConfigsResponse, kind)


def handle_alter_configs(broker: Broker, request: Request) -> Answer:
    """Handles AlterConfigs: the given settings replace all of the resource's own."""
    message: AlterConfigsRequest = request.message

    def alter(resource: AlterConfigsRequest.AlterConfigsResource) -> None:
        own = _own_settings(broker, resource)
        given = {config.name: config.value for config in resource.configs if config.value is not None}
        if len(given) < len(resource.configs):
            nulls = ",".join(config.name for config in resource.configs if config.value is None)
            raise TopicRefusedError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {nulls}")
        _set(broker, resource, own, given, validate_only=message.validate_only)

    kind = AlterConfigsResponse.AlterConfigsResourceResponse
    return _alter_each(broker, message.resources, alter, AlterConfigsResponse, kind)


def _alter_each(
    broker: Broker,
    resources: Sequence[Resource],
    alter: Callable[[Resource], None],
    response: Callable[..., Message],
    kind: Callable[..., Result],
) -> Answer:
    """Changes the settings of each resource. ``response``, ``kind``: the classes of the response and of its entries."""

    def carry_out() -> Generator[None, None, Message]:
        seen = Counter((yield from in_steps((each.resource_type, each.resource_name) for each in resources)))
        attempts = (_attempt(kind, seen, resource, alter) for resource in resources)
        return response(responses=(yield from in_steps(attempts, 1)))

    return broker.acknowledged(broker.carried_out(carry_out(), len(resources)))


def _attempt(
    kind: Callable[..., Result], seen: Counter[tuple[int, str]], resource: Resource, alter: Callable[[Resource], None]
) -> Result:
    """Returns the response for one resource."""
    result = kind(
        error_code=0, error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        if seen[resource.resource_type, resource.resource_name] > 1:
            raise TopicRefusedError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        if len({change.name for change in resource.configs}) < len(resource.configs):
            raise TopicRefusedError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        alter(resource)
    except TopicRefusedError as refused:
        result.error_code, result.error_message = refused.error_code, str(refused)
    except InvalidConfigError as error:
        result.error_code, result.error_message = ErrorCode.INVALID_CONFIG, str(error)
    except LogError as error:
        result.error_code, result.error_message = error.error_code, str(error)
    return result


def _own_settings(broker: Broker, resource: _Resource) -> dict[str, str]:
    """Returns the resource's own settings. Raises TopicRefusedError if the resource does not exist."""
    name = resource.resource_name
    if resource.resource_type == GROUP:
        _check_group(name)
        return {key: value for key, value, own in broker.groups.describe_group_configs(name) if own}
    if resource.resource_type == BROKER:
        _check_node(broker, name)
        return broker.configs.dynamic(name)
    if resource.resource_type == TOPIC:
        return dict(_known_topic(broker, name).configs)
    raise TopicRefusedError(
        ErrorCode.INVALID_REQUEST,
        f"Configurations of resource type {resource.resource_type} are not kept by this broker.",
    )


def _check_node(broker: Broker, name: str) -> None:
    if name not in {ALL_BROKERS, str(broker.node_id)}:
        raise TopicRefusedError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker.node_id} but received {name}"
        )


def _check_group(name: str) -> None:
    """Refuses settings of all groups: they are the broker's."""
    if not name:
        raise TopicRefusedError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")


def _known_topic(broker: Broker, name: str) -> Topic:
    topic = broker.topics.get(name)
    if topic is None:
        raise TopicRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
    return topic


def _set(
    broker: Broker, resource: _Resource, own: Mapping[str, str], wanted: Mapping[str, str], *, validate_only: bool
) -> None:
    """Replaces the resource's own settings."""
    name = resource.resource_name
    if resource.resource_type == GROUP:
        changes: dict[str, str | None] = {**dict.fromkeys(own), **wanted}
        broker.groups.alter_group_configs(name, changes, validate_only=validate_only)
    elif resource.resource_type == BROKER:
        try:
            broker.set_configs(name, wanted, validate_only=validate_only)
        except InvalidConfigError as error:
            raise TopicRefusedError(ErrorCode.INVALID_REQUEST, str(error)) from None
    elif validate_only:
        broker.topics.check_configs(wanted)
    else:
        broker.topics.set_configs(_known_topic(broker, name), wanted)


def _apply_change(
    broker: Broker,
    resource: IncrementalAlterConfigsRequest.AlterConfigsResource,
    configs: dict[str, str],
    change: IncrementalAlterConfigsRequest.AlterableConfig,
) -> None:
    key, operation = change.name, change.config_operation
    if operation == _DELETE:
        configs.pop(key, None)
        return
    if operation not in {_SET, _APPEND, _SUBTRACT}:
        raise TopicRefusedError(ErrorCode.INVALID_REQUEST, f"Config operation {operation} is unknown.")
    if change.value is None:
        raise TopicRefusedError(ErrorCode.INVALID_REQUEST, f"Null value not supported for {key}.")
    if operation == _SET:
        configs[key] = change.value
        return
    current = _current_list(broker, resource, configs, key)
    given = [part.strip() for part in change.value.split(",")]
    if operation == _APPEND:
        kept = [*current, *(part for part in given if part not in current)]
    else:
        kept = [part for part in current if part not in given]
    configs[key] = ",".join(kept)


def _current_list(
    broker: Broker,
    resource: IncrementalAlterConfigsRequest.AlterConfigsResource,
    configs: Mapping[str, str],
    key: str,
) -> tuple[str, ...]:
    """Returns the value of a list setting to be extended. Raises TopicRefusedError if it is not a list."""
    definition = {TOPIC: TOPIC_CONFIGS, BROKER: BROKER_CONFIGS}.get(resource.resource_type, {}).get(key)
    if definition is None or definition.type != ConfigType.LIST:
        code = ErrorCode.INVALID_REQUEST if resource.resource_type == GROUP else ErrorCode.INVALID_CONFIG
        raise TopicRefusedError(code, f"{key} is not a list: APPEND and SUBTRACT don't apply.")
    if key in configs:
        value = definition.parse(configs[key])
    elif resource.resource_type == TOPIC:
        value = broker.topics.defaults[key]
    else:
        value = broker.configs[key]
    assert isinstance(value, tuple)
    return value


HANDLERS: dict[int, Handler] = {
    ApiKey.DESCRIBE_CONFIGS: handle_describe_configs,
    ApiKey.ALTER_CONFIGS: handle_alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: handle_incremental_alter_configs,
}
