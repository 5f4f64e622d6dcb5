"""The table of Kafka's broker settings against Kafka's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from coordinator.broker.kafka_settings import KAFKA_SETTINGS, ignored_text, kafka_setting
from coordinator.server.settings import read_configs
from tests.fixtures_brokers import require_kafka
from tests.kafka_server import classpath

SOURCE = Path(__file__).parents[2] / "interop" / "java" / "BrokerSettings.java"


@pytest.mark.kafka
def test_the_table_is_that_of_apache_kafka_and_its_defaults_start_this_broker() -> None:
    require_kafka()
    done = subprocess.run(
        ["java", "-cp", classpath(), str(SOURCE)], capture_output=True, text=True, check=True, timeout=300
    )
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert {name: kind for name, kind, _ in rows} == {
        name: definition.type.name for name, definition in KAFKA_SETTINGS.items()
    }
    # No ticket of Kerberos is taken here, so that a file which asks for it does not start a broker without.
    defaults = [f"{name}={text}" for name, _, text in rows if text != "null" and name != "sasl.enabled.mechanisms"]
    configs, groups = read_configs(None, defaults)
    assert (configs["num.partitions"], groups.defaults.session_timeout_ms) == (1, 45_000)


def test_a_setting_of_one_listener_and_those_of_plug_ins_are_kafkas_too() -> None:
    for key in (
        "listener.name.internal.ssl.keystore.location",
        "listener.name.external.scram-sha-512.sasl.jaas.config",
        "config.providers.file.class",
    ):
        assert kafka_setting(key) is not None
    for key in ("listener.name.internal.ssl.keystore.locatoin", "zookeeper.connect", "listeners.name"):
        assert kafka_setting(key) is None


def test_where_it_is_set_here_is_said() -> None:
    assert ignored_text(["num.io.threads", "log.dirs"]) == (
        "settings of Apache Kafka that this broker does not act on: log.dirs (here: --data-dir), num.io.threads"
    )
