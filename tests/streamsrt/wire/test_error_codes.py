from __future__ import annotations

from streamsrt.wire.error_codes import ErrorCode, error_message, error_name, is_retriable


def test_codes_of_streams_groups() -> None:
    assert {
        ErrorCode.GROUP_AUTHORIZATION_FAILED: 30,
        ErrorCode.GROUP_ID_NOT_FOUND: 69,
        ErrorCode.NOT_COORDINATOR: 16,
        ErrorCode.UNKNOWN_MEMBER_ID: 25,
        ErrorCode.FENCED_MEMBER_EPOCH: 110,
        ErrorCode.UNRELEASED_INSTANCE_ID: 111,
        ErrorCode.GROUP_MAX_SIZE_REACHED: 81,
        ErrorCode.STREAMS_INVALID_TOPOLOGY: 130,
        ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: 131,
        ErrorCode.STREAMS_TOPOLOGY_FENCED: 132,
        ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED: 135,
    }.items() <= {code: int(code) for code in ErrorCode}.items()


def test_the_codes_have_no_gaps() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 137))


def test_every_code_has_a_message_of_its_own() -> None:
    messages = [error_message(code) for code in ErrorCode if code is not ErrorCode.NONE]
    assert all(message.endswith(".") for message in messages)
    assert len(set(messages)) == len(messages)
    assert error_message(0) == ""


def test_codes_of_newer_brokers_are_reported() -> None:
    assert error_name(16) == "NOT_COORDINATOR"
    assert error_name(5000) == "UNKNOWN_ERROR_CODE_5000"
    assert error_name(-7) == "UNKNOWN_ERROR_CODE_-7"
    assert "5000" in error_message(5000)
    assert not is_retriable(5000)


def test_retriable_codes() -> None:
    assert all(is_retriable(code) for code in (3, 5, 6, 7, 14, 15, 16, 51, 88, 100))
    assert not any(is_retriable(code) for code in (-1, 0, 1, 22, 25, 27, 35, 42, 47, 90, 110, 113, 120, 130))
