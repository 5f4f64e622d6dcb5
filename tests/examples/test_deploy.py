"""The deployment files: they can be read, and every metric, setting, option and path that they name exists."""

from __future__ import annotations

import configparser
import io
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from streamsrt.app import KafkaStreams
from streamsrt.cli.entry import command_line, run_command_line
from streamsrt.cli.project_files import files_of
from streamsrt.config import StreamsConfig
from streamsrt.http import answers
from streamsrt.runtime.metrics import prometheus_text
from streamsrt.state.kinds import STORES
from tests.fixtures_brokers import ROOT, BundledBroker
from tests.interop.test_other_clients import require
from tests.system.processes import wait_until
from topology import StreamsBuilder, serdes

FOLDER = ROOT / "examples" / "deploy"
LABELS = {"instance", "job"}
"""What Prometheus adds."""
STATE_IDS = {
    f"{where}{kind.metrics_suffix}-state-id".replace("-", "_")
    for where in ("rocksdb", "in-memory", "custom")
    for kind in STORES.values()
}
"""The label with the name of a store has another name for each kind of store."""


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    """By their kinds."""
    return {each["kind"]: each for each in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())}


@pytest.fixture(scope="module")
def container(manifests: dict[str, Any]) -> Any:
    (found,) = manifests["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return found


def commands(container: Any) -> dict[str, list[str]]:
    """The arguments of ``streamsrt`` by the file that has them."""
    dockerfile = (FOLDER / "Dockerfile").read_text().replace("\\\n", "")
    (cmd,) = re.findall(r"^CMD (.*)$", dockerfile, re.MULTILINE)
    return {
        "Dockerfile": json.loads(cmd),
        "kubernetes.yaml": [word for each in container["args"] for word in _split(each)],
        "shop.service": shlex.split(unit()["Service"]["ExecStart"])[1:],
    }


def _split(argument: str) -> list[str]:
    """``--name=value`` as two words."""
    name, separator, value = argument.partition("=")
    return [name, value] if separator and name.startswith("--") else [argument]


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, comment_prefixes="#")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(FOLDER / "shop.service")
    return parser


def settings(words: list[str]) -> dict[str, str]:
    return dict(value.split("=", 1) for name, value in pairwise(words) if name == "--config")


@pytest.mark.parametrize("file", ["Dockerfile", "kubernetes.yaml", "shop.service"])
def test_options_and_settings_exist(container: Any, file: str) -> None:
    words = commands(container)[file]
    group: Any = typer.main.get_command(command_line("run"))
    options = {name for parameter in group.commands["run"].params for name in parameter.opts}
    assert words[:2] == ["run", "shop.app:topology"]
    assert {each for each in words if each.startswith("-")} <= options
    StreamsConfig.of(settings(words), application_id="shop")


def test_the_parts_of_kubernetes_fit(manifests: dict[str, Any], container: Any) -> None:
    spec = manifests["StatefulSet"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["serviceName"] == manifests["Service"]["metadata"]["name"]
    assert manifests["Service"]["spec"]["selector"] == labels
    assert spec["selector"]["matchLabels"] == labels
    assert manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert manifests["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert {each["name"] for each in container["volumeMounts"]} == {
        *(each["name"] for each in spec["template"]["spec"]["volumes"]),
        *(each["metadata"]["name"] for each in spec["volumeClaimTemplates"]),
    }
    env = {each["name"] for each in container["env"]}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))) <= env
    probes = {container[each]["httpGet"]["path"] for each in ("readinessProbe", "livenessProbe")}
    assert probes == {"/readyz", "/healthz"} <= answers.PROBES.keys()
    assert settings(commands(container)["kubernetes.yaml"])["group.instance.id"] == "$(POD_NAME)"


