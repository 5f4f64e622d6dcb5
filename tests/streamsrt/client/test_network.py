"""The network thread, where the process has no time for it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import pytest

from streamsrt.client.group import GroupEvent, Todo
from streamsrt.client.values import RequestTimedOutError
from streamsrt.errors import StreamsError
from streamsrt.wire import types
from streamsrt.wire.schema import Message, Request
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.client.conftest import Connect
from tests.streamsrt.client.scripted_broker import ScriptedBroker


def test_a_thread_that_does_not_answer_is_told_with_what_to_do(connect: Connect, broker: ScriptedBroker) -> None:
    network = connect(broker.address)

    async def answer() -> None:
        await asyncio.Event().wait()

    with pytest.raises(
        RequestTimedOutError, match=r"within 0 s: .* too little CPU time.*raise default\.api\.timeout\.ms"
    ):
        network._call(answer(), 0.0)


@dataclass
class Step:
    request: Request[Message] | None = None
    find_coordinator: bool = False
    events: tuple[GroupEvent, ...] = ()
    wake_at_ms: int | None = None


class Defective:
    """A machine with an error in its own code: in a callback of the loop (``tick``), or in a task (``found``)."""

    request_type: type[Message] = types.StreamsGroupHeartbeatRequest
    group_id = "app"
    member_id = "m"
    member_epoch = 0
    ended = False

    def __init__(self, fails_in: str) -> None:
        self.fails_in = fails_in

    def start(self, now_ms: int) -> Todo:
        return Step(wake_at_ms=now_ms) if self.fails_in == "tick" else Step(find_coordinator=True)

    def _fail(self) -> Todo:
        raise KeyError("forgotten")

    def tick(self, now_ms: int) -> Todo:
        return self._fail()

    def coordinator_found(self, version: int, now_ms: int) -> Todo:
        return self._fail()

    def command(self, command: object, seen: int, now_ms: int) -> Todo:
        return Step()

    def responded(self, response: Message, now_ms: int) -> Todo:
        return Step()

    def request_failed(self, reason: str, now_ms: int) -> Todo:
        return Step(find_coordinator=True)

    def refused(self, error: StreamsError, now_ms: int) -> Todo:
        return Step()

    def polled(self, at_ms: int) -> None:
        """It doesn't matter when."""


@pytest.mark.parametrize("fails_in", ["tick", "task"])
def test_an_error_in_its_own_code_ends_the_application_instead_of_its_membership_alone(
    connect: Connect, bundled_broker: BundledBroker, caplog: pytest.LogCaptureFixture, fails_in: str
) -> None:
    network = connect(bundled_broker.bootstrap_servers)
    with caplog.at_level(logging.ERROR, "streamsrt.client.network"):
        member = network.join_group(Defective(fails_in))
        assert network.wait(30.0)
        with pytest.raises(
            StreamsError, match=r"the network thread ended with KeyError: 'forgotten'. Restart"
        ) as ended:
            network.fetcher.poll(0.0)
    assert ended.value.exit_code == 1
    assert network.wait(0.0), "who waits is woken each time"
    assert member.has_ended
    assert "The network thread can't go on" in caplog.text
    with pytest.raises(StreamsError, match="forgotten"):
        network.producer.flush(1.0)
