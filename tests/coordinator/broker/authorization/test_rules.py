"""Each API asks for the rights that Kafka asks for: the whole table, in process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator.broker.api_versions import SERVED
from coordinator.broker.authorization.rules import GUARDS
from coordinator.security.acls import Acl, PatternType, Permission
from coordinator.server.dispatch import HANDLERS
from streamsrt.wire.schema import ApiKey
from tests.coordinator.broker.authorization.requests import (
    CASES,
    LISTINGS,
    OPEN_TO_ALL,
    Case,
    Listing,
    denials,
    setup_requests,
)
from tests.coordinator.broker.in_process import AUTHORIZED, SUPER_USER, InProcessBroker

CALLER = "User:caller"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    configs = {**AUTHORIZED, "auto.create.topics.enable": "true", "group.initial.rebalance.delay.ms": "0"}
    broker = InProcessBroker(tmp_path_factory.mktemp("rules") / "data", configs)
    broker.principal = SUPER_USER
    for request, version in setup_requests():
        assert not denials(broker.ask(request, version))
    yield broker
    broker.close()


@pytest.fixture
def caller(broker: InProcessBroker) -> Iterator[InProcessBroker]:
    """The broker, asked by somebody who has no rights yet."""
    broker.principal = CALLER
    yield broker
    broker.principal = SUPER_USER
    broker.revoke_all()


def test_every_api_that_is_served_has_a_rule_and_a_case() -> None:
    tested = {case.api_key for case in CASES} | {listing.api_key for listing in LISTINGS} | OPEN_TO_ALL
    tables = {
        "SERVED (coordinator/broker/api_versions.py)": SERVED.keys(),
        "HANDLERS (of its module, or that module's in coordinator/server/dispatch.py)": HANDLERS.keys(),
        "GUARDS (coordinator/broker/authorization/rules.py)": GUARDS.keys(),
        "CASES or LISTINGS (tests/coordinator/broker/authorization/requests.py)": tested,
    }
    known = {key for keys in tables.values() for key in keys}
    missing = [f"{ApiKey(key).name} is not in {name}" for name, keys in tables.items() for key in sorted(known - keys)]
    assert not missing, "; ".join(missing)


@pytest.mark.requirement(
    *("CG-028", "CG-146", "CG-147", "CG-189", "CG-198", "CG-204", "GA-006", "GA-016", "GA-055", "SG-045", "SG-345")
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_missing_is_said(caller: InProcessBroker, case: Case) -> None:
    assert denials(caller.ask(case.make("nobody"), case.version)) == {case.needs[0].code}
    for missing in case.needs:
        caller.revoke_all()
        for need in case.needs:
            if need is not missing:
                caller.grant(need.granted_to(CALLER))
        assert denials(caller.ask(case.make(f"without-{missing.name}"), case.version)) == {missing.code}, missing


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_with_these_rights_it_is_done(caller: InProcessBroker, case: Case) -> None:
    for need in case.needs:
        caller.grant(need.granted_to(CALLER))
    assert not denials(caller.ask(case.make("allowed"), case.version))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_super_users_need_no_rights(broker: InProcessBroker, case: Case) -> None:
    assert broker.principal == SUPER_USER
    assert not denials(broker.ask(case.make("super"), case.version))


@pytest.mark.requirement("CG-208")
@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.name)
def test_listings_hold_what_may_be_seen(caller: InProcessBroker, listing: Listing) -> None:
    caller.principal = SUPER_USER
    for request, version in setup_requests():
        # What other tests have deleted is made again; what is there is there.
        caller.ask(request, version)
    caller.principal = CALLER
    answer = caller.ask(listing.make(), listing.version)
    assert listing.seen(answer) == set()
    assert not denials(answer)
    for operation, kind, name in listing.rights:
        caller.grant(Acl(kind, PatternType.LITERAL, name, CALLER, "*", operation, Permission.ALLOW))
    assert listing.expected in listing.seen(caller.ask(listing.make(), listing.version))
