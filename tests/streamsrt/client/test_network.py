"""The network thread, where the process has no time for it."""

from __future__ import annotations

import asyncio

import pytest

from streamsrt.client.values import RequestTimedOutError
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
