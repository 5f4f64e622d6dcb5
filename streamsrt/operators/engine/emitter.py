"""Writes the source of one generated function and remembers which node each of its lines belongs to.

1. Objects that the function needs (user functions, serdes, caches) are *bound*: they become default arguments, and so
   locals.
2. A :class:`Slot` is what is known of one value at a point of the code: its variable as an object, its variable as
   bytes, and the serde of those bytes. :meth:`Emitter.obj` and :meth:`Emitter.raw` write a conversion only where it is
   missing: a value that nobody reads is not deserialized (unless the source does it, for a handler that wants all to be
   read), and a value that came as bytes is sent as the same bytes. In stores and changelogs, it is as its serde writes
   it (:meth:`Emitter.written`), whichever code stores it.
3. A slot's variables are assigned in the block in which they were requested. The flow is copied before a block is
   entered.
4. Where all that is done per record is to append some of the columns to lists as they are, there is no loop: the lists
   are the columns.
5. The source stays in ``linecache``: tracebacks show the generated line, whose comment names the node.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from operator import attrgetter
from struct import Struct
from types import CodeType
from typing import Any, Literal
from zlib import crc32

from streamsrt.operators.engine.plan import same_bytes
from topology import serdes
from topology.spec.codecs import ProgramSerde
from topology.spec.windows import Windowed

Stage = Literal["deserialization", "processing", "production"]
_unpack_long = Struct(">q").unpack


@dataclass(slots=True)
class Slot:
    """A value: ``obj`` and ``raw`` are names of variables or None. ``not_null``: it was tested. ``as_sent``: ``raw`` is how
    another program wrote the value; ``written``: the variable with what a serde writes instead, and which serde."""

    obj: str | None = None
    raw: str | None = None
    serde: ProgramSerde | None = None
    not_null: bool = False
    as_sent: bool = False
    written: tuple[str, ProgramSerde] | None = None

    @property
    def any(self) -> str:
        """Whichever variable there is: enough to test for None."""
        return self.obj or self.raw or "None"


@dataclass(slots=True)
class WindowedSlot(Slot):
    """A windowed key, made of the inner key and the window's start and end. ``store_key``: its bytes in the changelog."""

    inner: Slot | None = None
    start: str = ""
    end: str = ""
    store_key: str | None = None

    @property
    def any(self) -> str:
        """Before the key itself is made there is at least its start."""
        return self.obj or self.raw or self.start


@dataclass(slots=True)
class Flow:
    """One record at a point of the code."""

    key: Slot
    value: Slot
    time: str
    headers: str | None
    old: Slot | None = None

    def copy(self) -> Flow:
        old = None if self.old is None else replace(self.old)
        key = replace(self.key)
        if isinstance(key, WindowedSlot) and key.inner is not None:
            key.inner = replace(key.inner)
        return Flow(key, replace(self.value), self.time, self.headers, old)


