"""Tables: sources, filters and mappers of changes, and lookups from a stream.

A change is a new value and, if the node before ``sends_old_values``, the value that it replaces.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamsrt.operators.engine.compiler import Compiler, TooComplex
from streamsrt.operators.engine.emitter import Flow, Slot
from streamsrt.operators.engine.plan import table_lookup
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.engine.table_views import stored_versions, table_view, table_view_as_of
from streamsrt.operators.key_slices import KeySlices, Reach, always, either
from streamsrt.state.cache import KeyValueCache
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import cache_of, table_cache
from streamsrt.state.versioned_cache import MANY_VERSIONS, VersionedCache, VersionPut
from topology.graph import operations
from topology.graph.nodes import ProcessorNode
from topology.graph.operations.traits import derived_row, own_store
from topology.graph.store_kinds import RowsOfKey, rows_of

StreamSide = operations.StreamTableJoin | operations.StreamTableGraceJoin


def entry_for(c: Compiler, store: str, key: str, *, read: bool) -> str:
    """Fetches the cache's entry into a variable. ``read`` False: it will only be overwritten, so it needs no look-up."""
    e = c.emitter
    entry = e.temp("e")
    if read:
        e.line(f"{entry} = {e.bind('cache', c.caches[store])}[{key}]")
        return entry
    cache = cache_of(KeyValueCache, c.caches, store)
    e.line(f"{entry} = {e.bind('find', cache.get)}({key})")
    with e.block(f"if {entry} is None:"):
        e.line(f"{entry} = {e.bind('unread', cache.unread)}({key})")
    return entry


def change_entry(c: Compiler, store: str, entry: str, value: str, time: str, headers: str | None) -> None:
    """Writes a row's new value and time, and marks the entry as changed."""
    e = c.emitter
    dirty = c.dirty_list(store)
    with e.block(f"if not {entry}.dirty:"):
        e.line(f"{entry}.dirty = True")
        e.line(f"{entry}.old = {entry}.value")
        e.line(f"{dirty}({entry})")
    e.line(f"{entry}.value = {value}")
    e.line(f"{entry}.timestamp = {time}")
    mark_last(c, store, entry, headers)


def mark_last(c: Compiler, store: str, entry: str, headers: str | None) -> None:
    """Emits the code that only a forwarding flush needs: the order of changes, and the headers of the last one."""
    if not c.plan.is_cached(store):
        return
    c.emitter.setup(f"s = {c.emitter.bind('next_sequence', c.next_sequence)}()")
    c.emitter.line(f"{entry}.sequence = s = s + 1")
    if headers is not None:
        c.emitter.line(f"{entry}.headers = {headers}")


def log_and_forward(c: Compiler, node: ProcessorNode, store: str, flow: Flow, key: str) -> None:
    """Emits the code that logs and forwards a change immediately, if the store is not cached."""
    if c.plan.is_cached(store):
        return
    c.log(store, key, flow, flow.time)
    c.children(node, flow)


def emit_table_source(c: Compiler, node: ProcessorNode, op: operations.TableSource, flow: Flow) -> None:
    e = c.emitter
    dropped = e.counter(c.counters, "dropped_null")
    with e.block(f"if {flow.key.any} is None:"):
        e.line(f"{dropped} += 1")
    with e.block("else:"):
        inside = flow.copy()
        inside.key.not_null = True
        if op.store is None:
            c.children(node, inside)
            return
        spec = c.plan.specs[op.store]
        key = e.raw(inside.key, c.plan.key_serde(spec))
        if rows_of(spec) is RowsOfKey.VERSIONS:
            _put_version(c, node, op.store, inside, key)
            return
        value = e.obj(inside.value)
        c.write_first(op.store, inside.value)
        entry = entry_for(c, op.store, key, read=node.sends_old_values)
        if node.sends_old_values:
            inside.old = Slot(obj=e.temp("b"))
            e.line(f"{inside.old.obj} = {entry}.value")
        change_entry(c, op.store, entry, value, flow.time, flow.headers)
        log_and_forward(c, node, op.store, inside, key)


