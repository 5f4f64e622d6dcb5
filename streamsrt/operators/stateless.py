"""Code of the operations that look at one record only."""

from __future__ import annotations

from dataclasses import replace
from types import FunctionType

from streamsrt.operators.compiler import Compiler, emits
from streamsrt.operators.emitter import Flow, Slot
from topology.graph import operations
from topology.graph.nodes import ProcessorNode, SinkNode


@emits(operations.Filter)
def emit_filter(c: Compiler, node: ProcessorNode, op: operations.Filter, flow: Flow) -> None:
    e = c.emitter
    test = f"{e.bind('predicate', op.predicate)}({e.obj(flow.key)}, {e.obj(flow.value)})"
    with e.block(f"if {'not ' if op.negate else ''}{test}:"):
        c.children(node, flow)


@emits(operations.KeyNotNull)
def emit_key_not_null(c: Compiler, node: ProcessorNode, op: operations.KeyNotNull, flow: Flow) -> None:
    with c.emitter.block(f"if {flow.key.any} is not None:"):
        inside = flow.copy()
        inside.key.not_null = True
        c.children(node, inside)


@emits(operations.Map)
def emit_map(c: Compiler, node: ProcessorNode, op: operations.Map, flow: Flow) -> None:
    e = c.emitter
    key, value = e.temp("k"), e.temp("v")
    e.line(f"{key}, {value} = {e.bind('mapper', op.fn)}({e.obj(flow.key)}, {e.obj(flow.value)})")
    c.children(node, Flow(Slot(obj=key), Slot(obj=value), flow.time, flow.headers))


@emits(operations.SelectKey)
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


@emits(operations.MapValues)
def emit_map_values(c: Compiler, node: ProcessorNode, op: operations.MapValues, flow: Flow) -> None:
    value = c.emitter.temp("v")
    c.emitter.line(f"{value} = {_call(c, op, flow)}")
    c.children(node, Flow(flow.key, Slot(obj=value), flow.time, flow.headers))


@emits(operations.FlatMap)
def emit_flat_map(c: Compiler, node: ProcessorNode, op: operations.FlatMap, flow: Flow) -> None:
    e = c.emitter
    key, value = e.temp("k"), e.temp("v")
    pairs = f"{e.bind('mapper', op.fn)}({e.obj(flow.key)}, {e.obj(flow.value)})"
    with e.block(f"for {key}, {value} in {pairs}:"):
        c.children(node, Flow(Slot(obj=key), Slot(obj=value), flow.time, flow.headers))


@emits(operations.FlatMapValues)
def emit_flat_map_values(c: Compiler, node: ProcessorNode, op: operations.FlatMapValues, flow: Flow) -> None:
    e = c.emitter
    sink = _sink_of_words(c, node)
    if sink is not None:
        _emit_words(c, sink, _call(c, op, flow), flow)
        return
    value = e.temp("v")
    call = _call(c, op, flow)
    c.share(node, flow)
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
    values, raw = e.temp("v"), e.temp("r")
    e.line(f"{values} = {call}")
    # Nearly always nothing is empty, and so nothing is None.
    with e.block(f"if type({values}) is not list or not all({values}):"):
        e.line(f"{values} = [value for value in {values} if value is not None]")
    with e.at(sink.name):
        e.line(f"{raw} = list(map({e.bind('serialize', c.plan.key_serde(sink).serialize)}, {values}))", "production")
        c.write_all(sink, raw, flow)


@emits(operations.Peek, operations.ForEach)
def emit_peek(c: Compiler, node: ProcessorNode, op: operations.Peek | operations.ForEach, flow: Flow) -> None:
    e = c.emitter
    e.line(f"{e.bind('action', op.fn)}({e.obj(flow.key)}, {e.obj(flow.value)})")
    c.children(node, flow)


@emits(operations.PassThrough)
def emit_pass_through(c: Compiler, node: ProcessorNode, op: operations.PassThrough, flow: Flow) -> None:
    c.children(node, flow)


@emits(operations.Branch)
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


@emits(operations.TableToStream)
def emit_to_stream(c: Compiler, node: ProcessorNode, op: operations.TableToStream, flow: Flow) -> None:
    c.children(node, Flow(flow.key, flow.value, flow.time, flow.headers))
