"""Sends requests to other instances over HTTP, with the standard library: once, with a deadline."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from streamsrt.errors import StreamsError
from streamsrt.queries.values import HostInfo

FORWARDED = "x-streamsrt-forwarded"
"""A request with this header is answered by the instance that gets it, or by nobody."""


class InstanceUnreachableError(StreamsError):
    """Another instance does not respond: it may have just stopped. Retry; if it is running, other instances must be
    able to reach its ``application.server``."""

    exit_code = 3


def fetch(host: HostInfo, path: str, params: Mapping[str, str], timeout_s: float) -> tuple[int, dict[str, Any]]:
    """Returns status and body of an instance's response; that instance may forward the request. Raises
    InstanceUnreachableError."""
    return _get(host, path, params, timeout_s, {})


def ask(host: HostInfo, path: str, params: Mapping[str, str], timeout_s: float) -> tuple[int, dict[str, Any]]:
    """Returns status and body of an instance's response about its own state. Raises InstanceUnreachableError."""
    return _get(host, path, params, timeout_s, {FORWARDED: "1"})


def _get(
    host: HostInfo, path: str, params: Mapping[str, str], timeout_s: float, headers: dict[str, str]
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(host.host, host.port, timeout=timeout_s)
    try:
        query = f"?{urlencode(params)}" if params else ""
        connection.request("GET", path + query, headers=headers)
        response = connection.getresponse()
        # orjson would round integers of more than 64 bits.
        return response.status, json.loads(response.read())
    except (OSError, http.client.HTTPException, UnicodeError, json.JSONDecodeError) as error:
        # UnicodeError: what can't be the name of a host.
        if isinstance(error, TimeoutError) and connection.sock is not None:
            raise InstanceUnreachableError(
                f"the instance at {host} accepted the connection, but did not answer within {timeout_s:g} s. Its process "
                "hangs or is stopped (kill -STOP), or its machine is overloaded. Look at its log and at `ps`; if it does "
                "not recover, kill it (kill -9): its tasks move to others, and nothing is lost"
            ) from error
        raise InstanceUnreachableError(
            f"the instance at {host} can't be queried ({error or type(error).__name__}). If it has just stopped, try "
            "again. Otherwise check the address: instances listen where streamsrt run --http says, and streamsrt query "
            "asks there with --server"
        ) from error
    finally:
        connection.close()