def test_the_zone_is_that_of_the_pod(manifests: dict[str, Any], container: Any) -> None:
    assert settings(commands(container)["kubernetes.yaml"])["client.tag.zone"] == "$(ZONE)"
    (zone,) = (each for each in container["env"] if each["name"] == "ZONE")
    label = "topology.kubernetes.io/zone"
    assert zone["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{label}']"
    (spread,) = manifests["StatefulSet"]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == label
    assert spread["labelSelector"] == manifests["StatefulSet"]["spec"]["selector"]
    assert StreamsConfig.of({"client.tag.zone": ""}, application_id="shop").client_tags == {"zone": ""}


def test_the_grace_for_a_stop_is_what_the_page_says(manifests: dict[str, Any]) -> None:
    seconds = manifests["StatefulSet"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert unit()["Service"]["TimeoutStopSec"] == str(seconds)
    compose = yaml.safe_load(files_of("shop")["compose.yaml"])
    assert compose["services"]["app"]["stop_grace_period"] == f"{seconds}s"
    assert f"Allow {seconds} s." in (ROOT / "docs" / "deployment.md").read_text()


def test_state_and_memory_fit_the_container(container: Any) -> None:
    words = commands(container)["kubernetes.yaml"]
    state = words[words.index("--state-dir") + 1]
    assert state in {each["mountPath"] for each in container["volumeMounts"]}
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi")) << 20
    assert 200_000_000 + 2 * int(settings(words)["cache.max.bytes"]) <= limit, "the rule of docs/deployment.md"


def test_nothing_runs_as_root(manifests: dict[str, Any]) -> None:
    pod = manifests["StatefulSet"]["spec"]["template"]["spec"]
    context = pod["securityContext"]
    assert (context["runAsNonRoot"], context["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    assert pod["automountServiceAccountToken"] is False
    user = context["runAsUser"]
    assert f"\nUSER {user}\n" in (FOLDER / "Dockerfile").read_text()
    assert unit()["Service"]["User"] != "root"


def test_the_unit_is_not_started_again_for_the_users_mistake() -> None:
    service = unit()["Service"]
    assert (service["Restart"], service["RestartPreventExitStatus"], service["KillSignal"]) == (
        "on-failure",
        "2",
        "SIGTERM",
    )


def expressions(file: str) -> Iterator[str]:
    if file == "prometheus-rules.yaml":
        for group in yaml.safe_load((FOLDER / file).read_text())["groups"]:
            for rule in group["rules"]:
                assert rule["labels"]["severity"] in ("warning", "critical")
                assert rule["annotations"]["summary"]
                yield rule["expr"]
        return
    dashboard = json.loads((FOLDER / file).read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in panels:
        yield from (target["expr"] for target in panel["targets"])
    yield from (each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query")


def typed(monkeypatch: pytest.MonkeyPatch, *words: str, stdin: str = "") -> None:
    """One command, in this process."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
    with pytest.raises(SystemExit) as ended:
        run_command_line(words)
    assert not ended.value.code


@pytest.fixture
def exposition(tmp_path: Path, bundled_broker: BundledBroker, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a running application gives to Prometheus."""
    address = bundled_broker.bootstrap_servers
    name = tmp_path.name
    typed(monkeypatch, "topics", "create", f"{name}-in", f"{name}-out", "-b", address)
    typed(monkeypatch, "produce", f"{name}-in", "--key-separator", "=", "-b", address, stdin="a=1\n")
    builder = StreamsBuilder()
    events = builder.stream(f"{name}-in", key=serdes.string, value=serdes.string)
    events.group_by_key().count(store="counts").to_stream().to(f"{name}-out", key=serdes.string, value=serdes.long)
    config = {"application.id": name, "bootstrap.servers": address, "state.dir": str(tmp_path)}
    with KafkaStreams(builder.build(), config) as streams:
        wait_until(lambda: streams.progress.processed_records == 1, "the record is processed")
        return prometheus_text(streams.metrics())


@pytest.fixture
def scraped(exposition: str) -> dict[str, set[str]]:
    """The labels of each metric."""
    found: dict[str, set[str]] = {}
    for line in exposition.splitlines():
        if sample := re.fullmatch(r"(\w+)\{(.*)\} \S+", line):
            found.setdefault(sample[1], set()).update(re.findall(r'(\w+)="', sample[2]))
    return found


def test_every_metric_of_the_dashboard_and_the_alerts_is_there(scraped: dict[str, set[str]]) -> None:
    shown = [each for file in ("prometheus-rules.yaml", "grafana-dashboard.json") for each in expressions(file)]
    assert len(shown) > 20
    for expression in shown:
        named = re.findall(r"\bkafka_\w+", expression)
        assert set(named) <= scraped.keys(), expression
        labels = {
            label for each in re.findall(r"(?:by|without) \(([\w, ]+)\)", expression) for label in each.split(", ")
        }
        labels |= set(re.findall(r"(\w+)=~?\"", expression)) | set(
            re.findall(r"label_values\(\w+, (\w+)\)", expression)
        )
        assert labels - LABELS - STATE_IDS <= set.union(*(scraped[each] for each in named)), expression
        assert not labels & STATE_IDS or labels >= STATE_IDS, "one kind of store is shown by name, others in one sum"


@pytest.fixture(scope="module")
def promtool() -> str:
    require("promtool", "prometheus")
    return "promtool"


def test_the_checker_of_prometheus_takes_the_rules(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", FOLDER / "prometheus-rules.yaml"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "SUCCESS" in done.stdout) == (0, True), done


def test_the_checker_of_prometheus_can_read_the_metrics(promtool: str, exposition: str) -> None:
    """Exit code 3: it reads everything, and would call some of it by other names; Kafka's are kept."""
    done = subprocess.run([promtool, "check", "metrics"], input=exposition, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 3}, done
    assert "error while linting" not in done.stderr


CLIENT = "kafka_streams_stream_metrics"
TASK = "kafka_streams_stream_task_metrics"
THREAD = "kafka_streams_stream_thread_metrics"
MEMORY = "kafka_streams_stream_memory_metrics"
SERIES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "StreamsInstanceStopped": (
        {f'{CLIENT}_client_state{{state="ERROR"}}': "1x60"},
        {f'{CLIENT}_client_state{{state="RUNNING"}}': "1x60", f'{CLIENT}_client_state{{state="ERROR"}}': "0x60"},
    ),
    "StreamsInstanceRebalancing": (
        {f'{CLIENT}_client_state{{state="REBALANCING"}}': "1x60"},
        {f'{CLIENT}_client_state{{state="REBALANCING"}}': "1x20 0x40"},
    ),
    "StreamsNoThreads": (
        {f"{CLIENT}_alive_stream_threads": "2x30 0x30"},
        {f"{CLIENT}_alive_stream_threads": "2x30 1x30"},
    ),
    "StreamsThreadHangs": (
        {f"{THREAD}_last_poll_seconds_ago": "0x50 60+60x10"},
        {f"{THREAD}_last_poll_seconds_ago": "0x50 299x10"},
    ),
    "StreamsNoProgress": (
        {
            f"{TASK}_records_lag": "7x60",
            f"{TASK}_process_total": "500x60",
            f'{TASK}_process_total{{instance="shop-1:8080"}}': "0+100x60",
        },
        {f"{TASK}_records_lag": "7x60", f"{TASK}_process_total": "500+1x60"},
    ),
    "StreamsLagGrows": (
        {f"{TASK}_records_lag": "200000+10x60"},
        {f"{TASK}_records_lag": "200000-10x60"},
    ),
    "StreamsRecordsSkipped": (
        {f"{TASK}_skipped_records_total": "0x50 1x10"},
        {f"{TASK}_skipped_records_total": "1x60"},
    ),
    "StreamsRecordsLate": (
        {f'{TASK}_dropped_records_total{{reason="late"}}': "0+2x60", f"{TASK}_process_total": "0+100x60"},
        {f'{TASK}_dropped_records_total{{reason="late"}}': "0+2x60", f"{TASK}_process_total": "0+1000x60"},
    ),
    "StreamsRestoreTakesLong": (
        {f"{TASK}_restore_remaining_records_total": "1000-1x60"},
        {f"{TASK}_restore_remaining_records_total": "1000x20 0x40"},
    ),
    "StreamsCommitSlow": (
        {f"{THREAD}_commit_latency_max": "20000x60"},
        {f"{THREAD}_commit_latency_max": "900x60"},
    ),
    "StreamsMemoryFull": (
        {f"{MEMORY}_memory_used_bytes": "130x60", f"{MEMORY}_memory_limit_bytes": "100x60"},
        {f"{MEMORY}_memory_used_bytes": "130x60", f"{MEMORY}_memory_limit_bytes": "0x60"},
    ),
    "StreamsStoreErrors": (
        {"kafka_streams_stream_state_metrics_background_errors": "0x30 1x30"},
        {"kafka_streams_stream_state_metrics_background_errors": "0x60"},
    ),
}
"""By alert: what a minute-by-minute hour looks like in which it fires at the end, and one in which it does not."""


def test_alerts_fire_when_they_should_and_only_then(promtool: str, tmp_path: Path) -> None:
    rules = yaml.safe_load((FOLDER / "prometheus-rules.yaml").read_text())["groups"][0]["rules"]
    assert SERIES.keys() == {each["alert"] for each in rules}
    (tmp_path / "hours.yaml").write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(FOLDER / "prometheus-rules.yaml")],
                "evaluation_interval": "1m",
                "tests": [
                    _hour(alert, series, fires)
                    for alert, hours in SERIES.items()
                    for series, fires in zip(hours, (True, False), strict=True)
                ],
            }
        )
    )
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "hours.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _hour(alert: str, series: dict[str, str], fires: bool) -> dict[str, Any]:
    """One test of promtool: whether the alert fires after this hour."""
    shared = 'client_id="shop",application_id="shop"'
    return {
        "interval": "1m",
        "input_series": [
            {"series": f"{name}{{{shared},{_of_an_instance(labels)}}}", "values": values}
            for (name, _, labels), values in ((each.partition("{"), values) for each, values in series.items())
        ],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)',
                "eval_time": "60m",
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
        ],
    }


def _of_an_instance(labels: str) -> str:
    """All instances of an application have the same client id."""
    found = labels.removesuffix("}")
    return found if "instance=" in found else ",".join(filter(None, (found, 'instance="shop-0:8080"')))


def test_what_the_alerts_say_has_labels_that_are_there() -> None:
    text = (FOLDER / "prometheus-rules.yaml").read_text()
    for rule in yaml.safe_load(text)["groups"][0]["rules"]:
        said = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        kept = [set(each.split(", ")) for each in re.findall(r"by \(([\w, ]+)\)", rule["expr"])]
        assert not kept or said <= set.intersection(*kept), rule["alert"]
