from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.broker.config_definitions import TOPIC_CONFIGS
from streamsrt.wire import types
from tests.coordinator.broker.in_process import InProcessBroker

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, GROUP = 2, 4, 32

Alteration = types.IncrementalAlterConfigsRequest.AlterConfigsResource
Change = types.IncrementalAlterConfigsRequest.AlterableConfig
Description = types.DescribeConfigsRequest.DescribeConfigsResource


def alter(
    broker: InProcessBroker,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> tuple[int, str | None]:
    request = types.IncrementalAlterConfigsRequest(
        resources=[
            Alteration(
                resource_type=kind,
                resource_name=name,
                configs=[Change(name=key, config_operation=how, value=value) for key, how, value in changes],
            )
        ],
        validate_only=validate_only,
    )
    result = broker.ask(request).responses[0]
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


def describe(
    broker: InProcessBroker, kind: int, name: str, *keys: str, version: int | None = None
) -> dict[str, tuple[str | None, int]]:
    """Key -> value and source."""
    request = types.DescribeConfigsRequest(
        resources=[Description(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)]
    )
    result = broker.ask(request, version).results[0]
    assert result.error_code == 0, result
    return {each.name: (each.value, each.config_source) for each in result.configs}


def replace_all(broker: InProcessBroker, kind: int, name: str, configs: dict[str, str | None]) -> int:
    """The old AlterConfigs."""
    request = types.AlterConfigsRequest
    resource = request.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[request.AlterableConfig(name=key, value=value) for key, value in configs.items()],
    )
    code: int = broker.ask(request(resources=[resource])).responses[0].error_code
    return code


class TestSettingsOfTheBrokerAtRunTime:
    def test_they_hold_at_once_for_topics_and_after_a_restart(self, broker: InProcessBroker) -> None:
        broker.create("t")
        broker.create("own", retention_ms="5")
        assert alter(broker, BROKER, "", ("log.retention.ms", SET, "7000")) == (0, None)
        assert alter(broker, BROKER, "1", ("log.segment.bytes", SET, "2000000")) == (0, None)
        for _ in range(2):
            topics = [broker.broker.topics.get(name) for name in ("t", "own")]
            found = [(t.partitions[0].config.retention_ms, t.partitions[0].config.segment_bytes) for t in topics if t]
            assert found == [(7000, 2_000_000), (5, 2_000_000)]
            assert describe(broker, TOPIC, "t", "retention.ms", "segment.bytes") == {
                "retention.ms": ("7000", 3),
                "segment.bytes": ("2000000", 2),
            }
            assert describe(broker, BROKER, "") == {"log.retention.ms": ("7000", 3)}
            broker.restart()
        assert alter(broker, BROKER, "", ("log.retention.ms", DELETE, None)) == (0, None)
        assert describe(broker, TOPIC, "t", "retention.ms") == {"retention.ms": ("604800000", 5)}

    def test_the_one_of_this_broker_goes_before_the_one_of_all(self, broker: InProcessBroker) -> None:
        alter(broker, BROKER, "", ("log.retention.ms", SET, "1"))
        alter(broker, BROKER, "1", ("log.retention.ms", SET, "2"))
        request = types.DescribeConfigsRequest(
            resources=[Description(resource_type=BROKER, resource_name="1", configuration_keys=["log.retention.ms"])],
            include_synonyms=True,
        )
        (row,) = broker.ask(request).results[0].configs
        assert (row.value, row.read_only) == ("2", False)
        assert [(each.value, each.source) for each in row.synonyms] == [("2", 2), ("1", 3), ("604800000", 5)]

    @pytest.mark.parametrize(
        ("key", "value", "text"),
        [
            ("log.retention.ms", "soon", "Invalid value soon"),
            ("log.retention.mss", "1", "Did you mean log.retention.ms?"),
            ("num.partitions", "2", "Cannot update these configs dynamically"),
        ],
    )
    def test_what_is_refused(self, broker: InProcessBroker, key: str, value: str, text: str) -> None:
        code, message = alter(broker, BROKER, "1", (key, SET, value))
        assert code == 42
        assert text in (message or "")
        assert describe(broker, BROKER, "") == {}

    def test_another_broker(self, broker: InProcessBroker) -> None:
        assert alter(broker, BROKER, "9", ("log.retention.ms", SET, "1"))[0] == 42


