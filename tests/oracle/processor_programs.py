"""Programs of the Processor API, as the oracle's cases write them, said with the public API."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from tests.oracle.programs import Case, Step, UnsupportedCase, consumed, partitioner, serdes_of, store_builder
from tests.oracle.programs import topic_extractor as extractor
from tests.oracle.scripts import ScriptedProcessor
from topology import TopologyBuilder


class ProcessorInterpreter:
    """Adds the nodes of a case to ``builder``. ``topic_serdes``: as in the interpreter of the DSL's programs."""

    def __init__(self) -> None:
        self.builder = TopologyBuilder()
        self.topic_serdes: dict[str, tuple[Any, Any]] = {}

    def run(self, case: Case) -> None:
        for step in case["topology"]:
            add = getattr(self, f"on_{step['op']}", None)
            if add is None:
                raise UnsupportedCase(f"unsupported operator: Topology.{step['op']}")
            add(step)

    def note(self, topics: Any, step: Step) -> None:
        for topic in [topics] if isinstance(topics, str) else topics:
            self.topic_serdes.setdefault(topic, (step.get("key"), step.get("value")))

    def on_add_source(self, step: Step) -> None:
        options = consumed({**step, "name": None})
        if "pattern" in step:
            self.builder.add_source(step["name"], re.compile(step["pattern"]), **options)
            return
        self.note(step["topics"], step)
        self.builder.add_source(step["name"], step["topics"], **options)

    def on_add_processor(self, step: Step) -> None:
        script = step["processor"]
        stores = [store_builder(store) for store in script.get("stores", ())]
        supplier = partial(ScriptedProcessor, script, fixed_key=False)
        self.builder.add_processor(step["name"], supplier, parents=step["parents"], stores=stores)

    def on_add_sink(self, step: Step) -> None:
        options: dict[str, Any] = {**serdes_of(step), "parents": step["parents"]}
        if step.get("partitioner") is not None:
            options["partitioner"] = partitioner(step["partitioner"])
        if "topic_fn" in step:
            self.builder.add_sink(step["name"], extractor(step["topic_fn"]), **options)
            return
        self.note(step["topic"], step)
        self.builder.add_sink(step["name"], step["topic"], **options)

    def on_add_state_store(self, step: Step) -> None:
        self.builder.add_state_store(store_builder(step["store"]), step["processors"])

    def on_connect(self, step: Step) -> None:
        self.builder.connect(step["processor"], step["stores"])

    def on_add_read_only_store(self, step: Step) -> None:
        self.note(step["topic"], step)
        supplier = partial(ScriptedProcessor, step["processor"], fixed_key=False)
        self.builder.add_read_only_store(
            store_builder(step["store"]),
            step["source_name"],
            step["topic"],
            step["processor_name"],
            supplier,
            **serdes_of(step),
        )

    def on_add_global_store(self, step: Step) -> None:
        self.note(step["topic"], step)
        self.builder.add_global_store(
            store_builder(step["store"]),
            source=step["source_name"],
            topic=step["topic"],
            processor=step["processor_name"],
            supplier=partial(ScriptedProcessor, step["processor"], fixed_key=False),
            **serdes_of(step),
        )
