"""The pages on operators: their examples run and print what they say, and their diagrams are those of their topologies.

With ``UPDATE_DIAGRAMS`` in the environment the diagrams are written anew.
"""

from __future__ import annotations

import doctest
import inspect
import os
import re
from pathlib import Path
from typing import Any

import pytest

import topology

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "operators"
PAGES = sorted(FOLDER.glob("*.md"))
BLOCK = re.compile(r"```(python|mermaid)\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_and_diagrams(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": page.stem}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    drawn = text
    for kind, block in BLOCK.findall(text):
        if kind == "python":
            line = text[: text.index(block)].count("\n")
            example = doctest.DocTestParser().get_doctest(block, names, page.stem, str(page), line)
            assert example.examples or not block.strip()
            said: list[str] = []
            runner.run(example, out=said.append, clear_globs=False)
            assert not runner.failures, "".join(said)
            names.update(example.globs)
        else:
            drawn = drawn.replace(block, names["topology"].mermaid().rstrip("\n") + "\n", 1)
    if "UPDATE_DIAGRAMS" in os.environ:
        page.write_text(drawn, encoding="utf-8")
    assert drawn == text


OPERATORS = (
    topology.BranchedKStream,
    topology.CogroupedKStream,
    topology.CountWindowedKStream,
    topology.GlobalKTable,
    topology.KGroupedStream,
    topology.KGroupedTable,
    topology.KStream,
    topology.KTable,
    topology.SessionWindowedCogroupedKStream,
    topology.SessionWindowedKStream,
    topology.StreamsBuilder,
    topology.Suppressed,
    topology.TimeWindowedCogroupedKStream,
    topology.TimeWindowedKStream,
    topology.TopologyBuilder,
)
OTHERS = {
    "Buffer", "Cancellable", "Collect", "Count", "CountWindows", "EmitStrategy", "FailedValue", "First",
    "FixedKeyProcessor", "Headers", "JoinWindows", "KeyValueStore", "Last", "Max", "Mean", "MetricCounter",
    "MetricLatency", "Min", "NamedAggregate", "NamedAggregates", "OpenWindow", "OpenWindows", "OperatorProcessor",
    "Processor", "ProcessorContext", "ProcessorMetrics", "ProcessorWrapper", "PunctuationType",
    "ReadOnlyKeyValueStore", "Record", "RecordContext", "RecordMetadata", "Serde", "SessionStore", "SessionWindows",
    "SlidingWindows", "Store", "Subtopology", "Sum", "TableRecord", "TimeWindows", "Topology", "UnlimitedWindows",
    "Upcast", "ValueAndTimestamp", "ValueTransformer", "VersionedKeyValueStore", "VersionedRecord", "WindowStore",
    "Windowed", "agg", "serdes",
}  # fmt: skip
"""What is exported and is no operator: values, what user code is or is given, errors aside."""

METHODS = [
    (kind, name)
    for kind in OPERATORS
    for name, member in inspect.getmembers(kind)
    if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property))
]


def test_every_exported_class_is_an_operator_or_known_not_to_be() -> None:
    exported = {name for name in topology.__all__ if not name.endswith("Error")}
    assert exported == OTHERS | {kind.__name__ for kind in OPERATORS}


@pytest.mark.parametrize(("where", "pattern"), [("an example that runs", r"\.{}\b"), ("the table", r"\b{}\b")])
def test_every_operator_is_in(where: str, pattern: str) -> None:
    blocks = [block for page in PAGES for kind, block in BLOCK.findall(page.read_text("utf-8")) if kind == "python"]
    text = "\n".join(blocks) if where == "an example that runs" else (FOLDER / "README.md").read_text("utf-8")
    missing = [f"{kind.__name__}.{name}" for kind, name in METHODS if not re.search(pattern.format(name), text)]
    assert missing == [], f"not in {where}"


def test_every_page_has_a_diagram_and_examples() -> None:
    for page in PAGES:
        kinds = {kind for kind, _ in BLOCK.findall(page.read_text("utf-8"))}
        assert kinds == {"python", "mermaid"} or page.stem == "README"