def _put_version(c: Compiler, node: ProcessorNode, store: str, flow: Flow, key: str) -> None:
    """Emits the code that puts a version which nobody but look-ups as of a time sees."""
    if node.result_children or node.sends_old_values or c.plan.marks_deletions(store):
        raise TooComplex(f"{node.name}: changes of a versioned table are forwarded, or have headers")
    e, cache = c.emitter, cache_of(VersionedCache, c.caches, store)
    versions, dirty, value = e.bind("cache", cache), c.dirty_list(store), e.obj(flow.value)
    c.write_first(store, flow.value)
    entry, times = _versions_of(c, versions, key)
    # As the cache's add(), without a call (its rule 2).
    usual = (
        f"{value} is not None and {times} and {flow.time} > {times}[-1] and {flow.time} >= {versions}.stream_time_ms"
    )
    with e.block(f"if {usual} and len({times}) < {MANY_VERSIONS}:"):
        e.line(f"{versions}.stream_time_ms = {flow.time}")
        e.line(f"{dirty}(({key}, {flow.time}, {value}))")
        e.line(f"{times}.append({flow.time})")
        e.line(f"{entry}.values.append({value})")
    with e.block("else:"):
        e.line(f"{e.bind('put', cache.put)}({key}, {value}, {flow.time}, (), 0)")
    c.log(store, key, flow, flow.time)


def _versions_of(c: Compiler, versions: str, key: str) -> tuple[str, str]:
    """Fetches the entry of a key, and the times of its versions, into variables."""
    e = c.emitter
    entry, times = e.temp("e"), e.temp("t")
    e.line(f"{entry} = {versions}[{key}]")
    e.line(f"{times} = {entry}.timestamps")
    return entry, times


def keep(c: Compiler, node: ProcessorNode, store: str, flow: Flow) -> None:
    """Keeps a derived table's change in its own store, whose row is the old value."""
    e = c.emitter
    key = e.raw(flow.key, c.plan.key_serde(c.plan.specs[store]))
    c.write_first(store, flow.value)
    entry = entry_for(c, store, key, read=node.sends_old_values)
    change_entry(c, store, entry, e.obj(flow.value), flow.time, flow.headers)
    log_and_forward(c, node, store, flow, key)


def own_old(c: Compiler, store: str, flow: Flow) -> Slot:
    """The row that a derived table's change replaces, out of its own store."""
    e = c.emitter
    key = e.raw(flow.key, c.plan.key_serde(c.plan.specs[store]))
    old = e.temp("b")
    e.line(f"{old} = {e.bind('cache', c.caches[store])}[{key}].value")
    return Slot(obj=old)


def emit_table_filter(c: Compiler, node: ProcessorNode, op: operations.TableFilter, flow: Flow) -> None:
    e = c.emitter
    key = e.obj(flow.key)
    predicate = e.bind("predicate", op.predicate)
    no = "not " if op.negate else ""

    def kept(slot: Slot) -> Slot:
        value = e.obj(slot)
        if value == "None":
            return Slot(obj="None")
        name = e.temp("v")
        e.line(f"{name} = {value} if {value} is not None and {no}{predicate}({key}, {value}) else None")
        return Slot(obj=name)

    new = kept(flow.value)
    inside = Flow(flow.key, new, flow.time, flow.headers)
    if not node.sends_old_values:
        _store_or_forward(c, node, op.store, inside)
        return
    if op.store is not None:
        inside.old = own_old(c, op.store, flow)
    else:
        inside.old = kept(flow.old) if flow.old is not None else Slot(obj="None")
    with e.block(f"if {new.any} is not None or {inside.old.any} is not None:"):
        _store_or_forward(c, node, op.store, inside.copy())


def _store_or_forward(c: Compiler, node: ProcessorNode, store: str | None, flow: Flow) -> None:
    if store is None:
        c.children(node, flow)
    else:
        keep(c, node, store, flow)


