"""Starts HTTP beside an instance. The packages that it needs are imported only then: an application without HTTP does not
have them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from streamsrt.http.missing_module import missing_module

if TYPE_CHECKING:
    from streamsrt.http.instance import Instance

logger = logging.getLogger(__name__)


def start_http(instance: Instance) -> Callable[[], None]:
    """Serves an instance at its ``http.listen``, and returns what stops that. Called before the instance joins its group:
    the other members get its address, which is written to its ``config`` unless that has one. Raises ConfigError."""
    listen = instance.config.http_listen
    try:
        from streamsrt.http.names import reached_at
        from streamsrt.http.server import HttpServer, application, bound_socket
    except ModuleNotFoundError as error:
        raise missing_module(error, listen) from error
    listening = bound_socket(listen)
    if not instance.config.application_server:
        server = reached_at(listen, listening.getsockname()[1])
        instance.config = instance.config.model_copy(update={"application_server": server})
    logger.info("HTTP at %s:%d", *listening.getsockname()[:2])
    return HttpServer(application(instance), listening).stop