class TestTheOldWayOfAltering:
    def test_it_replaces_what_was_set(self, broker: InProcessBroker) -> None:
        broker.create("t", retention_ms="5")
        assert replace_all(broker, TOPIC, "t", {"max.message.bytes": "2000"}) == 0
        assert describe(broker, TOPIC, "t", "retention.ms", "max.message.bytes") == {
            "retention.ms": ("604800000", 5),
            "max.message.bytes": ("2000", 1),
        }

    @pytest.mark.requirement("SG-278")
    def test_groups_and_the_broker(self, broker: InProcessBroker) -> None:
        alter(broker, GROUP, "g", ("streams.num.standby.replicas", SET, "1"))
        assert replace_all(broker, GROUP, "g", {"streams.session.timeout.ms": "50000"}) == 0
        found = describe(broker, GROUP, "g", "streams.num.standby.replicas", "streams.session.timeout.ms")
        assert found == {"streams.num.standby.replicas": ("0", 5), "streams.session.timeout.ms": ("50000", 8)}
        assert replace_all(broker, BROKER, "", {"log.retention.ms": "9"}) == 0
        assert describe(broker, BROKER, "") == {"log.retention.ms": ("9", 3)}

    def test_what_is_refused(self, broker: InProcessBroker) -> None:
        broker.create("t", retention_ms="5")
        assert replace_all(broker, TOPIC, "t", {"retention.ms": None}) == 42
        assert replace_all(broker, TOPIC, "t", {"retention.ms": "x"}) == 40
        assert replace_all(broker, TOPIC, "absent", {}) == 3
        assert replace_all(broker, 8, "1", {}) == 42
        assert describe(broker, TOPIC, "t", "retention.ms") == {"retention.ms": ("5", 1)}


