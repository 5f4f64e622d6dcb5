"""What all of them share: where the broker is, and how their names end."""

import os
from typing import Any

import faust

SIDE = os.environ.get("SIDE", "here")


def make_app(name: str, **options: Any) -> faust.App:
    """An App with the settings of a test."""
    given: dict[str, Any] = {
        "broker": "kafka://" + os.environ.get("BROKER", "localhost:9092"),
        "web_enabled": False,
        "topic_partitions": 2,
        "topic_replication_factor": 1,
        "topic_disable_leader": True,
        "broker_commit_interval": 0.2,
        "stream_wait_empty": False,
        "datadir": f"data-{name}-{SIDE}",
    }
    return faust.App(f"{name}-{SIDE}", **{**given, **options})


def named(topic: str) -> str:
    """The name of a topic of this side."""
    return f"{topic}-{SIDE}"
