"""Code of stream-table joins with a grace period. The rules are those of :mod:`streamsrt.operators.kinds.grace_joins`.

A failure is that of the record which is joined, and leaves it as the first one that waits: it goes after its results.
"""

from __future__ import annotations

from streamsrt.operators.engine.compiler import Compiler, TooComplex
from streamsrt.operators.engine.emitter import Flow, Slot
from streamsrt.operators.engine.plan import ResolvedSubtopology, same_bytes
from streamsrt.operators.kinds.grace_joins import FAR_MS, GONE, LAST_NUMBER, pack_head, pack_number, waiting_records
from streamsrt.operators.kinds.tables import join_with, look_up
from streamsrt.state.buffer import NO_TIME, record_place
from streamsrt.state.cache import RowFormat
from topology import serdes
from topology.graph import operations
from topology.graph.nodes import ProcessorNode, StoreSpec
from topology.graph.operations.traits import traits_of
from topology.spec.codecs import ProgramSerde


class _Code:
    """The names that the code of one join has for what it uses."""

    def __init__(self, c: Compiler, node: ProcessorNode, op: operations.StreamTableGraceJoin) -> None:
        e = self.e = c.emitter
        self.c, self.node, self.op = c, node, op
        self.key_serde = c.plan.serde_or_default(op.key_serde, "key", node.name)
        self.value_serde = c.plan.serde_or_default(op.value_serde, "value", node.name)
        self.waiting = waiting_records(c.env, op.buffer)
        self.buffer = buffer = e.bind("buffer", self.waiting)
        self.now = c.stream_time(node.name)
        names = ("rows", "start", "number", "first", "last", "holds", "bare", "pending")
        self.rows, self.start, self.number, self.first, self.last, self.holds, self.bare, self.pending = variables = [
            f"{name}_{buffer}" for name in names
        ]
        e.setup(f"{', '.join(variables)} = {buffer}.begin(len(timestamps))")
        e.finish(f"{buffer}.end({self.start}, {self.number})")
        self.time_ms = f"ms_{buffer}"
        e.setup(f"{self.time_ms} = {e.bind('env', c.env)}.program_time_ms")
        self.until = e.temp("u")

    def log(self, store_key: str, row: str) -> None:
        """Logs a row; ''None'': that it is gone."""
        slot = Slot(obj="None") if row == "None" else Slot(raw=row, serde=self.c.plan.value_serde(self._spec))
        self.c.log(self.op.buffer, store_key, Flow(Slot(raw=store_key), slot, self.time_ms, None), self.time_ms)

    @property
    def _spec(self) -> StoreSpec:
        return self.c.plan.specs[self.op.buffer]


def emit_grace_join(c: Compiler, node: ProcessorNode, op: operations.StreamTableGraceJoin, flow: Flow) -> None:
    if c.is_flush or _holds_back_again(c.plan, node):
        raise TooComplex(f"{node.name}: the place of a record that waits is that of the one which was read")
    e = c.emitter
    dropped = e.counter(c.counters, "dropped_null")
    # What can't be read must not wait.
    e.obj(flow.key)
    e.obj(flow.value)
    key, value = flow.key.any, flow.value.any
    with e.block(f"if {value} is None:" if op.left else f"if {key} is None or {value} is None:"):
        e.line(f"{dropped} += 1")
    with e.block("else:"):
        inside = flow.copy()
        inside.value.not_null = True
        inside.key.not_null = inside.key.not_null or not op.left
        code = _Code(c, node, op)
        late = f"{code.now} - {op.grace_ms} > {flow.time}"
        with e.block(f"if {late}:" if inside.key.not_null else f"if {key} is None or {late}:"):
            _join(code, inside.copy())
        with e.block("else:"):
            inside.key.not_null = True
            _emit_wait(code, inside)
            _emit_letting_go(code, has_headers=flow.headers is not None)


def _holds_back_again(plan: ResolvedSubtopology, node: ProcessorNode) -> bool:
    """Whether a later step asks where a record was read."""
    below = [plan.node(name) for name in node.children]
    while below:
        each = below.pop()
        if isinstance(each, ProcessorNode):
            if traits_of(each.operation).holds_back:
                return True
            below += map(plan.node, each.children)
    return False


def _join(code: _Code, flow: Flow) -> None:
    """Joins a record, and forwards the result."""
    found = look_up(code.c, code.op.table, flow)
    if code.op.left:
        join_with(code.c, code.node, code.op, flow, found)
    else:
        with code.e.block(f"if {found} is not None:"):
            join_with(code.c, code.node, code.op, flow, found)


