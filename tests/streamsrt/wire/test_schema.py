from __future__ import annotations

import pytest

from streamsrt.wire.schema import (
    REQUESTS,
    ApiKey,
    is_flexible,
    message_class,
    message_names,
    message_schema,
    named_class,
    read_field,
    snake_case,
    version_range,
)
from streamsrt.wire.types import FetchRequest, FetchResponse


def test_api_keys_are_those_of_the_table() -> None:
    assert {int(key) for key in ApiKey} == set(REQUESTS)
    for key in ApiKey:
        name = message_class(key, True).NAME.removesuffix("Request")
        assert snake_case(name).upper() == key.name


def test_version_ranges_are_the_stable_ones() -> None:
    assert version_range(ApiKey.STREAMS_GROUP_HEARTBEAT) == (0, 1)
    assert version_range(ApiKey.PRODUCE) == (3, 13)
    assert version_range(ApiKey.FETCH) == (4, 18)
    assert version_range(ApiKey.API_VERSIONS) == (0, 5)
    # Version 6 is in the definitions, but not stable in 4.4.
    assert version_range(ApiKey.INIT_PRODUCER_ID) == (0, 5)
    assert message_schema("InitProducerIdRequest").versions == range(7)


def test_requests_and_responses_have_the_same_versions() -> None:
    for key in ApiKey:
        request, response = message_class(key, True), message_class(key, False)
        assert request.SCHEMA.versions == response.SCHEMA.versions
        assert request.SCHEMA.flexible == response.SCHEMA.flexible
        assert request.API_KEY == response.API_KEY == key
        assert (request.IS_REQUEST, response.IS_REQUEST) == (True, False)


def test_flexible_versions() -> None:
    assert [v for v in range(10) if is_flexible(ApiKey.METADATA, v)] == [9]
    assert not is_flexible(ApiKey.SASL_HANDSHAKE, 1)
    assert is_flexible(ApiKey.STREAMS_GROUP_HEARTBEAT, 0)


def test_classes_are_made_once() -> None:
    assert message_class(1, True) is FetchRequest
    assert message_class(1, False) is FetchResponse


@pytest.mark.parametrize("key", [-1, 4, 999])
def test_unknown_keys_are_key_errors(key: int) -> None:
    with pytest.raises(KeyError):
        version_range(key)
    with pytest.raises(KeyError):
        is_flexible(key, 0)
    with pytest.raises(KeyError):
        message_class(key, True)


def test_unknown_names_are_key_errors() -> None:
    with pytest.raises(KeyError):
        named_class("NoSuchRequest")


def test_a_field_of_the_table() -> None:
    field = read_field("Topics:[]Topic/1-5?2+#3/4-5=null", 7)
    assert (field.attribute, field.element, field.is_array, field.tag) == ("topics", "Topic", True, 3)
    assert (field.versions, field.nullable, field.tagged) == (range(1, 6), range(2, 8), range(4, 6))
    assert field.default is None
    assert read_field("MaxWaitMs:int32=-5", 1).default == -5
    assert read_field("Strict:bool=true", 1).default is True
    with pytest.raises(ValueError, match="not a field"):
        read_field("nonsense", 1)


def test_record_types_are_not_api_keys() -> None:
    schema = message_schema("StreamsGroupTopologyKey")
    assert (schema.kind, schema.api_key, schema.record_type) == ("key", None, 23)
    assert named_class("StreamsGroupTopologyKey").API_KEY is None


def test_what_brokers_say_to_brokers_only_is_left_out() -> None:
    names = message_names()
    assert "StreamsGroupHeartbeatRequest" in names
    assert not {"BrokerHeartbeatRequest", "VoteRequest", "WriteShareGroupStateRequest"} & set(names)
