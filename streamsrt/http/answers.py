"""The response of each path, as ``(status, body)``: a body is a JSON value, or a page of rows.

1. A key is looked up in its partition: here, or at the instance that has it. A range is read in all partitions, of all
   instances; the rows of a partition are in order, partitions follow one another.
2. A request that was forwarded once is not forwarded again: while tasks move, the response is an error that can be
   retried.
3. ``stale``: standbys answer too, even if no instance has the partition active. What a standby here does not contain, the
   other instances are asked for.
4. Status: 200; 400 the request is wrong; 404 no such store or key; 412 the store has not reached the requested
   position; 503 not available now, retry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, TypeAlias
from urllib.parse import quote

from streamsrt.errors import StreamsError, UserError
from streamsrt.http.forwarding import InstanceUnreachableError, ask
from streamsrt.http.instance import Instance
from streamsrt.http.pages import Page, QueryRefusedError, Row
from streamsrt.http.questions import SHOWN_MAX, Question, number_of
from streamsrt.http.text import key_of, row_json
from streamsrt.http.upgrade import upgrade
from streamsrt.queries.errors import InvalidStateStoreError, UnknownStateStoreError
from streamsrt.queries.preparation import describe, key_query
from streamsrt.queries.values import (
    LATEST_MS,
    FailureReason,
    HostInfo,
    MultiVersionedKeyQuery,
    Position,
    PrefixQuery,
    Query,
    QueryResult,
    RangeQuery,
    SessionKeyQuery,
    SessionRangeQuery,
    TimestampedRangeQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from streamsrt.runtime.health import why_task
from topology import serdes
from topology.graph.nodes import StoreSpec
from topology.graph.store_kinds import RowsOfKey, rows_of

Answer: TypeAlias = tuple[int, dict[str, Any]]

TIMEOUT_S = 10.0
_RETRY = 503
_STATUS = {
    FailureReason.UNKNOWN_QUERY_TYPE: 400,
    FailureReason.DOES_NOT_EXIST: 404,
    FailureReason.NOT_UP_TO_BOUND: 412,
    FailureReason.STORE_EXCEPTION: 500,
}
_ELSEWHERE = (FailureReason.NOT_PRESENT, FailureReason.NOT_ACTIVE)


# ------------------------------------------------------------------------------------------------------------ queries


def key_value(instance: Instance, store: str, text: str, question: Question) -> Answer:
    """``/stores/STORE/keys/KEY``: the row of a key; of a versioned store, as of ``as_of``."""
    spec = instance.store_directory.spec(store)
    key = key_of(spec, text)
    partition = _partition_of(instance, store, key, question)
    as_of_ms = number_of(question.params, "as_of", LATEST_MS) if "as_of" in question.params else None
    if as_of_ms is not None and rows_of(spec) is not RowsOfKey.VERSIONS:
        raise UserError(
            f"as_of={as_of_ms}: store {store!r} is {describe(spec)}, and only versioned stores know earlier values"
        )
    result = _at(instance, store, key_query(spec, key, as_of_ms), partition, question)
    if isinstance(result, tuple):
        return result
    if not result.is_success:
        return _elsewhere(instance, store, partition, question, f"keys/{quote(text, safe='')}", result)
    if result.result is None:
        return 404, {
            "error": "KeyNotFound",
            "message": _no_row(store, text, partition, instance.routing.partition_of(store, key), as_of_ms),
            "partition": partition,
            "position": result.position.to_json(),
        }
    return 200, {**row_json(key, result.result), "partition": partition, "position": result.position.to_json()}


def _no_row(store: str, text: str, partition: int, usual: int, as_of_ms: int | None) -> str:
    """``usual``: where the default partitioner puts the key."""
    if partition != usual:
        what = f"has no key {text!r}" if as_of_ms is None else f"has no value of {text!r} as of {as_of_ms}"
        return (
            f"store {store!r} {what} in partition {partition}, which was asked for. The default partitioner puts it in "
            f"partition {usual}"
        )
    if as_of_ms is None:
        return (
            f"store {store!r} has no key {text!r} in partition {partition}, where the default partitioner puts it. If "
            f"producers place keys otherwise, /stores/{store}/range finds it"
        )
    return (
        f"store {store!r} has no value of {text!r} as of {as_of_ms} in partition {partition}: there was none, or its "
        f"history does not reach that far back. /stores/{store}/versions/{quote(text, safe='')} shows what is stored"
    )


def windows_of_key(instance: Instance, store: str, text: str, question: Question) -> Answer | Page:
    """``/stores/STORE/windows/KEY``: the windows of a key that start in ``from``..``to``."""
    key = key_of(instance.store_directory.spec(store), text)
    low, high = _times(question)
    query = WindowKeyQuery(key, low, high, reverse=question.reverse)
    return _rows_of_key(
        instance, store, query, question, ("windows", text), lambda row: {"start": row[0], **row_json(key, row[1])}
    )


def sessions_of_key(instance: Instance, store: str, text: str, question: Question) -> Answer | Page:
    """``/stores/STORE/sessions/KEY``: the sessions of a key that end at ``from`` or later and start at ``to`` or before."""
    key = key_of(instance.store_directory.spec(store), text)
    query = SessionKeyQuery(key, *_times(question), reverse=question.reverse)
    return _rows_of_key(instance, store, query, question, ("sessions", text), lambda row: row_json(*row))


def versions_of_key(instance: Instance, store: str, text: str, question: Question) -> Answer | Page:
    """``/stores/STORE/versions/KEY``: the versions of a key that were valid at some time in ``from``..``to``."""
    key = key_of(instance.store_directory.spec(store), text)
    query = MultiVersionedKeyQuery(key, *_times(question), ascending=question.reverse)
    return _rows_of_key(instance, store, query, question, ("versions", text), lambda row: row_json(key, row))


def _rows_of_key(
    instance: Instance,
    store: str,
    query: WindowKeyQuery | SessionKeyQuery | MultiVersionedKeyQuery,
    question: Question,
    path: tuple[str, str],
    to_json: Callable[[Any], Row],
) -> Answer | Page:
    partition = _partition_of(instance, store, query.key, question)
    result = _at(instance, store, query, partition, question)
    if isinstance(result, tuple):
        return result
    if not result.is_success:
        return _elsewhere(instance, store, partition, question, f"{path[0]}/{quote(path[1], safe='')}", result)
    found = result.result or ()
    page = Page(question.limit, lambda page: page.up_to_limit(to_json(row) for row in found), {"partition": partition})
    page.position = result.position
    return page


def _times(question: Question) -> tuple[int, int]:
    return number_of(question.params, "from", 0), number_of(question.params, "to", LATEST_MS)


def _partition_of(instance: Instance, store: str, key: Any, question: Question) -> int:
    if question.partitions is not None:
        if len(question.partitions) > 1:
            raise UserError(
                f"partition={question.params['partition'][:SHOWN_MAX]}: a key is in one partition, give one"
            )
        return question.partitions[0]
    return instance.routing.partition_of(store, key)


def _at(instance: Instance, store: str, query: Query, partition: int, question: Question) -> QueryResult[Any] | Answer:
    result = instance.query(
        store,
        query,
        partitions=(partition,),
        require_active=not question.stale,
        position_bound=question.bound,
        timeout_s=TIMEOUT_S,
    ).partition_results[partition]
    if result.failure_reason in _STATUS and not _is_elsewhere(result, question):
        return _failed(result)
    return result


def _is_elsewhere(result: QueryResult[object], question: Question) -> bool:
    """Whether another instance may have the answer. A standby never knows positions of input topics, an active task does."""
    behind = question.stale and result.failure_reason is FailureReason.NOT_UP_TO_BOUND
    return behind or result.failure_reason in _ELSEWHERE


def _failed(result: QueryResult[Any]) -> Answer:
    reason = result.failure_reason
    assert reason is not None
    return _STATUS.get(reason, _RETRY), {
        "error": reason.value,
        "message": result.failure_message,
        "position": result.position.to_json(),
    }


def _elsewhere(
    instance: Instance, store: str, partition: int, question: Question, path: str, result: QueryResult[Any]
) -> Answer:
    """Returns the response of an instance that has the partition."""
    hosts = [] if question.forwarded else _hosts(instance, store, partition, stale=question.stale)
    params = {**question.params, "partition": str(partition)}
    last: Answer = _failed(result)
    own = instance.routing.own_host
    is_here = result.failure_reason not in _ELSEWHERE
    if not (hosts or is_here) and own is not None and instance.routing.hosts_of(store, partition)[0] == own:
        last[1]["message"] = (
            f"the group knows partition {partition} of store {store!r} at {own}, which is the address of this instance, but "
            "it is not here. If this does not pass, another instance has the same application.server: give each one its "
            "own, at which the others reach it"
        )
    for host in hosts:
        try:
            last = ask(host, f"/stores/{quote(store, safe='')}/{path}", params, TIMEOUT_S)
        except InstanceUnreachableError as error:
            # The standby here is behind, whether or not another instance can be asked.
            last = last if is_here else failure(error)
            continue
        if last[0] != _RETRY:
            return last
    return last


def _hosts(instance: Instance, store: str, partition: int, *, stale: bool) -> list[HostInfo]:
    active, standbys = instance.routing.hosts_of(store, partition)
    found = [active] if active is not None else []
    if stale:
        found += sorted(standbys)
    return [host for host in found if host != instance.routing.own_host]


def rows(instance: Instance, store: str, question: Question) -> Page:
    """``/stores/STORE/range``: rows from ``from`` to ``to``, or with ``prefix``."""
    spec = instance.store_directory.spec(store)
    low, high = (None if (text := question.params.get(name)) is None else key_of(spec, text) for name in ("from", "to"))
    prefix = question.params.get("prefix")
    query: Query
    if prefix is not None:
        if low is not None or high is not None:
            raise UserError(f"prefix={prefix[:SHOWN_MAX]}: give a prefix, or from and to")
        query = PrefixQuery(prefix, serdes.string, question.reverse, with_timestamps=spec.timestamped)
    else:
        query = (TimestampedRangeQuery if spec.timestamped else RangeQuery)(low, high, question.reverse)
    return _from_all(instance, store, query, question, "range")


def windows(instance: Instance, store: str, question: Question) -> Page:
    """``/stores/STORE/windows``: the windows that start in ``from``..``to``."""
    low, high = _times(question)
    query = WindowRangeQuery(low, high, reverse=question.reverse)
    return _from_all(instance, store, query, question, "windows")


def sessions(instance: Instance, store: str, question: Question) -> Page:
    """``/stores/STORE/sessions``: the sessions that end at ``from`` or later."""
    query = SessionRangeQuery(number_of(question.params, "from", 0), question.reverse)
    return _from_all(instance, store, query, question, "sessions")


def _from_all(instance: Instance, store: str, query: Query, question: Question, path: str) -> Page:
    wanted = question.partitions or tuple(range(instance.routing.partition_count(store)))
    results = instance.query(
        store,
        query,
        partitions=wanted,
        require_active=not question.stale,
        position_bound=question.bound,
        timeout_s=TIMEOUT_S,
    ).partition_results

    def found(page: Page) -> Iterator[Row]:
        for partition in wanted:
            result = results[partition]
            if result.is_success:
                page.position = page.position.merge(result.position)
                mine = result.result or ()
                yield from page.up_to_limit({**row_json(*row), "partition": partition} for row in mine)
            elif _is_elsewhere(result, question):
                status, body = _elsewhere(instance, store, partition, question, path, result)
                if status != 200:
                    raise QueryRefusedError((status, body))
                page.position = page.position.merge(Position.from_json(body["position"]))
                yield from page.up_to_limit(body["rows"])
                page.truncated = page.truncated or body["truncated"]
            else:
                raise QueryRefusedError(_failed(result))
            if page.truncated:
                return

    return Page(question.limit, found)


# --------------------------------------------------------------------------------------------------- the instance


def stores(instance: Instance) -> Answer:
    """``/stores``: the stores of the topology."""
    return 200, {"stores": [_store(instance.store_directory.spec(name)) for name in instance.store_directory.names]}


def _store(spec: StoreSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "kind": spec.kind,
        "timestamped": spec.timestamped,
        "key_serde": getattr(spec.key_serde, "name", None),
        "value_serde": getattr(spec.value_serde, "name", None),
    }


def metadata(instance: Instance) -> Answer:
    """``/metadata``: the partitions of each instance."""
    return 200, {
        "instances": [
            {
                "host": str(each.host_info),
                "stores": sorted(each.state_store_names),
                "partitions": sorted(each.topic_partitions),
                "standby_stores": sorted(each.standby_state_store_names),
                "standby_partitions": sorted(each.standby_topic_partitions),
            }
            for each in instance.routing.all_metadata()
        ]
    }


def tasks(instance: Instance) -> Answer:
    """``/tasks``: what this instance does, what each task waits for, and why tasks were added or removed, newest last."""
    progress = instance.progress
    return 200, {
        "application_id": instance.config.application_id,
        "state": instance.state.value,
        "member_id": progress.member_id,
        "member_epoch": progress.member_epoch,
        "statuses": progress.statuses,
        "processed_records": progress.processed_records,
        "pending_calls": progress.pending_calls,
        "lag_records": progress.lag_records,
        "tasks": [{**asdict(task), "counters": dict(task.counters), "why": why_task(task)} for task in progress.tasks],
        "loops": [asdict(loop) for loop in progress.loops],
        "assignment_changes": [asdict(change) for change in progress.assignment_changes],
    }


def health(instance: Instance) -> Answer:
    """``/healthz``: 503 if the instance should be restarted."""
    why = instance.why_not_alive()
    return (_RETRY if why else 200), {"alive": not why, "state": instance.state.value, "why": why}


def readiness(instance: Instance) -> Answer:
    """``/readyz``: 503 until all of its tasks process, and at first until nothing warms up."""
    why = instance.why_not_ready()
    return (_RETRY if why else 200), {
        "ready": not why,
        "state": instance.state.value,
        "restore_eta_s": instance.progress.restore_eta_s,
        "why": why,
    }


def failure(error: StreamsError) -> Answer:
    """Returns the response for an error."""
    if isinstance(error, QueryRefusedError):
        return error.answer
    status = 500
    if isinstance(error, UnknownStateStoreError):
        status = 404
    elif isinstance(error, InvalidStateStoreError | InstanceUnreachableError):
        status = _RETRY
    elif isinstance(error, UserError):
        status = 400
    return status, {"error": type(error).__name__.removesuffix("Error"), "message": str(error)}


QUERIES: Mapping[str, Callable[[Instance, str, Question], Page]] = {
    "/stores/{store}/range": rows,
    "/stores/{store}/windows": windows,
    "/stores/{store}/sessions": sessions,
}
KEY_QUERIES: Mapping[str, Callable[[Instance, str, str, Question], Answer | Page]] = {
    "/stores/{store}/keys/{key:key}": key_value,
    "/stores/{store}/windows/{key:key}": windows_of_key,
    "/stores/{store}/sessions/{key:key}": sessions_of_key,
    "/stores/{store}/versions/{key:key}": versions_of_key,
}
VIEWS: Mapping[str, Callable[[Instance], Answer]] = {
    "/stores": stores,
    "/metadata": metadata,
    "/tasks": tasks,
    "/upgrade": upgrade,
}
PROBES: Mapping[str, Callable[[Instance], Answer]] = {"/healthz": health, "/readyz": readiness}
"""These wait for nothing, so they are answered even if all others wait."""