def emit_table_map_values(c: Compiler, node: ProcessorNode, op: operations.TableMapValues, flow: Flow) -> None:
    e = c.emitter
    mapper = e.bind("mapper", op.fn)
    key = e.obj(flow.key) + ", " if op.with_key else ""

    def mapped(slot: Slot) -> Slot:
        value = e.obj(slot)
        if value == "None":
            return Slot(obj="None")
        name = e.temp("v")
        e.line(f"{name} = None if {value} is None else {mapper}({key}{value})")
        return Slot(obj=name)

    inside = Flow(flow.key, mapped(flow.value), flow.time, flow.headers)
    if node.sends_old_values:
        if op.store is not None:
            inside.old = own_old(c, op.store, flow)
        else:
            inside.old = mapped(flow.old) if flow.old is not None else Slot(obj="None")
    _store_or_forward(c, node, op.store, inside)


def emit_stream_table_join(c: Compiler, node: ProcessorNode, op: operations.StreamTableJoin, flow: Flow) -> None:
    e = c.emitter
    dropped = e.counter(c.counters, "dropped_null")
    key, value = flow.key.any, flow.value.any
    test = f"{value} is None" if op.left else f"{key} is None or {value} is None"
    with e.block(f"if {test}:"):
        e.line(f"{dropped} += 1")
    with e.block("else:"):
        inside = flow.copy()
        inside.value.not_null = True
        inside.key.not_null = inside.key.not_null or not op.left
        found = look_up(c, op.table, inside)
        if op.left:
            join_with(c, node, op, inside, found)
        else:
            with e.block(f"if {found} is not None:"):
                join_with(c, node, op, inside, found)


def look_up(c: Compiler, table: str, flow: Flow) -> str:
    """Fetches the value of the table's row, as of the time of the flow where the table keeps versions, into a variable."""
    e = c.emitter
    row_as_of = table_view_as_of(c.plan, c.caches, table)
    if row_as_of is not None:
        found = e.temp("x")
        versions = stored_versions(c.plan, c.caches, table)
        raw = None if versions is None else c.known_bytes(flow.key, versions.name)
        if versions is not None and raw is not None:
            entry, times = _versions_of(c, e.bind("cache", versions), raw)
            older = f"{e.bind('as_of', versions.as_of)}({raw}, {flow.time})"
            e.line(f"{found} = {entry}.values[-1] if {times} and {times}[-1] <= {flow.time} else {older}")
            return found
        key = e.obj(flow.key)
        row = f"{e.bind('row_as_of', row_as_of)}({key}, {flow.time})"
        e.line(f"{found} = {row if flow.key.not_null else f'None if {key} is None else {row}'}")
        return found
    lookup = table_lookup(c.plan, table)
    if lookup is None or rows_of(c.plan.specs[lookup.store]) is not RowsOfKey.ONE:
        found, row_of = e.temp("x"), e.bind("row_of", table_view(c.plan, c.caches, table))
        key = e.obj(flow.key)
        row = f"{row_of}({key})[0]"
        e.line(f"{found} = {row if flow.key.not_null else f'None if {key} is None else {row}'}")
        return found
    key = e.raw(flow.key, c.plan.key_serde(c.plan.specs[lookup.store]))
    found = e.temp("x")
    row = f"{e.bind('cache', c.caches[lookup.store])}[{key}].value"
    e.line(f"{found} = {row if flow.key.not_null else f'None if {key} is None else {row}'}")
    for step in lookup.steps:
        _derive(c, step, flow, found)
    return found


def _derive(c: Compiler, step: operations.Operation, flow: Flow, found: str) -> None:
    """Makes the row in ``found`` that of a table which is derived from its table."""
    e = c.emitter
    match step:
        case operations.TableFilter():
            test = f"{e.bind('predicate', step.predicate)}({e.obj(flow.key)}, {found})"
            with e.block(f"if {found} is not None and {'' if step.negate else 'not '}{test}:"):
                e.line(f"{found} = None")
        case operations.TableMapValues():
            arguments = f"{e.obj(flow.key)}, {found}" if step.with_key else found
            with e.block(f"if {found} is not None:"):
                e.line(f"{found} = {e.bind('mapper', step.fn)}({arguments})")
        case _:
            e.line(f"{found} = {e.bind('derive', derived_row(step))}({e.obj(flow.key)}, {found})")