def _bytes_of(code: _Code, slot: Slot, serde: ProgramSerde) -> str:
    """The variable with the bytes of a key or a value that is not None. A failure is one of this step."""
    if slot.raw is not None and same_bytes(slot.serde, serde) and not slot.as_sent:
        return slot.raw
    e = code.e
    given, raw = e.obj(slot), e.temp("r")
    serialized = f"{e.bind('serialize', serde.serialize)}({given})"
    e.line(
        f"{raw} = {given} if type({given}) is bytes else {serialized}"
        if serde is serdes.bytes
        else f"{raw} = {serialized}"
    )
    return raw


def _emit_wait(code: _Code, flow: Flow) -> None:
    """Lets a record wait."""
    e, time = code.e, flow.time
    with e.block(f"if {time} > {code.now}:"):
        e.line(f"{code.now} = {time}")
    key, value = _bytes_of(code, flow.key, code.key_serde), _bytes_of(code, flow.value, code.value_serde)
    store_key, row, whole, headers = (e.temp(prefix) for prefix in ("k", "r", "w", "h"))
    place, offset = code.c.place()
    e.line(f"{code.number} = {code.number} + 1 & {LAST_NUMBER}")
    pack_key, pack_end = e.bind("pack_head", pack_head), e.bind("pack_number", pack_number)
    e.line(f"{store_key} = {pack_key}(0, {time}) + {key} + {pack_end}({code.number})")
    pack, raw_place, last_place = f"pack_{code.buffer}", f"place_{code.buffer}", f"last_place_{code.buffer}"
    e.setup(f"{last_place} = None")
    with e.block(f"if {place} is not {last_place}:"):
        e.line(f"{pack}, {raw_place} = {e.bind('record_place', record_place)}(*{place})")
        e.line(f"{last_place} = {place}")
    e.line(f"{headers} = ()")
    e.line(f"{row} = {pack}({time}, {offset}, {raw_place}, len({value})) + {value} + {e.bind('no_time', NO_TIME)}")
    if flow.headers is not None:
        with e.block(f"if {flow.headers}:"):
            e.line(f"{headers} = tuple({flow.headers})")
            record_row = e.bind("record_row", code.waiting.format.record_row)
            e.line(f"{row} = {record_row}({value}, {time}, {headers}, (*{place}, {offset}))")
    fields = f"{store_key}, {time}, {key}, {value}, {headers}, {place}, {offset}"
    e.line(f"{whole} = ({fields}) if {code.holds} else ({store_key}, {time})")
    with e.block(f"if {time} > {code.last}:"):
        e.line(f"{code.last} = {time}")
        e.line(f"{code.rows}.append({whole})")
    with e.block("else:"):
        e.line(f"{code.buffer}.insert({whole}, {code.start})")
    with e.block(f"if {time} < {code.first}:"):
        e.line(f"{code.first} = {time}")
    # No row has its number.
    e.line(f"{code.pending}[{store_key}] = {row}")
    code.log(store_key, row)


def _emit_letting_go(code: _Code, *, has_headers: bool) -> None:
    """Joins what has waited long enough."""
    e, rows, start = code.e, code.rows, code.start
    store_key, time, key, value, headers = (e.temp(prefix) for prefix in ("k", "t", "k", "v", "h"))
    env, evicted = e.bind("env", code.c.env), e.bind("evicted", code.waiting.evicted)
    e.line(f"{code.until} = {code.now} - {code.op.grace_ms}")
    with e.block(f"while {code.first} <= {code.until}:"):
        whole = f"{code.buffer}.whole({rows}[{start}]) if {code.bare} else {rows}[{start}]"
        e.line(f"{store_key}, {time}, {key}, {value}, {headers}, _, _ = {whole}")
        flow = Flow(
            Slot(raw=key, serde=code.key_serde, not_null=True, obj=_read(code, key, None)),
            Slot(raw=value, serde=code.value_serde, not_null=True, obj=_read(code, key, value)),
            time,
            headers if has_headers else None,
        )
        e.line(f"{env}.evicted = {evicted}")
        _join(code, flow)
        e.line(f"{env}.evicted = None")
        e.line(f"{rows}[{start}] = {e.bind('gone', GONE)}")
        e.line(f"{start} += 1")
        e.line(f"{code.first} = {rows}[{start}][1] if {start} < len({rows}) else {FAR_MS}")
        with e.block(f"if {code.pending}.pop({store_key}, None) is None:"):
            e.line(f"{e.bind('delete', code.waiting.cache.delete_new)}({store_key})")
        code.log(store_key, "None")


def _read(code: _Code, key: str, value: str | None) -> str:
    """The variable with what the bytes of the key, or of the value, mean. A failure is that of the record which was read."""
    e, serde = code.e, code.key_serde if value is None else code.value_serde
    if serde is serdes.bytes:
        return key if value is None else value
    name = e.temp("o")
    if value is None:
        e.line(f"{name} = {e.bind('deserialize', serde.deserialize)}({key})")
    else:
        read = RowFormat(serde.serialize, serde.deserialize, store=code.op.buffer).read
        e.line(f"{name} = {e.bind('read', read)}({key}, {value})")
    return name
