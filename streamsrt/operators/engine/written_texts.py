"""The texts that a run of records writes to one topic, each of them as key and value."""

from __future__ import annotations

from collections.abc import Callable

from streamsrt.wire.later_numpy import np
from streamsrt.wire.records.texts import SEPARATOR, Texts, Times, read_texts
from topology import serdes

TEXTS_MIN = 256
"""Fewer texts cost less one by one."""

_join = SEPARATOR.join
_ZERO = SEPARATOR.encode()


class WrittenTexts:
    """Collects texts line by line, and hands them over at the end of a run: to ``collect_texts`` if there are enough of
    them and all are short, else to ``collect``, as records like all others."""

    __slots__ = ("_apart", "_collect", "_collect_texts", "_counts", "_lines", "_times", "_topic")

    def __init__(
        self, topic: str, collect: Callable[..., None], collect_texts: Callable[[str, Texts, Times], None]
    ) -> None:
        self._topic = topic
        self._collect = collect
        self._collect_texts = collect_texts
        self._clear()

    def _clear(self) -> None:
        self._lines: list[bytes] = []
        self._counts: list[int] = []
        self._times: list[int] = []
        self._apart: dict[int, list[bytes]] = {}
        """By index of a line: its texts, where one of them contains a separator."""

    def add(self, texts: list[str], time_ms: int) -> None:
        """Adds the texts of one record. Raises what the serde raises for a text that can't be written."""
        try:
            line = _join(texts).encode()
        except (TypeError, UnicodeEncodeError):
            line = _ZERO * len(texts)
        if line.count(0) != len(texts) - 1:
            encoded = list(map(serdes.string.serialize, texts))
            if not encoded:
                return
            self._apart[len(self._lines)] = encoded
        self._lines.append(line)
        self._counts.append(len(texts))
        self._times.append(time_ms)

    def send(self) -> None:
        """Hands over what was added since the last call."""
        lines, counts, times, apart = self._lines, self._counts, self._times, self._apart
        if not lines:
            return
        self._clear()
        data = b"" if apart else _ZERO.join(lines)
        found = read_texts(data) if data and sum(counts) >= TEXTS_MIN else None
        if found is not None:
            self._collect_texts(self._topic, found, np.repeat(np.array(times, np.int64), counts))
            return
        raw = data.split(_ZERO)
        if apart:
            raw = [text for at, line in enumerate(lines) for text in apart.get(at) or line.split(_ZERO)]
        every_time = [time for time, count in zip(times, counts, strict=True) for _ in range(count)]
        self._collect(self._topic, raw, raw, every_time)
