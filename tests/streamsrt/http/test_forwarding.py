"""What is said of an instance that can't be asked."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamsrt.http.forwarding import InstanceUnreachableError, fetch
from streamsrt.json_text import to_json
from streamsrt.queries.values import HostInfo


def test_an_instance_that_takes_a_connection_and_does_not_answer_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        host = HostInfo("127.0.0.1", frozen.getsockname()[1])
        with pytest.raises(InstanceUnreachableError, match=r"did not answer within 0\.05 s\. Its process hangs"):
            fetch(host, "/tasks", {}, 0.05)
    with pytest.raises(InstanceUnreachableError, match="If it has just stopped"):
        fetch(host, "/tasks", {}, 0.05)


def test_what_another_instance_says_is_taken_as_it_is() -> None:
    row = {"wei": 2**70, "half": "\ud83d"}
    with socket.create_server(("127.0.0.1", 0)) as instance, ThreadPoolExecutor(1) as threads:
        host = HostInfo("127.0.0.1", instance.getsockname()[1])
        answer = threads.submit(fetch, host, "/stores/s/keys/k", {}, 30.0)
        connection, _ = instance.accept()
        with connection:
            connection.recv(65536)
            body = to_json(row)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            assert answer.result() == (200, row)


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "nowhere.invalid"])
def test_a_name_that_is_none_of_a_host_is_explained(host: str) -> None:
    with pytest.raises(InstanceUnreachableError, match="Otherwise check the address"):
        fetch(HostInfo(host, 8080), "/tasks", {}, 5.0)
