"""ListTransactions and DescribeTransactions: what the coordinator knows, without changing anything."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.txn.state import TransactionsState, TransactionState
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import (
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

_BY_LABEL = {status.label: status for status in TransactionState}
NO_DURATION = -1


def unknown_states(request: ListTransactionsRequest) -> list[str]:
    """Returns the states of the filter that do not exist."""
    return [name for name in request.state_filters if name not in _BY_LABEL]


def listed(
    state: TransactionsState, request: ListTransactionsRequest, now_ms: int
) -> list[ListTransactionsResponse.TransactionState]:
    """Returns the transactional ids that pass all filters. A filter of only unknown states matches nothing."""
    states = {_BY_LABEL[name] for name in request.state_filters if name in _BY_LABEL}
    ids = set(request.producer_id_filters)
    found = []
    for name, transaction in state.transactions.items():
        running_ms = now_ms - transaction.start_ms if transaction.status == TransactionState.ONGOING else NO_DURATION
        if (
            (request.state_filters and transaction.status not in states)
            or (ids and transaction.producer.id not in ids)
            or (request.duration_filter >= 0 and running_ms <= request.duration_filter)
        ):
            continue
        found.append(
            ListTransactionsResponse.TransactionState(
                transactional_id=name,
                producer_id=transaction.producer.id,
                transaction_state=transaction.status.label,
            )
        )
    return found


def described(
    state: TransactionsState, transactional_ids: Iterable[str]
) -> list[DescribeTransactionsResponse.TransactionState]:
    """Returns one entry for each id; an unknown one has TRANSACTIONAL_ID_NOT_FOUND."""
    return [_described(state, name) for name in transactional_ids]


def _described(state: TransactionsState, name: str) -> DescribeTransactionsResponse.TransactionState:
    entry = DescribeTransactionsResponse.TransactionState(transactional_id=name)
    known = state.transactions.get(name)
    if known is None:
        entry.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if name else ErrorCode.INVALID_REQUEST
        return entry
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(known.partitions):
        by_topic.setdefault(topic, []).append(partition)
    entry.transaction_state = known.status.label
    entry.transaction_timeout_ms = known.timeout_ms
    entry.transaction_start_time_ms = known.start_ms
    entry.producer_id, entry.producer_epoch = known.producer
    entry.topics = [
        DescribeTransactionsResponse.TopicData(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()
    ]
    return entry