class TestTopics:
    @pytest.mark.parametrize("version", range(1, 5))
    def test_values_and_their_sources(self, tmp_path: Path, version: int) -> None:
        broker = InProcessBroker(tmp_path, {"log.retention.ms": "7000"})
        broker.create("t", cleanup_policy="compact")
        found = describe(broker, TOPIC, "t", version=version)
        assert found["cleanup.policy"] == ("compact", 1)
        assert found["retention.ms"] == ("7000", 4)
        assert found["segment.bytes"] == ("1073741824", 5)
        broker.close()

    def test_only_the_keys_asked_for(self, broker: InProcessBroker) -> None:
        broker.create("t")
        assert set(describe(broker, TOPIC, "t", "retention.ms", "no.such")) == {"retention.ms"}

    def test_synonyms_say_what_would_be_used_instead(self, broker: InProcessBroker) -> None:
        broker.create("t", cleanup_policy="compact")
        request = types.DescribeConfigsRequest(
            resources=[
                Description(
                    resource_type=TOPIC, resource_name="t", configuration_keys=["cleanup.policy", "retention.ms"]
                )
            ],
            include_synonyms=True,
        )
        rows = {
            row.name: [(each.name, each.value, each.source) for each in row.synonyms]
            for row in broker.ask(request).results[0].configs
        }
        assert rows == {
            "cleanup.policy": [("cleanup.policy", "compact", 1), ("log.cleanup.policy", "delete", 5)],
            "retention.ms": [("log.retention.ms", "604800000", 5)],
        }

    def test_set_and_delete_hold_at_once_and_after_a_restart(self, broker: InProcessBroker) -> None:
        broker.create("t")
        assert alter(broker, TOPIC, "t", ("max.message.bytes", SET, "2000")) == (0, None)
        topic = broker.broker.topics.get("t")
        assert topic is not None
        assert topic.partitions[0].config.max_message_bytes == 2000
        broker.restart()
        assert describe(broker, TOPIC, "t", "max.message.bytes") == {"max.message.bytes": ("2000", 1)}
        assert alter(broker, TOPIC, "t", ("max.message.bytes", DELETE, None)) == (0, None)
        assert describe(broker, TOPIC, "t", "max.message.bytes") == {"max.message.bytes": ("1048588", 5)}

    def test_lists_take_append_and_subtract(self, broker: InProcessBroker) -> None:
        broker.create("t")
        assert alter(broker, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == (0, None)
        assert describe(broker, TOPIC, "t", "cleanup.policy") == {"cleanup.policy": ("delete,compact", 1)}
        assert alter(broker, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == (0, None)
        assert describe(broker, TOPIC, "t", "cleanup.policy") == {"cleanup.policy": ("delete,compact", 1)}
        assert alter(broker, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete, other")) == (0, None)
        assert describe(broker, TOPIC, "t", "cleanup.policy") == {"cleanup.policy": ("compact", 1)}
        assert alter(broker, TOPIC, "t", ("cleanup.policy", APPEND, "purge"))[0] == 40

    def test_validate_only_changes_nothing(self, broker: InProcessBroker) -> None:
        broker.create("t")
        assert alter(broker, TOPIC, "t", ("retention.ms", SET, "5"), validate_only=True) == (0, None)
        assert alter(broker, TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True)[0] == 40
        assert describe(broker, TOPIC, "t", "retention.ms") == {"retention.ms": ("604800000", 5)}

    @pytest.mark.parametrize(
        ("change", "code", "text"),
        [
            (("retention.mss", SET, "5"), 40, "Unknown topic config name: retention.mss. Did you mean retention.ms?"),
            (("retention.ms", SET, "1.5"), 40, "not a number of type LONG"),
            (("retention.ms", SET, None), 42, "Null value not supported for retention.ms."),
            (("retention.ms", APPEND, "1"), 40, "not a list"),
            (("no.such", SUBTRACT, "1"), 40, "not a list"),
            (("retention.ms", 9, "1"), 42, "operation 9"),
        ],
    )
    def test_what_is_refused(
        self, broker: InProcessBroker, change: tuple[str, int, str | None], code: int, text: str
    ) -> None:
        broker.create("t")
        found, message = alter(broker, TOPIC, "t", ("segment.ms", SET, "5"), change)
        assert found == code
        assert message is not None
        assert text in message
        assert describe(broker, TOPIC, "t", "segment.ms")["segment.ms"][1] == 5

    def test_resources_and_keys_come_once(self, broker: InProcessBroker) -> None:
        broker.create("t")
        one = Alteration(resource_type=TOPIC, resource_name="t", configs=[])
        answer = broker.ask(types.IncrementalAlterConfigsRequest(resources=[one, one]))
        assert [each.error_code for each in answer.responses] == [42, 42]
        code, message = alter(broker, TOPIC, "t", ("retention.ms", SET, "5"), ("retention.ms", SET, "6"))
        assert (code, message) == (42, "Error due to duplicate config keys")

    def test_what_a_setting_means_is_said_to_those_who_ask(self, broker: InProcessBroker) -> None:
        broker.create("t")
        for kind, name, key in ((TOPIC, "t", "retention.ms"), (BROKER, "1", "log.retention.ms")):
            told = []
            for asked in (True, False):
                resource = Description(resource_type=kind, resource_name=name, configuration_keys=[key])
                request = types.DescribeConfigsRequest(resources=[resource], include_documentation=asked)
                (row,) = broker.ask(request).results[0].configs
                told.append(row.documentation)
            assert told == [TOPIC_CONFIGS["retention.ms"].documentation, None]

    def test_unknown_topics(self, broker: InProcessBroker) -> None:
        assert alter(broker, TOPIC, "t", ("retention.ms", SET, "5")) == (3, "Topic 't' does not exist.")
        request = types.DescribeConfigsRequest(resources=[Description(resource_type=TOPIC, resource_name="t")])
        assert broker.ask(request).results[0].error_code == 3


class TestBroker:
    def test_given_settings_and_defaults(self, tmp_path: Path) -> None:
        broker = InProcessBroker(tmp_path, {"num.partitions": "4", "group.streams.num.standby.replicas": "1"})
        found = describe(broker, BROKER, "1")
        assert found["num.partitions"] == ("4", 4)
        assert found["fetch.max.bytes"] == ("57671680", 5)
        assert found["group.streams.num.standby.replicas"] == ("1", 4)
        assert found["group.streams.session.timeout.ms"] == ("45000", 5)
        assert found["group.streams.assignor.name"] == (None, 5)
        broker.close()

    @pytest.mark.parametrize(("kind", "name"), [(BROKER, "2"), (BROKER, "x"), (8, "1"), (77, "")])
    def test_other_resources(self, broker: InProcessBroker, kind: int, name: str) -> None:
        request = types.DescribeConfigsRequest(resources=[Description(resource_type=kind, resource_name=name)])
        result = broker.ask(request).results[0]
        assert (result.error_code, result.configs) == (42, [])
        assert result.error_message

    def test_it_is_changed_by_a_restart_only(self, broker: InProcessBroker) -> None:
        code, message = alter(broker, BROKER, "1", ("num.partitions", SET, "2"))
        assert code == 42
        assert message is not None
        assert "--config" in message


class TestGroups:
    def test_settings_are_kept_over_a_restart(self, broker: InProcessBroker) -> None:
        assert alter(broker, GROUP, "g", ("streams.num.standby.replicas", SET, "1")) == (0, None)
        assert describe(broker, GROUP, "g", "streams.num.standby.replicas") == {
            "streams.num.standby.replicas": ("1", 8)
        }
        broker.restart()
        assert describe(broker, GROUP, "g")["streams.num.standby.replicas"] == ("1", 8)
        assert describe(broker, GROUP, "h")["streams.num.standby.replicas"] == ("0", 5)
        assert alter(broker, GROUP, "g", ("streams.num.standby.replicas", DELETE, None)) == (0, None)
        broker.restart()
        assert describe(broker, GROUP, "g")["streams.num.standby.replicas"] == ("0", 5)

    @pytest.mark.requirement("CG-144", "CG-145", "CG-224")
    def test_settings_of_a_consumer_group_hold_before_it_is_there(self, broker: InProcessBroker) -> None:
        assert alter(broker, GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "6000")) == (0, None)
        assert describe(broker, GROUP, "g", "consumer.heartbeat.interval.ms") == {
            "consumer.heartbeat.interval.ms": ("6000", 8)
        }
        broker.restart()
        joins = types.ConsumerGroupHeartbeatRequest(
            group_id="g", rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
        )
        answer = broker.ask(joins, 0)
        assert (answer.error_code, answer.heartbeat_interval_ms) == (0, 6000)
        assert answer.member_id
        assert broker.ask(joins, 0).member_id != answer.member_id
        leaves = [
            types.ConsumerGroupHeartbeatRequest(group_id="g", member_id=member.member_id, member_epoch=-1)
            for member in broker.ask(types.ConsumerGroupDescribeRequest(group_ids=["g"])).groups[0].members
        ]
        assert [broker.ask(message).error_code for message in leaves] == [0, 0]
        assert broker.ask(types.DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == 0
        assert describe(broker, GROUP, "g")["consumer.heartbeat.interval.ms"] == ("6000", 8)

    @pytest.mark.parametrize(
        ("change", "code", "text"),
        [
            (("streams.no.such", SET, "1"), 40, "Unknown group config name: streams.no.such"),
            (("streams.num.standby.replicas", SET, "9"), 40, "less than or equal to 2"),
            (("streams.num.standby.replicas", SET, None), 42, "Null value not supported"),
            (("streams.num.standby.replicas", APPEND, "1"), 42, "not a list"),
        ],
    )
    def test_what_is_refused(
        self, broker: InProcessBroker, change: tuple[str, int, str | None], code: int, text: str
    ) -> None:
        found, message = alter(broker, GROUP, "g", change)
        assert found == code
        assert message is not None
        assert text in message

    def test_there_are_none_of_all_groups(self, broker: InProcessBroker) -> None:
        code, text = alter(broker, GROUP, "", ("consumer.session.timeout.ms", SET, "46000"))
        assert (code, text) == (42, "Default group resources are not allowed.")
        request = types.DescribeConfigsRequest(resources=[Description(resource_type=GROUP, resource_name="")])
        assert broker.ask(request).results[0].error_code == 42

    def test_validate_only(self, broker: InProcessBroker) -> None:
        change = ("streams.num.standby.replicas", SET, "1")
        assert alter(broker, GROUP, "g", change, validate_only=True) == (0, None)
        assert describe(broker, GROUP, "g")["streams.num.standby.replicas"] == ("0", 5)
