"""Who is served next, by a clock that the served ones move."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from coordinator.server.fair_queue import PASS_S, FairQueue


class Clients:
    """A loop of callbacks and a clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.ready: deque[Callable[[], None]] = deque()
        self.queue = FairQueue(self.ready.append, lambda: self.now_s)
        self.order: list[str] = []

    def turn(self) -> None:
        """What was ready at the beginning, as in an event loop."""
        for _ in range(len(self.ready)):
            self.ready.popleft()()


class Client:
    """Has requests that take so long each; one is answered at a time."""

    def __init__(self, clients: Clients, name: str, cost_s: float, requests: int) -> None:
        self.clients, self.name, self.cost_s, self.requests = clients, name, cost_s, requests
        self.used_s = clients.queue.virtual_time_s
        self.is_queued = self.has_more = False

    def serve(self) -> float:
        self.requests -= 1
        self.clients.order.append(self.name)
        self.clients.now_s += self.cost_s
        self.has_more = self.requests > 0
        return self.cost_s

    def arrive(self) -> None:
        self.clients.queue.serve(self)


def time_to_answer(client: Client) -> float:
    """How long one more request of that client waits for its turn."""
    clients, waited = client.clients, 0.0
    client.requests = 1
    before = clients.now_s
    client.arrive()
    while client.requests:
        waited = clients.now_s - before
        clients.turn()
    return waited


def test_who_is_alone_is_served_at_once() -> None:
    clients = Clients()
    Client(clients, "a", 0.0001, 1).arrive()
    assert clients.order == ["a"]
    assert not clients.ready


def test_a_quiet_client_goes_before_all_that_busy_ones_have_sent() -> None:
    clients = Clients()
    for i in range(100):
        Client(clients, f"busy {i}", 0.002, 1000).arrive()
    for _ in range(200):
        clients.turn()
    quiet = Client(clients, "quiet", 0.0001, 1)
    for _ in range(100):
        clients.turn()
    for _ in range(20):
        assert time_to_answer(quiet) <= PASS_S + 0.0021


def test_one_turn_of_the_line_is_short() -> None:
    clients = Clients()
    for i in range(50):
        Client(clients, str(i), 0.001, 1000).arrive()
    for _ in range(50):
        before = clients.now_s
        clients.turn()
        assert 0 < clients.now_s - before <= PASS_S + 0.0011


def test_busy_clients_share_alike_whatever_their_requests_cost() -> None:
    clients = Clients()
    cheap, dear = Client(clients, "cheap", 0.0005, 10_000), Client(clients, "dear", 0.005, 10_000)
    cheap.arrive()
    dear.arrive()
    begun = clients.now_s
    while clients.now_s < begun + 1:
        clients.turn()
    shares = {name: clients.order.count(name) * cost for name, cost in (("cheap", 0.0005), ("dear", 0.005))}
    assert 0.4 < shares["dear"] < 0.6
    assert 0.4 < shares["cheap"] < 0.6


def test_who_was_busy_for_long_is_not_behind_newcomers_for_ever() -> None:
    clients = Clients()
    old = Client(clients, "old", 0.001, 10_000)
    old.arrive()
    for _ in range(1000):
        clients.turn()
    young = Client(clients, "young", 0.001, 10_000)
    young.arrive()
    clients.order.clear()
    for _ in range(10):
        clients.turn()
    assert clients.order.count("old") >= 0.4 * len(clients.order)


def test_who_waits_for_answers_goes_before_those_that_do_not_even_with_dear_requests() -> None:
    clients = Clients()
    for i in range(100):
        Client(clients, f"busy {i}", 0.002, 10_000).arrive()
    patient = Client(clients, "patient", 0.002, 1)
    for _ in range(200):
        clients.turn()
    for _ in range(20):
        assert time_to_answer(patient) <= 2 * PASS_S
        for _ in range(12):
            clients.turn()


def test_many_that_come_together_do_not_all_go_before_a_quiet_client() -> None:
    clients = Clients()
    quiet = Client(clients, "quiet", 0.0005, 1)
    quiet.arrive()
    for i in range(100):
        newcomer = Client(clients, f"new {i}", 0.015, 2)
        newcomer.used_s = clients.queue.newcomers_s()
        newcomer.arrive()
    for _ in range(10):
        quiet.requests = 1
        before = clients.now_s
        quiet.arrive()
        while quiet.requests:
            clients.turn()
        assert clients.now_s - before <= PASS_S + 0.016
