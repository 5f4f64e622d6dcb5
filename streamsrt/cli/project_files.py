"""The files of a new project, as ``streamsrt init`` writes them.

``{name}`` is the name of the project and of its application, ``{module}`` that of its package, ``{kafka}`` the image of
Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

KAFKA_IMAGE = "apache/kafka:4.1.0"

_README = """\
# {name}

A stream-processing application. It counts the events of each user.

    pip install -e '.[test]'
    python -m pytest                                # without a broker
    streamsrt broker &                              # a broker for development; its data is in .streamsrt/
    streamsrt topics create {name}-events {name}-counts --partitions 4
    printf 'ann=login\\nben=login\\nann=logout\\n' | streamsrt produce {name}-events --key-separator =
    streamsrt run {module}.app:topology -a {name} --until quiet
    streamsrt consume {name}-counts --value long

`docker compose up --build` runs the application with Apache Kafka. Commands on this machine, and nobody else, reach it at
127.0.0.1:29092:

    streamsrt topics list -b 127.0.0.1:29092

| file | what is in it |
| --- | --- |
| `{module}/app.py` | the topology and its settings |
| `tests/test_app.py` | tests without a broker |
| `topology.lock` | the deployed topology; update it with `streamsrt topology lock` after a change |
| `Dockerfile` | a production image: two-stage, non-root |
| `compose.yaml` | the application with Apache Kafka, on one machine |
| `.github/workflows/test.yml` | tests and the image, for each commit |
"""

_APP = '''\
"""Counts the events of each user."""

from topology import StreamsBuilder, serdes

EVENTS, COUNTS = "{name}-events", "{name}-counts"

config = {
    "processing.guarantee": "exactly_once_v2",
    "group.protocol": "auto",
}

builder = StreamsBuilder()
(
    builder.stream(EVENTS, key=serdes.string, value=serdes.string)
    .filter(lambda user, event: user is not None)
    .group_by_key()
    .count(store="events-per-user")
    .to_stream()
    .to(COUNTS, key=serdes.string, value=serdes.long)
)
topology = builder.build()
'''

_TESTS = '''\
"""The application without a broker."""

from pathlib import Path

from streamsrt import TopologyTestDriver
from streamsrt.testing.topology_lock import assert_topology_locked
from topology import serdes

from {module}.app import COUNTS, EVENTS, topology

LOCK = Path(__file__).parent.parent / "topology.lock"


def test_events_are_counted_by_user():
    with TopologyTestDriver(topology) as driver:
        events = driver.create_input_topic(EVENTS, serdes.string, serdes.string)
        counts = driver.create_output_topic(COUNTS, serdes.string, serdes.long)
        for user in ("ann", "ben", "ann"):
            events.pipe_input(user, "login")
        assert counts.read_key_values_to_list() == [("ann", 1), ("ben", 1), ("ann", 2)]


def test_events_without_a_user_are_dropped():
    with TopologyTestDriver(topology) as driver:
        events = driver.create_input_topic(EVENTS, serdes.string, serdes.string)
        events.pipe_input(None, "login")
        assert driver.create_output_topic(COUNTS, serdes.string, serdes.long).is_empty


def test_counts_survive_a_restart():
    with TopologyTestDriver(topology) as driver:
        events = driver.create_input_topic(EVENTS, serdes.string, serdes.string)
        events.pipe_input("ann", "login")
        driver.restart()
        events.pipe_input("ann", "login")
        assert driver.get_key_value_store("events-per-user").get("ann") == 2


def test_a_changed_topology_is_a_new_version():
    """If this fails: `streamsrt topology lock {module}.app:topology` says what happens to the state."""
    assert_topology_locked(topology, LOCK)
'''

_PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["streamsrt[http]"]

[project.optional-dependencies]
test = ["pytest>=8"]

[tool.setuptools]
packages = ["{module}"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
"""

