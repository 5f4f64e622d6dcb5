"""One generated function per source of a subtopology, and one per store whose cache forwards when it is flushed.

Another function has a branch for each source. It takes records of several sources in their order, if runs of a single
source would be short.

1. The function loops over the columns of a run. Operations are straight-line code in the loop, depth first and in the
   order of children: the same as Kafka Streams does per record, without its calls.
2. Records for sinks and changelogs are appended to columns, which are handed to the collector once, after the loop;
   also after an exception, because everything before the failing record is done.
3. Operations that the generator does not support, or that would make a function too large or too deep, run on processor
   nodes (:mod:`streamsrt.operators.engine.processor_nodes`): :class:`TooComplex`. Both give the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Literal

from streamsrt.operators.engine.canonical_keys import CanonicalKeys
from streamsrt.operators.engine.emitter import Emitter, Flow, Generated, Slot, WindowedSlot
from streamsrt.operators.engine.environment import Environment
from streamsrt.operators.engine.handlers import fail
from streamsrt.operators.engine.placement import checked
from streamsrt.operators.engine.plan import StreamTime, same_bytes
from streamsrt.operators.engine.written_texts import WrittenTexts
from topology import serdes
from topology.graph.nodes import ProcessorNode, SinkNode, SourceNode
from topology.graph.operations import Operation
from topology.graph.operations.traits import Reads, has_one_result, has_sessions, takes_key, traits_of, window_size_ms
from topology.spec.codecs import has_one_form

_FAR = 2**63
NODES_MAX = 300
DEPTH_MAX = 60

Emit = Callable[["Compiler", ProcessorNode, Any, Flow], None]  # each takes its own class of operations
"""Writes the code of one operation; the third argument is the node's operation."""


class TooComplex(Exception):
    """This part of the graph runs on processor nodes."""


