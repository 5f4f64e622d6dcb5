"""``filter``, ``map``, ``branch`` and the like, which look at one record only: their code, and their processor nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import FunctionType

from streamsrt.operators.engine.compiler import Compiler
from streamsrt.operators.engine.emitter import Flow, Slot
from streamsrt.operators.engine.processor_nodes import PathBuilder, PathNode, Process
from streamsrt.operators.key_slices import Reach, always, either
from streamsrt.state.columns import Headers
from topology.graph import operations
from topology.graph.nodes import ProcessorNode, SinkNode


def emit_filter(c: Compiler, node: ProcessorNode, op: operations.Filter, flow: Flow) -> None:
    e = c.emitter
    test = f"{e.bind('predicate', op.predicate)}({e.obj(flow.key)}, {e.obj(flow.value)})"
    with e.block(f"if {'not ' if op.negate else ''}{test}:"):
        c.children(node, flow)


def emit_key_not_null(c: Compiler, node: ProcessorNode, op: operations.KeyNotNull, flow: Flow) -> None:
    unkeyed = c.emitter.counter(c.counters, "unkeyed")
    with c.emitter.block(f"if {flow.key.any} is None:"):
        c.emitter.line(f"{unkeyed} += 1")
    with c.emitter.block("else:"):
        inside = flow.copy()
        inside.key.not_null = True
        c.children(node, inside)


def emit_map(c: Compiler, node: ProcessorNode, op: operations.Map, flow: Flow) -> None:
    e = c.emitter
    key, value = e.temp("k"), e.temp("v")
    e.line(f"{key}, {value} = {e.bind('mapper', op.fn)}({e.obj(flow.key)}, {e.obj(flow.value)})")
    c.children(node, Flow(Slot(obj=key), Slot(obj=value), flow.time, flow.headers))


def emit_select_key(c: Compiler, node: ProcessorNode, op: operations.SelectKey, flow: Flow) -> None:
    e = c.emitter
    if gives_its_second_argument(op.fn):
        c.children(node, Flow(replace(flow.value), flow.value, flow.time, flow.headers))
        return
    key = e.temp("k")
    e.line(f"{key} = {e.bind('mapper', op.fn)}({e.obj(flow.key)}, {e.obj(flow.value)})")
    c.children(node, Flow(Slot(obj=key), flow.value, flow.time, flow.headers))


def _second(_: object, value: object) -> object:
    return value


def gives_its_second_argument(fn: object) -> bool:
    """Whether it is ``lambda key, value: value``, which need not be called: grouping by the value is written so."""
    if type(fn) is not FunctionType:
        return False
    code = fn.__code__
    return (code.co_argcount, code.co_kwonlyargcount, code.co_code) == (2, 0, _second.__code__.co_code)


def _call(c: Compiler, op: operations.MapValues | operations.FlatMapValues, flow: Flow) -> str:
    e = c.emitter
    arguments = f"{e.obj(flow.key)}, {e.obj(flow.value)}" if op.with_key else e.obj(flow.value)
    return f"{e.bind('mapper', op.fn)}({arguments})"


def emit_map_values(c: Compiler, node: ProcessorNode, op: operations.MapValues, flow: Flow) -> None:
    value = c.emitter.temp("v")
    c.emitter.line(f"{value} = {_call(c, op, flow)}")
    c.children(node, Flow(flow.key, Slot(obj=value), flow.time, flow.headers))


def emit_flat_map(c: Compiler, node: ProcessorNode, op: operations.FlatMap, flow: Flow) -> None:
    e = c.emitter
    key, value = e.temp("k"), e.temp("v")
    pairs = f"{e.bind('mapper', op.fn)}({e.obj(flow.key)}, {e.obj(flow.value)})"
    with e.block(f"for {key}, {value} in {pairs}:"):
        c.children(node, Flow(Slot(obj=key), Slot(obj=value), flow.time, flow.headers))


def emit_flat_map_values(c: Compiler, node: ProcessorNode, op: operations.FlatMapValues, flow: Flow) -> None:
    e = c.emitter
    sink = _sink_of_words(c, node)
    if sink is not None:
        _emit_words(c, sink, _call(c, op, flow), flow)
        return
    value = e.temp("v")
    call = _call(c, op, flow)
    c.share_key(node, flow)
    with e.block(f"for {value} in {call}:"):
        inside = flow.copy()
        inside.value = Slot(obj=value)
        c.children(node, inside)


def _sink_of_words(c: Compiler, node: ProcessorNode, *, is_keyed: bool = False) -> SinkNode | None:
    """Where values are written that become their own keys, all at once; None where more is done with each of them."""
    if len(node.children) != 1:
        return None
    child = c.plan.node(node.children[0])
    if isinstance(child, SinkNode):
        is_plain = child.topic is not None and child.partitioner is None
        return child if is_keyed and is_plain and c.plan.key_serde(child) is c.plan.value_serde(child) else None
    assert isinstance(child, ProcessorNode)
    match child.operation:
        case operations.SelectKey(fn=fn) if gives_its_second_argument(fn):
            after = c.plan.node(child.children[0]) if len(child.children) == 1 else None
            # A word that is None has no key, and is dropped there.
            drops = isinstance(after, ProcessorNode) and isinstance(after.operation, operations.KeyNotNull)
            return _sink_of_words(c, child, is_keyed=drops)
        case operations.KeyNotNull() | operations.PassThrough() if is_keyed:
            return _sink_of_words(c, child, is_keyed=True)
    return None


def _emit_words(c: Compiler, sink: SinkNode, call: str, flow: Flow) -> None:
    e = c.emitter
    values = e.temp("v")
    unkeyed = e.counter(c.counters, "unkeyed")
    e.line(f"{values} = {call}")
    # Nearly always nothing is empty, and so nothing is None.
    with e.block(f"if type({values}) is not list or not all({values}):"):
        e.line(f"{values} = list({values})")
        e.line(f"{unkeyed} += sum(value is None for value in {values})")
        e.line(f"{values} = [value for value in {values} if value is not None]")
    with e.at(sink.name):
        c.write_texts(sink, values, flow)


def emit_peek(c: Compiler, node: ProcessorNode, op: operations.Peek | operations.ForEach, flow: Flow) -> None:
    e = c.emitter
    e.line(f"{e.bind('action', op.fn)}({e.obj(flow.key)}, {e.obj(flow.value)})")
    c.children(node, flow)


def emit_pass_through(c: Compiler, node: ProcessorNode, op: operations.PassThrough, flow: Flow) -> None:
    c.children(node, flow)


def emit_branch(c: Compiler, node: ProcessorNode, op: operations.Branch, flow: Flow) -> None:
    e = c.emitter
    key, value = e.obj(flow.key), e.obj(flow.value)
    word = "if"
    for predicate, child in zip(op.predicates, op.children, strict=True):
        if predicate is None:
            header = "else:" if word == "elif" else "if True:"
        else:
            header = f"{word} {e.bind('predicate', predicate)}({key}, {value}):"
        with e.block(header):
            e.line("pass")
            c.child(child, flow.copy())
        if predicate is None:
            return
        word = "elif"


def emit_to_stream(c: Compiler, node: ProcessorNode, op: operations.TableToStream, flow: Flow) -> None:
    c.children(node, Flow(flow.key, flow.value, flow.time, flow.headers))


# ------------------------------------------------------------------------------------------------------ record by record


def make_filter(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op, forward = node.operation, made.forward
    assert isinstance(op, operations.Filter)
    predicate, negate = op.predicate, op.negate
    return lambda k, v, t, h, o: None if bool(predicate(k, v)) is negate else forward(k, v, t, h)


def make_key_not_null(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    forward, counters = made.forward, builder.env.counters

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        if key is None:
            counters.unkeyed += 1
        else:
            forward(key, value, timestamp, headers)

    return process


def make_select_key(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op, forward = node.operation, made.forward
    assert isinstance(op, operations.SelectKey)
    fn = op.fn
    return lambda k, v, t, h, o: forward(fn(k, v), v, t, h)


def make_map_values(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op, forward = node.operation, made.forward
    assert isinstance(op, operations.MapValues)
    fn, with_key = op.fn, op.with_key
    return lambda k, v, t, h, o: forward(k, fn(k, v) if with_key else fn(v), t, h)


def make_to_stream(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    forward = made.forward
    return lambda k, v, t, h, o: forward(k, v, t, h)


def make_pass_through(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    return made.forward


def make_peek(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op, forward = node.operation, made.forward
    assert isinstance(op, operations.Peek | operations.ForEach)
    fn = op.fn

    def peek(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        fn(key, value)
        forward(key, value, timestamp, headers)

    return peek


def make_map(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op, forward = node.operation, made.forward
    assert isinstance(op, operations.Map)
    fn = op.fn

    def map_pair(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        new_key, new_value = fn(key, value)
        forward(new_key, new_value, timestamp, headers)

    return map_pair


def make_flat_map(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op, forward = node.operation, made.forward
    assert isinstance(op, operations.FlatMap)
    fn = op.fn

    def flat_map(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        for new_key, new_value in fn(key, value):
            forward(new_key, new_value, timestamp, headers)

    return flat_map


def make_flat_map_values(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op, forward = node.operation, made.forward
    assert isinstance(op, operations.FlatMapValues)
    fn, with_key = op.fn, op.with_key

    def flat_map_values(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        for new_value in fn(key, value) if with_key else fn(value):
            forward(key, new_value, timestamp, headers)

    return flat_map_values


def make_branch(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.Branch)
    targets = [
        (predicate, made.to(builder.node(child))) for predicate, child in zip(op.predicates, op.children, strict=True)
    ]

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
        for predicate, to_child in targets:
            if predicate is None or predicate(key, value):
                to_child(key, value, timestamp, headers)
                return

    return process


# -------------------------------------------------------------------------------------- records of other keys, in a slice


def kept_by_filter(op: operations.Filter, reaches: Mapping[str, Reach]) -> Reach:
    """The reach of a record that comes to a filter."""
    reach, predicate, negate = either(reaches), op.predicate, op.negate
    return lambda key, value: bool(predicate(key, value)) is not negate and reach(key, value)


def mapped(op: operations.MapValues, reaches: Mapping[str, Reach]) -> Reach:
    """The reach of a record whose value is changed."""
    reach, fn = either(reaches), op.fn
    if reach is always:
        return always
    if op.with_key:
        return lambda key, value: reach(key, fn(key, value))
    return lambda key, value: reach(key, fn(value))


def flat_mapped(op: operations.FlatMapValues, reaches: Mapping[str, Reach]) -> Reach:
    """The reach of a record of which there are any number of values."""
    reach, fn = either(reaches), op.fn
    if op.with_key:
        return lambda key, value: any([reach(key, each) for each in fn(key, value)])
    return lambda key, value: any([reach(key, each) for each in fn(value)])


def branched(op: operations.Branch, reaches: Mapping[str, Reach]) -> Reach:
    """The reach of a record that goes to the first branch that takes it."""
    branches = list(zip(op.predicates, op.children, strict=True))

    def reach(key: object, value: object) -> bool:
        for predicate, child in branches:
            if predicate is None or predicate(key, value):
                return child in reaches and reaches[child](key, value)
        return False

    return reach
