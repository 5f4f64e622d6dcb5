"""A topology as a picture (SVG), for notebooks.

1. Topics and subtopologies are drawn in columns, from the first inputs to the last outputs. An edge that closes a cycle
   is ignored for this order, and a node without inputs is next to its first reader.
2. Names are escaped, and shortened if they are too long; the full name is the tooltip.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topology.graph.nodes import Subtopology

_WIDTH, _GAP_X, _GAP_Y, _LINE, _PAD = 210, 60, 18, 16, 10
_LETTERS = 30
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""What ``xml.sax.saxutils.escape`` does: that module would load urllib and email with it, in every program."""
_LOOKS = {
    "title": 'font-size="12" fill="#1b1f24"',
    "step": 'font-size="11" fill="#5c6672"',
    "store": 'font-size="11" fill="#6941c6"',
    "topic": 'rx="12" fill="#f6f7f9" stroke="#aab2bd"',
    "part": 'rx="4" fill="#ffffff" stroke="#0b62c4"',
}
"""Attributes and no style sheet, which would be one for the whole page that shows the picture."""


@dataclass(slots=True)
class _Box:
    """``lines``: the kind and the text of each."""

    kind: str
    lines: list[tuple[str, str]]
    x: int = 0
    y: int = 0

    @property
    def height(self) -> int:
        return 2 * _PAD + _LINE * len(self.lines)

    @property
    def middle(self) -> int:
        return self.y + self.height // 2


def drawing(subtopologies: Sequence[Subtopology]) -> str:
    """The picture."""
    boxes, edges = _boxes_and_edges(subtopologies)
    columns = _columns(boxes, edges)
    heights: dict[int, int] = {}
    for name, box in boxes.items():
        column = columns[name]
        box.x, box.y = column * (_WIDTH + _GAP_X) + 1, heights.get(column, 0) + 1
        heights[column] = box.y + box.height + _GAP_Y
    width = (max(heights, default=0) + 1) * (_WIDTH + _GAP_X) - _GAP_X + 2
    height = max(heights.values(), default=_GAP_Y) - _GAP_Y + 2
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
            '<defs><marker id="topology-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0 0 L8 4 L0 8" fill="none" stroke="#5c6672"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            *(_arrow(boxes[start], boxes[end]) for start, end in edges),
            *(line for box in boxes.values() for line in _drawn(box)),
            "</svg>",
        ]
    )


def _boxes_and_edges(subtopologies: Sequence[Subtopology]) -> tuple[dict[str, _Box], list[tuple[str, str]]]:
    boxes: dict[str, _Box] = {}
    edges: dict[tuple[str, str], None] = {}

    def topic(name: str) -> str:
        boxes.setdefault(f"topic {name}", _Box("topic", [("title", name)]))
        return f"topic {name}"

    for part in subtopologies:
        name = f"part {part.number}"
        read = [each for source in part.sources for each in (*source.topics, *filter(None, [source.pattern]))]
        edges |= dict.fromkeys((topic(each), name) for each in read)
        steps = [node.name for node in part.nodes if node not in part.sources and node not in part.sinks]
        stores = [("store", f"▤ {store.name}") for store in part.stores]
        title = [("title", f"subtopology {part.id}")]
        boxes[name] = _Box("part", [*title, *(("step", step) for step in steps), *stores])
        edges |= dict.fromkeys((name, topic(sink.topic or "(chosen by the record)")) for sink in part.sinks)
    return boxes, list(edges)


def _columns(boxes: dict[str, _Box], edges: list[tuple[str, str]]) -> dict[str, int]:
    children: dict[str, list[str]] = {name: [] for name in boxes}
    for start, end in edges:
        children[start].append(end)
    order, back = _in_order(children)
    columns = dict.fromkeys(boxes, 0)
    for name in order:
        for child in children[name]:
            if (name, child) not in back:
                columns[child] = max(columns[child], columns[name] + 1)
    led_to = {end for _, end in edges}
    for name, after in children.items():
        if name not in led_to and after:
            columns[name] = min(columns[child] for child in after) - 1
    return columns


def _in_order(children: dict[str, list[str]]) -> tuple[list[str], set[tuple[str, str]]]:
    """Every box before those that it leads to, and the edges that lead back."""
    done: dict[str, None] = {}
    open_: set[str] = set()
    back: set[tuple[str, str]] = set()

    def visit(name: str) -> None:
        open_.add(name)
        for child in children[name]:
            if child in open_:
                back.add((name, child))
            elif child not in done:
                visit(child)
        open_.discard(name)
        done[name] = None

    for name in children:
        if name not in done:
            visit(name)
    return [*reversed(done)], back


def _arrow(start: _Box, end: _Box) -> str:
    left, right = start.x + _WIDTH, end.x
    bend = (right - left) // 2 if right > left else _GAP_X
    curve = f"M{left} {start.middle} C{left + bend} {start.middle} {right - bend} {end.middle} {right} {end.middle}"
    return f'<path d="{curve}" fill="none" stroke="#5c6672" marker-end="url(#topology-arrow)"/>'


def _drawn(box: _Box) -> Iterator[str]:
    yield f"<g><title>{_escaped(chr(10).join(text for _, text in box.lines))}</title>"
    yield f'<rect x="{box.x}" y="{box.y}" width="{_WIDTH}" height="{box.height}" {_LOOKS[box.kind]}/>'
    for index, (kind, text) in enumerate(box.lines):
        y = box.y + _PAD + 12 + index * _LINE
        place = f'x="{box.x + _PAD}" y="{y}" font-family="sans-serif"'
        yield f"<text {place} {_LOOKS[kind]}>{_escaped(_short(text))}</text>"
    yield "</g>"


def _escaped(text: str) -> str:
    return text.translate(_ENTITIES)


def _short(text: str) -> str:
    half = _LETTERS // 2
    return text if len(text) <= _LETTERS else f"{text[: half - 1]}…{text[-half:]}"
