"""Converts an application's settings to those of Kafka Streams.

The defaults are Faust's: a record that can't be decoded or processed is logged and skipped. Exception handlers and a
dead letter topic that are set explicitly take precedence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsrt.faust.background import TICK_MS, has_pages
from streamsrt.faust.discovery import discover
from streamsrt.faust.options import check_options, mapped_options, note_options
from streamsrt.faust.timers import timers_of

if TYPE_CHECKING:
    import faust


POLL_MS = 100
"""How often the runtime looks at its clock, unless it is told otherwise."""


def config(app: faust.App) -> dict[str, object]:
    """A Faust application's settings, as settings of ``KafkaStreams`` and ``streamsrt run``. Raises ConfigError."""
    discover(app)
    conf = app.conf
    found, tasks = timers_of(app)
    is_lively = (
        bool(tasks or app._extra_services) or has_pages(app) or any(each.interval_s * 1000 < POLL_MS for each in found)
    )
    check_options(app)
    note_options(app)
    return {
        "application.id": conf.id,
        "bootstrap.servers": ",".join(_address(url) for url in conf.broker),
        "processing.guarantee": "exactly_once_v2" if _is_exact(app) else "at_least_once",
        **({} if _is_exact(app) else {"commit.interval.ms": max(1, round(conf.broker_commit_interval * 1000))}),
        **({"poll.ms": TICK_MS} if is_lively else {}),
        "linger.ms": round(conf.producer_linger * 1000),
        "auto.offset.reset": conf.consumer_auto_offset_reset,
        "deserialization.exception.handler": "continue",
        "processing.exception.handler": "continue",
        **mapped_options(app),
    }


def _is_exact(app: faust.App) -> bool:
    return bool(app.conf.processing_guarantee.value == "exactly_once")


def _address(url: object) -> str:
    host, port = getattr(url, "host", None), getattr(url, "port", None)
    return f"{host or 'localhost'}:{port or 9092}"
