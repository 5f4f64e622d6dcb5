"""The tree of errors: by whose fault it is, with the exit code that the command line documents."""

from __future__ import annotations

import pytest

from streamsrt import errors
from streamsrt.cli import __doc__ as documented
from streamsrt.errors import (
    BrokerError,
    ConfigError,
    DeserializationError,
    MembershipError,
    RecordError,
    StateDirectoryLockedError,
    StateError,
    StreamsError,
    UserError,
)


@pytest.mark.parametrize(
    ("branch", "exit_code"),
    [(StreamsError, 1), (UserError, 2), (BrokerError, 3), (StateError, 4), (RecordError, 5), (MembershipError, 6)],
)
def test_each_branch_has_its_documented_exit_code(branch: type[StreamsError], exit_code: int) -> None:
    assert branch.exit_code == exit_code
    assert documented is not None
    assert f"{exit_code} " in documented


def test_leaves_have_the_exit_code_of_their_branch() -> None:
    assert ConfigError("x").exit_code == 2
    assert StateDirectoryLockedError("x").exit_code == 4
    assert DeserializationError("x").exit_code == 5


def test_every_error_of_the_module_stands_in_its_picture() -> None:
    assert errors.__doc__ is not None
    named = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, StreamsError)]
    assert len(named) > 10
    for error in named:
        assert error.__name__ in errors.__doc__


def test_a_record_error_says_which_record() -> None:
    error = DeserializationError("not an integer", "numbers", 3, 17)
    assert (error.topic, error.partition, error.offset) == ("numbers", 3, 17)
    assert RecordError("somewhere").offset == -1
