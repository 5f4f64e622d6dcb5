from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

_LOGGERS = ("coordinator.groups", "coordinator.transactions")


class _Raises(logging.Handler):
    """Raises the exceptions that are logged."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            raise record.exc_info[1]


_raises = _Raises()


@pytest.fixture(scope="module", autouse=True)
def _exceptions_of_the_coordinators_fail_tests() -> Iterator[None]:
    """In production they are logged, and all else goes on."""
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(_raises)
    yield
    for name in _LOGGERS:
        logging.getLogger(name).removeHandler(_raises)


@pytest.fixture
def in_production() -> Iterator[None]:
    """For tests of what goes on after such an exception."""
    for name in _LOGGERS:
        logging.getLogger(name).removeHandler(_raises)
    yield
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(_raises)