def join_with(c: Compiler, node: ProcessorNode, op: StreamSide, flow: Flow, found: str) -> None:
    """Emits the code that joins a record with the row that was found, and forwards the result."""
    e = c.emitter
    inside = flow.copy()
    key = e.obj(inside.key) + ", " if op.with_key else ""
    result = e.temp("v")
    e.line(f"{result} = {e.bind('joiner', op.joiner)}({key}{e.obj(inside.value)}, {found})")
    inside.value = Slot(obj=result)
    c.children(node, inside)


# ------------------------------------------------------------------------------------------------------ record by record


def _unchanged(key: object, value: object) -> object:
    return value


def make_table_step(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    """A source, filter or mapper of a table's changes."""
    op = node.operation
    assert isinstance(op, operations.TableSource | operations.TableFilter | operations.TableMapValues)
    env, store = builder.env, own_store(op)
    if (
        isinstance(op, operations.TableSource)
        and store is not None
        and rows_of(builder.plan.specs[store]) is RowsOfKey.VERSIONS
        and not (node.result_children or node.sends_old_values)
    ):
        return _versions_step(builder, store)
    sends_old = node.sends_old_values
    computed = derived_row(op) or _unchanged
    cache = None if store is None else table_cache(env.caches, store)
    serialize = None if store is None else builder.plan.key_serde(builder.plan.specs[store]).serialize
    change = None if store is None else builder.change(store)
    cached = store is not None and builder.plan.is_cached(store)
    is_source = isinstance(op, operations.TableSource)
    versions = not is_source and builder.plan.is_versioned(node.parents[0])
    suppresses = isinstance(op, operations.TableFilter) and sends_old and not versions

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if is_source and key is None:
            env.counters.dropped_null += 1
            return
        new = computed(key, value)
        before = None
        if sends_old:
            if cache is not None and serialize is not None:
                before = cache[serialize(key)].value
            else:
                before = computed(key, old)
        if suppresses and new is None and before is None:
            return
        put = None
        if change is not None and serialize is not None:
            put = change(serialize(key), new, timestamp, headers, -1)
        if isinstance(put, VersionPut):
            env.forward_version(put, made.forward, key, new, timestamp, headers, before)
        elif not cached:
            made.forward(key, new, timestamp, headers, before)

    return process


def _versions_step(builder: PathBuilder, store: str) -> Process:
    """A source of versions which nobody but look-ups as of a time sees."""
    add = cache_of(VersionedCache, builder.env.caches, store).add
    serialize = builder.plan.key_serde(builder.plan.specs[store]).serialize
    log, counters = builder.row_log(store), builder.env.counters

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if key is None:
            counters.dropped_null += 1
            return
        raw = serialize(key)
        if log is None:
            add(raw, value, timestamp)
            return
        # A value that can't be written fails here, and the row stays what it was.
        raw_value = None if value is None else log.serialize(value)
        add(raw, value, timestamp)
        log.log_row(raw, raw_value, timestamp, headers)

    return process


def make_stream_table_join(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.StreamTableJoin)
    env = builder.env
    row_of = table_view(builder.plan, env.caches, op.table)
    row_as_of = table_view_as_of(builder.plan, env.caches, op.table)

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if value is None or (key is None and not op.left):
            env.counters.dropped_null += 1
            return
        row = None
        if key is not None:
            row = row_of(key)[0] if row_as_of is None else row_as_of(key, timestamp)
        if row is not None or op.left:
            joined = op.joiner(key, value, row) if op.with_key else op.joiner(value, row)
            made.forward(key, joined, timestamp, headers)

    return process


# -------------------------------------------------------------------------------------- records of other keys, in a slice


def _through(op: operations.StreamTableJoin, reaches: Mapping[str, Reach]) -> Reach | None:
    """Only a left join needs no table to know whether there is a result."""
    return (lambda key, value: value is not None) if op.left and either(reaches) is always else None


JOIN_IN_SLICES = KeySlices(through=_through)