class Compiler:
    """Compiles functions for one task, which share its ``env`` with the processor nodes.

    ``emits``: the code of each operation that has some. ``of_versions``: those whose code knows versioned stores.
    """

    def __init__(self, env: Environment, emits: Mapping[type, Emit], of_versions: frozenset[type]) -> None:
        self.env = env
        self._emits = emits
        self._of_versions = of_versions
        self.plan = env.plan
        self.caches = env.caches
        self.counters = env.counters
        self.emitter = Emitter(headers=False)
        self.is_flush = False
        """Whether the function is for changes that leave a cache, not for records of a source."""
        self._nodes = 0
        self._takes_places = False
        """Whether the function is told where records were read."""
        self._outputs: dict[str, tuple[str, str]] = {}
        self._texts: dict[str, WrittenTexts] = {}
        self._known_reads: dict[str, tuple[bool, bool]] = {}
        self.next_sequence = env.sequence.__next__

    # ------------------------------------------------------------------------------------------------- functions

    def source(self, name: str, *, headers: bool) -> Generated:
        """``run(keys, values, timestamps[, headers])`` for records of a source."""
        self._start(headers, is_flush=False)
        self._source(name, headers=headers)
        columns = ["keys", "values", "timestamps", *(["headers"] if headers else [])]
        return self._build(name, columns, ["k", "v", "t", *(["h"] if headers else [])], takes_places=self._takes_places)

    def sources(self, names: Sequence[str], *, headers: bool) -> Generated:
        """``run(keys, values, timestamps[, headers], sources)`` for records of several sources, in the order in which they
        come. ``sources``: for each record the index of its source in ``names``."""
        self._start(headers, is_flush=False)
        for index, name in enumerate(names):
            with self.emitter.block(f"{'if' if index == 0 else 'elif'} of == {index}:"):
                self.emitter.line("pass")
                self._source(name, headers=headers)
        columns = ["keys", "values", "timestamps", *(["headers"] if headers else []), "sources"]
        variables = ["k", "v", "t", *(["h"] if headers else []), "of"]
        return self._build(", ".join(names), columns, variables, takes_places=self._takes_places)

    def _source(self, name: str, *, headers: bool) -> None:
        """The code for a record of a source."""
        node = self.plan.node(name)
        assert isinstance(node, SourceNode)
        value_serde = self.plan.value_serde(node)
        flow = Flow(
            Slot(raw="k", serde=self.plan.key_serde(node)),
            Slot(raw="v", serde=value_serde, as_sent=not has_one_form(value_serde)),
            "t",
            "h" if headers else None,
        )
        if not has_one_form(self.plan.key_serde(node)):
            canonical = self.emitter.bind("canonical", CanonicalKeys(self.plan.key_serde(node)))
            with self.emitter.at(name):
                self.emitter.line(f"k = {canonical}[k]", "deserialization")
        if not self._is_straight(name):
            self._refuse_skipping()
        if self.plan.handlers.reads_all:
            with self.emitter.at(name):
                self.emitter.obj(flow.key)
                self.emitter.obj(flow.value)
        self.children(node, flow)

    def flush(self, name: str, *, headers: bool) -> Generated:
        """``run(keys, values, raw_values, timestamps, ...)`` for changes that leave the cache of a node's store."""
        node = self.plan.node(name)
        assert isinstance(node, ProcessorNode)
        self._start(headers, is_flush=True)
        self._refuse_skipping()
        spec = self.plan.specs[_store_of(node)]
        key: Slot = Slot(raw="k", serde=self.plan.key_serde(spec), not_null=True)
        columns = ["keys", "values", "raw_values", "timestamps"]
        variables = ["k", "v", "r", "t"]
        size_ms, time = window_size_ms(node.operation), "t"
        if has_sessions(node.operation):
            key, time = WindowedSlot(not_null=True, inner=key, start="w", end="x", store_key="c"), "x"
            columns += ["starts", "ends", "store_keys"]
            variables += ["w", "x", "c"]
        elif size_ms is not None:
            key = WindowedSlot(not_null=True, inner=key, start="w", end=f"w + {size_ms}", store_key="c")
            columns += ["starts", "store_keys"]
            variables += ["w", "c"]
        flow = Flow(key, Slot(obj="v", raw="r", serde=self.plan.value_serde(spec)), time, "h" if headers else None)
        if node.sends_old_values:
            flow.old = Slot(obj="b")
            columns.append("olds")
            variables.append("b")
        if headers:
            columns.append("headers")
            variables.append("h")
        self.children(node, flow)
        return self._build(f"{name} (flush)", columns, variables)

    def _start(self, headers: bool, *, is_flush: bool) -> None:
        self.is_flush = is_flush
        self.emitter = Emitter(headers)
        self._nodes = 0
        self._outputs = {}
        self._takes_places = False

    def _build(self, title: str, columns: list[str], variables: list[str], *, takes_places: bool = False) -> Generated:
        if takes_places:
            columns, variables = [*columns, "places", "offsets"], [*variables, "at", "offset"]
        try:
            return replace(self.emitter.build(title, columns, variables), takes_places=takes_places)
        except SyntaxError as error:
            raise TooComplex(f"{title}: {error}") from error

    def _is_straight(self, name: str) -> bool:
        """Whether skipping the record is skipping the failing child: there is never more than one."""
        node = self.plan.node(name)
        while not isinstance(node, SinkNode):
            if len(node.children) > 1 or (isinstance(node, ProcessorNode) and not has_one_result(node.operation)):
                return False
            if not node.children:
                return True
            node = self.plan.node(node.children[0])
        return True

    def _refuse_skipping(self) -> None:
        handlers = self.plan.handlers
        if handlers.processing is not fail or handlers.production is not fail:
            raise TooComplex("a failing child may be skipped while its siblings continue")

    # ------------------------------------------------------------------------------------------------- for operations

    def children(self, node: SourceNode | ProcessorNode, flow: Flow) -> None:
        self._count_forwarded(node.name)
        self.share(node, flow)
        for child in node.result_children:
            self.child(child, flow.copy())

    def late(self, node: ProcessorNode, flow: Flow) -> None:
        """Forwards a record to the children that get late records."""
        if node.late is not None:
            self.child(node.late, flow.copy())

    def child(self, name: str, flow: Flow) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX or self.emitter.depth > DEPTH_MAX:
            raise TooComplex(f"more than {NODES_MAX} steps or {DEPTH_MAX} levels behind one source")
        node = self.plan.node(name)
        with self.emitter.at(name):
            if isinstance(node, SinkNode):
                self._sink(node, flow)
                return
            assert isinstance(node, ProcessorNode)
            if not all(self._is_known(store, node.operation) for store in node.stores):
                raise TooComplex(f"{name}: its store is kept record by record")
            emit = self._emits.get(type(node.operation))
            if emit is None:
                raise TooComplex(f"{name}: {type(node.operation).__name__}")
            self._count(name, flow.time)
            emit(self, node, node.operation, flow)

    def _is_known(self, store: str, operation: Operation) -> bool:
        """Whether the operation's code changes or reads such a store."""
        if self.plan.keeps_versions(store):
            return type(operation) in self._of_versions
        return self.plan.is_plain(store)

    def _count(self, name: str, time: str) -> None:
        """Counts what comes to a node, where nodes are measured."""
        meter = self.env.node_meters.get(name)
        if meter is None:
            return
        e = self.emitter
        came = e.bind("came", meter.came)
        e.setup(f"n_{came} = s_{came} = 0", f"l_{came}, h_{came} = {_FAR}, -{_FAR}")
        e.finish(f"{came}(n_{came}, s_{came}, l_{came}, h_{came}, {e.bind('env', self.env)}.system_time_ms)")
        e.line(f"n_{came} += 1")
        if meter.timed:
            e.line(f"s_{came} += {time}")
            e.line(f"if {time} < l_{came}: l_{came} = {time}")
            e.line(f"if {time} > h_{came}: h_{came} = {time}")

    def _count_forwarded(self, name: str) -> None:
        meter = self.env.node_meters.get(name)
        if meter is not None:
            bound = self.emitter.bind("meter", meter)
            self.emitter.setup(f"f_{bound} = 0")
            self.emitter.finish(f"{bound}.forwarded += f_{bound}")
            self.emitter.line(f"f_{bound} += 1")

    def share(self, node: SourceNode | ProcessorNode, flow: Flow) -> None:
        """Deserialises what several children would deserialise each for itself."""
        if len(node.result_children) > 1:
            reads = [self._reads(child) for child in node.result_children]
            if sum(key for key, _ in reads) > 1:
                self.emitter.obj(flow.key)
            if sum(value for _, value in reads) > 1:
                self.emitter.obj(flow.value)

    def share_key(self, node: ProcessorNode, flow: Flow) -> None:
        """Deserialises the key that several results have in common, if a child surely reads it."""
        if any(self._reads(child)[0] for child in node.children):
            self.emitter.obj(flow.key)

    def _reads(self, name: str) -> tuple[bool, bool]:
        """Whether a node surely reads the key, the value of what it gets."""
        found = self._known_reads.get(name)
        if found is None:
            # There may be many ways to a node: each pair of branches that is merged again doubles them.
            found = self._known_reads[name] = self._reads_or_children_do(name)
        return found

    def _reads_or_children_do(self, name: str) -> tuple[bool, bool]:
        node = self.plan.node(name)
        if not isinstance(node, ProcessorNode):
            return (False, False)
        match traits_of(node.operation).reads:
            case Reads.NOTHING:
                return (False, False)
            case Reads.VALUE:
                return (False, True)
            case Reads.BOTH:
                return (True, True)
            case Reads.MAPPED_VALUE:
                return (takes_key(node.operation) or any(self._reads(child)[0] for child in node.children), True)
            case Reads.AS_CHILDREN:
                below = [self._reads(child) for child in node.children]
                return (any(key for key, _ in below), any(value for _, value in below))

    def known_bytes(self, key: Slot, store: str) -> str | None:
        """The variable with the bytes that a key has in a store; None where they are not known, or the key may be None."""
        serde = self.plan.key_serde(self.plan.specs[store])
        return key.raw if key.not_null and key.raw is not None and same_bytes(key.serde, serde) else None

    def dirty_list(self, store: str) -> str:
        """The local that appends to the store's list of changed entries."""
        cache = self.emitter.bind("cache", self.caches[store])
        name = f"dirty_{cache}"
        self.emitter.setup(f"{name} = {cache}.dirty.append")
        return name

    def place(self) -> tuple[str, str]:
        """The variables with the topic and partition, and with the offset, of the record that was read. Not for flushes."""
        self._takes_places = True
        return "at", "offset"

    def stream_time(self, node: str) -> str:
        """The local with the stream time that a windowed operation observed."""
        holder = self.emitter.bind("time", self.stream_time_of(node))
        name = f"now_{holder}"
        self.emitter.setup(f"{name} = {holder}.ms")
        self.emitter.finish(f"{holder}.ms = {name}")
        return name

    def stream_time_of(self, node: str) -> StreamTime:
        """The stream time that a windowed operation observed."""
        return self.env.stream_times.setdefault(node, StreamTime())

    def _logs_at_once(self, store: str) -> bool:
        return self.plan.writes_changelog(store) and not self.plan.is_cached(store)

    def write_first(self, store: str, value: Slot) -> None:
        """Serializes a value that is to be logged at once, before its row is changed: a handler may skip a record whose
        value the serde can't write, and the next flush would fail for the row."""
        if self._logs_at_once(store):
            self.emitter.written(value, self.plan.value_serde(self.plan.specs[store]))

    def serializer_of_log(self, store: str) -> Callable[[object], bytes] | None:
        """What writes values for a changelog whose records are written at once; None where there is none."""
        return self.plan.value_serde(self.plan.specs[store]).serialize if self._logs_at_once(store) else None

    def logged_slot(self, store: str, obj: str, raw: str) -> Slot:
        """A value of which there are the bytes too if it is logged at once."""
        if not self._logs_at_once(store):
            return Slot(obj=obj)
        return Slot(obj=obj, raw=raw, serde=self.plan.value_serde(self.plan.specs[store]))

    def log(self, store: str, key: str, flow: Flow, time: str, *, headers: bool = False) -> None:
        """Appends the flow's value to the store's changelog, where it has one."""
        if not self.plan.writes_changelog(store):
            return
        e = self.emitter
        value = e.written(flow.value, self.plan.value_serde(self.plan.specs[store]))
        topic = self.plan.changelog_topic(store)
        assert topic is not None
        columns, each = {"k": key, "v": value, "t": time}, "None"
        if headers and flow.headers is not None:
            columns["h"], each = flow.headers, "{h}"
        self._append(topic, columns, f"{{k}}, {{v}}, {{t}}, {each}, {self.env.task_partition}")

    def write_texts(self, sink: SinkNode, values: str, flow: Flow) -> None:
        """Writes the objects in the list ``values`` to a sink, each as key and as value, with the record's time and
        headers."""
        e, serde, collect = self.emitter, self.plan.key_serde(sink), self.env.collect_texts
        assert sink.topic is not None
        topic = self.plan.topic(sink.topic, sink.repartition)
        if collect is None or serde is not serdes.string or flow.headers is not None or not self._is_alone(sink, topic):
            raw = e.temp("r")
            e.line(f"{raw} = list(map({e.bind('serialize', serde.serialize)}, {values}))", "production")
            self._write_all(sink, raw, flow)
            return
        texts = self._texts.get(topic)
        if texts is None:
            texts = self._texts[topic] = WrittenTexts(topic, self.env.collect, collect)
        written = e.bind("texts", texts)
        e.setup(f"add_{written} = {written}.add")
        e.line(f"add_{written}({values}, {flow.time})", "production")
        e.finish(f"{written}.send()")

    def _is_alone(self, sink: SinkNode, topic: str) -> bool:
        """Whether nothing else is written to the topic than what a single node with several results has."""
        nodes = self.plan.subtopology.nodes
        others = (other for other in self.plan.subtopology.sinks if other is not sink)
        if any(other.topic is None or self.plan.topic(other.topic, other.repartition) == topic for other in others):
            return False
        name = sink.name
        while True:
            parents = [node for node in nodes if not isinstance(node, SinkNode) and name in node.children]
            if len(parents) != 1:
                return False
            if isinstance(parents[0], SourceNode) or not has_one_result(parents[0].operation):
                return True
            name = parents[0].name

    def _write_all(self, sink: SinkNode, raw: str, flow: Flow) -> None:
        """Writes the bytes in the list ``raw`` to a sink, each as key and as value."""
        assert sink.topic is not None
        repeat_ = self.emitter.bind("repeat", repeat)
        columns = {"k": raw, "v": raw, "t": f"{repeat_}({flow.time}, len({raw}))"}
        call = "{k}, {v}, {t}"
        if flow.headers is not None:
            columns["h"] = f"{repeat_}({flow.headers}, len({raw}))"
            call += ", {h}"
        self._append(self.plan.topic(sink.topic, sink.repartition), columns, call, how="extend")

    def _append(
        self, topic: str, columns: dict[str, str], call: str, how: Literal["append", "extend"] = "append"
    ) -> None:
        """Appends to the topic's output columns; after the loop the collector gets them as ``call`` says.

        All that goes to one topic shares the columns, so that it keeps its order.
        """
        e = self.emitter
        known = self._outputs.get(topic)
        if known is None:
            known = self._outputs[topic] = (e.temp("out"), call)
        out, first_call = known
        if first_call != call:
            raise TooComplex(f"records for {topic} are partitioned in different ways")
        for column, value in columns.items():
            e.add(out + column, value, how)
        collect = e.bind("collect", self.env.collect)
        e.finish(f"if {out}k: {collect}({topic!r}, {call.format(**{c: out + c for c in columns})})")

    def _sink(self, node: SinkNode, flow: Flow) -> None:
        if node.topic is None:
            raise TooComplex(f"{node.name}: the topic is chosen for each record")
        e = self.emitter
        topic = self.plan.topic(node.topic, node.repartition)
        is_new = flow.key.raw is None
        key = e.raw(flow.key, self.plan.key_serde(node), stage="production")
        if is_new and self.plan.key_serde(node) is serdes.string:
            # A stream of words that is grouped by word.
            value = e.raw(flow.value, self.plan.value_serde(node), twin=flow.key, stage="production")
        else:
            value = e.raw(flow.value, self.plan.value_serde(node), stage="production")
        columns = {"k": key, "v": value, "t": flow.time}
        call = "{k}, {v}, {t}"
        if flow.headers is not None:
            columns["h"] = flow.headers
            # Records without headers are written more quickly.
            call += ", {h} if any({h}) else None"
        if node.partitioner is not None:
            chosen = e.temp("p")
            partitions = self.env.partitions_of_topic(topic)
            choose = e.bind("partitioner", node.partitioner)
            e.line(f"{chosen} = {choose}({topic!r}, {e.obj(flow.key)}, {e.obj(flow.value)}, {partitions})")
            with e.block(f"if type({chosen}) is not int or not 0 <= {chosen} < {partitions}:"):
                e.line(f"{chosen} = {e.bind('checked', checked)}({topic!r}, {chosen}, {partitions})")
            columns["p"] = chosen
            call += ", partition={p}"
        elif isinstance(flow.key, WindowedSlot) and flow.key.inner is not None:
            columns["i"] = flow.key.inner.raw or key
            call += ", partition_keys={i}"
        self._append(topic, columns, call)


def _store_of(node: ProcessorNode) -> str:
    store = getattr(node.operation, "store", None)
    assert isinstance(store, str)
    return store