_DOCKERFILE = """\
FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /app
COPY pyproject.toml ./
COPY {module} {module}
RUN /app/bin/pip install --no-cache-dir .

FROM python:3.13-slim
RUN useradd --system --uid 10001 app && install --directory --owner app /state
WORKDIR /app
COPY --from=build /app /app
COPY topology.lock ./
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
VOLUME /state
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["streamsrt"]
CMD ["run", "{module}.app:topology", "-a", "{name}", "--lock", "topology.lock", \\
    "--state-dir", "/state", "--http", "0.0.0.0:8080"]
"""

_DOCKERIGNORE = """\
.git
.streamsrt
.venv
**/__pycache__
"""

_COMPOSE = """\
services:
  kafka:
    image: {kafka}
    ports: ["127.0.0.1:29092:29092"]
    environment:
      KAFKA_NODE_ID: 1
      KAFKA_PROCESS_ROLES: broker,controller
      KAFKA_LISTENERS: INSIDE://:9092,OUTSIDE://:29092,CONTROLLER://:9093
      KAFKA_ADVERTISED_LISTENERS: INSIDE://kafka:9092,OUTSIDE://127.0.0.1:29092
      KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT
      KAFKA_INTER_BROKER_LISTENER_NAME: INSIDE
      KAFKA_CONTROLLER_LISTENER_NAMES: CONTROLLER
      KAFKA_CONTROLLER_QUORUM_VOTERS: 1@kafka:9093
      KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR: 1
      KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR: 1
      KAFKA_TRANSACTION_STATE_LOG_MIN_ISR: 1
      KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS: 0
    healthcheck:
      test: ["CMD", "/opt/kafka/bin/kafka-topics.sh", "--bootstrap-server", "kafka:9092", "--list"]
      interval: 5s
      timeout: 20s
      retries: 12

  topics:
    build: .
    command: ["topics", "create", "{name}-events", "{name}-counts", "--partitions", "4", "--if-not-exists"]
    environment:
      STREAMSRT_BOOTSTRAP_SERVERS: kafka:9092
    depends_on:
      kafka:
        condition: service_healthy

  app:
    build: .
    restart: unless-stopped
    stop_grace_period: 60s # to finish a batch, commit and close the stores
    environment:
      STREAMSRT_BOOTSTRAP_SERVERS: kafka:9092
    ports: ["127.0.0.1:8080:8080"]
    volumes: ["state:/state"]
    depends_on:
      topics:
        condition: service_completed_successfully

volumes:
  state:
"""

_WORKFLOW = """\
name: test
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    strategy:
      matrix:
        python: ["3.11", "3.12", "3.13", "3.14"]
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: ${{ matrix.python }}
          cache: pip
      - run: pip install -e '.[test]'
      - run: python -m pytest
      - run: streamsrt topology lock {module}.app:topology --check

  image:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: docker build --tag {name} .
      - run: docker run --rm {name} topology describe {module}.app:topology
"""

_GITIGNORE = """\
.streamsrt/
.venv/
__pycache__/
*.egg-info/
build/
"""

FILES: Mapping[str, str] = MappingProxyType(
    {
        "README.md": _README,
        "{module}/__init__.py": "",
        "{module}/app.py": _APP,
        "tests/test_app.py": _TESTS,
        "pyproject.toml": _PYPROJECT,
        "Dockerfile": _DOCKERFILE,
        ".dockerignore": _DOCKERIGNORE,
        "compose.yaml": _COMPOSE,
        ".github/workflows/test.yml": _WORKFLOW,
        ".gitignore": _GITIGNORE,
    }
)


def files_of(name: str) -> dict[str, str]:
    """The texts of a project's files by their paths."""
    values = {"{name}": name, "{module}": module_of(name), "{kafka}": KAFKA_IMAGE}
    return {_filled(path, values): _filled(text, values) for path, text in FILES.items()}


def module_of(name: str) -> str:
    """The package of a project."""
    return name.replace("-", "_")


def _filled(text: str, values: Mapping[str, str]) -> str:
    for key, value in values.items():
        text = text.replace(key, value)
    return text