class Emitter:
    """The source under construction."""

    def __init__(self, headers: bool) -> None:
        self.headers = headers
        self.bound: dict[str, Any] = {}
        self.prologue: list[str] = []
        self.epilogue: list[str] = []
        self.body: list[str] = []
        self.origins: list[tuple[str, Stage]] = []
        self.node = ""
        self.stage: Stage = "processing"
        self._depth = 3
        self._names = count()
        self._by_identity: dict[tuple[str, int], str] = {}
        self._once: set[str] = set()
        self._lists: dict[str, str] = {}
        """What is appended to which list; the last of it, where it is more than one thing."""

    # ------------------------------------------------------------------------------------------------- writing

    def line(self, text: str, stage: Stage | None = None) -> None:
        comment = f"  # {self.node}" if self.node else ""
        self.body.append("    " * self._depth + text + comment.replace("\n", " "))
        self.origins.append((self.node, stage or self.stage))

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def at(self, node: str) -> Iterator[None]:
        before, self.node = self.node, node
        yield
        self.node = before

    @property
    def depth(self) -> int:
        return self._depth

    def temp(self, prefix: str) -> str:
        return f"{prefix}{next(self._names)}"

    def bind(self, prefix: str, value: object) -> str:
        """The name under which the function knows ``value``."""
        key = (prefix, id(value))
        name = self._by_identity.get(key)
        if name is None:
            name = self._by_identity[key] = self.temp(prefix + "_")
            self.bound[name] = value
        return name

    def setup(self, *lines: str) -> None:
        """Lines before the loop, each once."""
        for text in lines:
            if text not in self._once:
                self._once.add(text)
                self.prologue.append(text)

    def finish(self, *lines: str) -> None:
        """Lines after the loop, each once; they run after an exception too."""
        for text in lines:
            if text not in self._once:
                self._once.add(text)
                self.epilogue.append(text)

    def add(self, to: str, value: str, how: Literal["append", "extend"]) -> None:
        """Adds to a list that is made before the loop.

        The method is looked up each time: CPython has an instruction for that, which is quicker than a call of it by name.
        """
        self.setup(f"{to} = []")
        self.line(f"{to}.{how}({value})")
        self._lists[to] = value

    def _pass_on(self, columns: dict[str, str]) -> None:
        """Leaves out the loop where rule 4 applies. ``columns``: by the name of their value in a row."""
        lists = self._lists
        does_nothing_else = len(self.body) == len(lists) and len(self.prologue) == len(lists)
        if does_nothing_else and columns.keys() >= set(lists.values()):
            self.body = []
            # The first column is an iterator, of which a failure tells how far it has come.
            first = next(iter(columns.values()))
            self.prologue = [f"{first} = list({first})", *(f"{to} = {columns[value]}" for to, value in lists.items())]

    def counter(self, counters: object, attribute: str) -> str:
        """A local integer that is added to ``counters.attribute`` at the end."""
        bound = self.bind("counters", counters)
        local = f"n_{attribute}"
        self.setup(f"{local} = 0")
        self.finish(f"{bound}.{attribute} += {local}")
        return local

    # ------------------------------------------------------------------------------------------------- values

    def obj(self, slot: Slot) -> str:
        """The variable that holds the value as an object."""
        if slot.obj is not None:
            return slot.obj
        if isinstance(slot, WindowedSlot) and slot.inner is not None:
            slot.obj = self._windowed(slot, slot.inner)
        elif slot.raw is None or slot.serde is None:
            slot.obj = "None"
        elif slot.serde is serdes.bytes:
            slot.obj = slot.raw
        else:
            slot.obj = self.temp("o")
            expression = self._deserialize(slot.serde, slot.raw)
            self.line(f"{slot.obj} = {_nullable(slot, slot.raw, expression)}", "deserialization")
        return slot.obj

    def _windowed(self, slot: WindowedSlot, inner: Slot) -> str:
        name = self.temp("o")
        # What a named tuple does, at half of the time.
        new, windowed = self.bind("new", tuple.__new__), self.bind("windowed", Windowed)
        self.line(f"{name} = {new}({windowed}, ({self.obj(inner)}, {slot.start}, {slot.end}))")
        return name

    def raw(self, slot: Slot, serde: ProgramSerde, *, twin: Slot | None = None, stage: Stage = "processing") -> str:
        """The variable that holds the value as bytes of ``serde``.

        ``twin``: has bytes already, and is often the same object. ``stage``: what fails where the serde can't write it.
        """
        if slot.raw is not None and same_bytes(slot.serde, serde):
            return slot.raw
        if isinstance(slot, WindowedSlot) and slot.store_key is not None and _is_windowed_bytes(slot, serde):
            name = slot.store_key
            if isinstance(serde, serdes.TimeWindowedSerde):
                name = self.temp("r")
                self.line(f"{name} = {slot.store_key}[:-4]")
        else:
            source = self.obj(slot)
            if source == "None":
                return "None"
            if twin is not None and twin.obj == source and twin.raw and twin.serde is serde:
                return twin.raw
            name = self.temp("r")
            expression = self._serialized(slot, serde, source)
            if twin is not None and twin.obj and twin.raw and twin.serde is serde:
                expression = f"{twin.raw} if {source} is {twin.obj} else {expression}"
            self.line(f"{name} = {expression}", stage)
        if slot.raw is None:
            slot.raw, slot.serde = name, serde
        return name

    def written(self, slot: Slot, serde: ProgramSerde) -> str:
        """The variable that holds the value as ``serde`` writes it: how it is stored and logged, as in Kafka Streams."""
        if not slot.as_sent:
            return self.raw(slot, serde)
        if slot.written is None or slot.written[1] is not serde:
            slot.written = self.raw(Slot(obj=self.obj(slot), not_null=slot.not_null), serde), serde
        return slot.written[0]

    def _deserialize(self, serde: ProgramSerde, raw: str) -> str:
        if serde is serdes.long:
            return f"{self.bind('unpack', _unpack_long)}({raw})[0]"
        return f"{self.bind('deserialize', serde.deserialize)}({raw})"

    def _serialized(self, slot: Slot, serde: ProgramSerde, value: str) -> str:
        expression = f"{self.bind('serialize', serde.serialize)}({value})"
        if serde is serdes.bytes:
            return f"{value} if type({value}) is bytes or {value} is None else {expression}"
        return _nullable(slot, value, expression)

    # ------------------------------------------------------------------------------------------------- result

    def build(self, title: str, columns: list[str], variables: list[str]) -> Generated:
        """The function ``run(<columns>)``: a loop over the columns, then the epilogue."""
        self._pass_on(dict(zip(variables, columns, strict=True)))
        bound = ", ".join(f"{name}={name}" for name in self.bound)
        head = [f"def run({', '.join(columns)}, {'*, ' + bound if bound else ''}):"]
        head += ["    " + text for text in self.prologue]
        loop = f"for {', '.join(variables)} in zip({', '.join(columns)}):"
        if len(columns) == 1:
            loop = f"for {variables[0]} in {columns[0]}:"
        head += ["    try:", f"        {loop}" if self.body else "        pass"]
        tail = ["    finally:", *("        " + text for text in self.epilogue or ["pass"])]
        source = "\n".join(head + self.body + tail) + "\n"
        # Tasks of one subtopology share their code: as many files as there are programs, however often tasks move.
        filename = f"<streamsrt {title} #{crc32(source.encode()):08x}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        namespace = dict(self.bound)
        exec(_compiled(source, filename), namespace)
        return Generated(namespace["run"], attrgetter(*columns), source, filename, len(head) + 1, self.origins)


