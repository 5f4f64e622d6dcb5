"""The authorizer against a model that is Kafka's documentation written down, over random ACLs and questions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.security.acls import (
    EVERYBODY,
    Acl,
    AclFilter,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    super_users_of,
)

KINDS = (ResourceType.TOPIC, ResourceType.GROUP)
OPERATIONS = tuple(operation for operation in Operation if operation > Operation.ANY)
NAMES = st.text("ab", min_size=1, max_size=4)
PRINCIPALS = ("User:ada", "User:bob", EVERYBODY)
HOSTS = ("10.0.0.1", "10.0.0.2", "*")

acls = st.builds(
    Acl,
    st.sampled_from(KINDS),
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
    st.one_of(NAMES, st.just("*")),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from((Permission.ALLOW, Permission.DENY)),
)
questions = st.tuples(
    st.sampled_from(PRINCIPALS[:2]),
    st.sampled_from(HOSTS[:2]),
    st.sampled_from([operation for operation in OPERATIONS if operation != Operation.ALL]),
    st.sampled_from(KINDS),
    NAMES,
)

IMPLIED = {
    "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER", "DESCRIBE"},
    "DESCRIBE_CONFIGS": {"ALTER_CONFIGS", "DESCRIBE_CONFIGS"},
}


def model(known: list[Acl], question: tuple[str, str, Operation, ResourceType, str], *, open_without: bool) -> bool:
    """What the documentation says, one ACL after the other."""
    principal, host, operation, kind, name = question
    matching = []
    for acl in known:
        if acl.pattern_type == PatternType.LITERAL:
            fits = acl.name in {name, "*"}
        else:
            fits = name[: len(acl.name)] == acl.name
        if acl.resource_type == kind and fits:
            matching.append(acl)
    if not matching:
        return open_without
    mine = [acl for acl in matching if acl.principal in {principal, "User:*"} and acl.host in {host, "*"}]
    for acl in mine:
        if acl.permission == Permission.DENY and acl.operation in {operation, Operation.ALL}:
            return False
    enough = {"ALL"} | IMPLIED.get(operation.name, {operation.name})
    return any(acl.permission == Permission.ALLOW and Operation(acl.operation).name in enough for acl in mine)


@pytest.mark.requirement("CG-146", "CG-147")
@given(st.lists(acls, max_size=12), questions, st.booleans())
def test_the_authorizer_decides_as_the_model(
    known: list[Acl], question: tuple[str, str, Operation, ResourceType, str], open_without: bool
) -> None:
    authorizer = Authorizer(allow_without_acl=open_without)
    for acl in known:
        authorizer.add(acl)
    assert authorizer.allows(*question) == model(known, question, open_without=open_without)


@given(st.lists(acls, min_size=1, max_size=12, unique=True), st.data(), questions)
def test_what_is_removed_counts_no_more(
    known: list[Acl], data: st.DataObject, question: tuple[str, str, Operation, ResourceType, str]
) -> None:
    authorizer = Authorizer()
    for acl in known:
        authorizer.add(acl)
    gone = data.draw(st.lists(st.sampled_from(known), unique=True))
    for acl in gone:
        authorizer.remove(acl)
    left = [acl for acl in known if acl not in gone]
    assert list(authorizer) == left
    assert authorizer.allows(*question) == model(left, question, open_without=False)


@given(st.lists(acls, max_size=8), questions, st.lists(NAMES, max_size=6))
def test_some_resource_is_open_if_one_of_any_name_is(
    known: list[Acl], question: tuple[str, str, Operation, ResourceType, str], names: list[str]
) -> None:
    """Operations that imply this one don't count, in Kafka neither: so the model is asked for one that none implies."""
    principal, host, _, kind, _ = question
    authorizer = Authorizer()
    for acl in known:
        authorizer.add(acl)
    one = any(model(known, (principal, host, Operation.WRITE, kind, name), open_without=False) for name in names)
    if one:
        assert authorizer.allows_some(principal, host, Operation.WRITE, kind)
    if not any(acl.permission == Permission.ALLOW for acl in known):
        assert not authorizer.allows_some(principal, host, Operation.WRITE, kind)


def test_a_literal_allow_under_a_denied_prefix_opens_nothing() -> None:
    authorizer = Authorizer()
    one = ("User:ada", "*", Operation.WRITE)
    authorizer.add(Acl(ResourceType.TOPIC, PatternType.LITERAL, "orders", *one, Permission.ALLOW))
    assert authorizer.allows_some("User:ada", "10.0.0.1", Operation.WRITE, ResourceType.TOPIC)
    authorizer.add(Acl(ResourceType.TOPIC, PatternType.PREFIXED, "ord", *one, Permission.DENY))
    assert not authorizer.allows_some("User:ada", "10.0.0.1", Operation.WRITE, ResourceType.TOPIC)


def test_super_users_may_do_what_is_denied() -> None:
    authorizer = Authorizer(super_users_of(" User:root;User:CN=x,O=y "))
    authorizer.add(Acl(ResourceType.TOPIC, PatternType.LITERAL, "*", EVERYBODY, "*", Operation.ALL, Permission.DENY))
    for user in ("User:root", "User:CN=x,O=y"):
        assert authorizer.allows(user, "10.0.0.1", Operation.READ, ResourceType.TOPIC, "t")
    assert not authorizer.allows("User:ada", "10.0.0.1", Operation.READ, ResourceType.TOPIC, "t")


def test_a_super_user_without_a_type_is_refused() -> None:
    with pytest.raises(ValueError, match=r"super.users: ada is not a principal: expected User:ada"):
        super_users_of("User:bob;ada")


filters = st.builds(
    AclFilter,
    st.sampled_from((ResourceType.ANY, *KINDS)),
    st.sampled_from((PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED)),
    st.one_of(st.none(), NAMES, st.just("*")),
    st.one_of(st.none(), st.sampled_from(PRINCIPALS)),
    st.one_of(st.none(), st.sampled_from(HOSTS)),
    st.sampled_from((Operation.ANY, Operation.READ, Operation.ALL)),
    st.sampled_from((Permission.ANY, Permission.ALLOW)),
)


@given(st.lists(acls, max_size=10, unique=True), filters)
def test_filters_choose_field_by_field(known: list[Acl], wanted: AclFilter) -> None:
    def fits(acl: Acl) -> bool:
        kind = wanted.resource_type in {ResourceType.ANY, acl.resource_type}
        entry = (
            wanted.principal in {None, acl.principal}
            and wanted.host in {None, acl.host}
            and wanted.operation in {Operation.ANY, acl.operation}
            and wanted.permission in {Permission.ANY, acl.permission}
        )
        if wanted.pattern_type == PatternType.MATCH and wanted.name is not None:
            prefixed = acl.pattern_type == PatternType.PREFIXED
            pattern = wanted.name.startswith(acl.name) if prefixed else acl.name in {wanted.name, "*"}
        else:
            pattern = wanted.name in {None, acl.name}
            pattern = pattern and wanted.pattern_type in {PatternType.ANY, PatternType.MATCH, acl.pattern_type}
        return kind and entry and pattern

    authorizer = Authorizer()
    for acl in known:
        authorizer.add(acl)
    assert authorizer.chosen(wanted) == [acl for acl in known if fits(acl)]
