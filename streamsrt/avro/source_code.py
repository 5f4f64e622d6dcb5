"""The lines of a generated function, and how they are compiled."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from zlib import crc32

from streamsrt.avro.schemas import Unsupported

LINES_MAX = 5_000


class SourceCode:
    """The lines of one function, and the objects that it uses. Raises Unsupported where they are too many."""

    def __init__(self, head: str) -> None:
        self._head = head
        self._lines: list[str] = []
        self._depth = 1
        self._numbers = count()
        self._bound: dict[str, object] = {}

    def line(self, *texts: str) -> None:
        for text in texts:
            self._lines.append("    " * self._depth + text)
        if len(self._lines) > LINES_MAX:
            raise Unsupported

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        """A new variable."""
        return f"{prefix}{next(self._numbers)}"

    def bind(self, value: object) -> str:
        """The name under which the function knows an object."""
        name = self.name("_")
        self._bound[name] = value
        return name

    def compiled(self, known: Mapping[str, object]) -> object:
        """The function. ``known``: more names that it uses."""
        names = {**known, **self._bound}
        head = self._head.replace("*", ", ".join(f"{name}={name}" for name in names))
        source = "\n".join([head, *self._lines]) + "\n"
        filename = f"<streamsrt avro #{crc32(source.encode()):08x}>"
        namespace: dict[str, object] = dict(names)
        try:
            exec(compile(source, filename, "exec"), namespace)
        except SyntaxError as error:  # too deep
            raise Unsupported from error
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        return namespace[head.partition("(")[0].removeprefix("def ")]