@lru_cache(maxsize=256)
def _compiled(source: str, filename: str) -> CodeType:
    return compile(source, filename, "exec")


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated function, and the data to locate a failure in it. ``columns_of``: its arguments, two at least, out of an
    object that has them as attributes. ``takes_places``: the last two are each record's topic and partition, and offset."""

    run: Callable[..., None]
    columns_of: Callable[[object], tuple[Sequence[object], ...]]
    source: str
    filename: str
    first_line: int
    origins: list[tuple[str, Stage]]
    takes_places: bool = False

    def is_done(self, error: BaseException) -> bool:
        """Whether the loop was over when the function raised ``error``: what it has written was refused."""
        return not self.origin(error)[0]

    def origin(self, error: BaseException) -> tuple[str, Stage]:
        """The node, and what it was doing, when the function raised ``error``."""
        traceback = error.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self.filename:
                index = traceback.tb_lineno - self.first_line
                if 0 <= index < len(self.origins):
                    return self.origins[index]
            traceback = traceback.tb_next
        return ("", "production")


def _nullable(slot: Slot, variable: str, expression: str) -> str:
    return expression if slot.not_null else f"None if {variable} is None else {expression}"


def _is_windowed_bytes(slot: WindowedSlot, serde: ProgramSerde) -> bool:
    return (
        isinstance(serde, serdes.TimeWindowedSerde | serdes.SessionWindowedSerde)
        and slot.inner is not None
        and same_bytes(slot.inner.serde, serde.inner)
    )
