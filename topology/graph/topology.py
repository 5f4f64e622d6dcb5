"""A whole topology: the result of building a program, which the application sends to its group.

1. It is immutable: methods return changed copies.
2. The digest depends on the program only. Settings of the application and default serdes do not change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from topology.graph.default_serdes import chosen_serdes, with_serdes
from topology.graph.describe import describe, dot, mermaid
from topology.graph.drawing import drawing
from topology.graph.nodes import OpenSerde, Subtopology
from topology.graph.settings import settings_in, with_settings
from topology.spec.codecs import AnySerde


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What an application computes: the result of :meth:`topology.StreamsBuilder.build`.

    ``epoch`` is the topology epoch of KIP-1071: raise it by one when the topology of a running application changes.
    """

    subtopologies: tuple[Subtopology, ...]
    digest: str
    epoch: int = 0
    global_subtopologies: tuple[Subtopology, ...] = ()
    """Subtopologies that fill global stores. They have no tasks, and the group does not know them."""
    open_serdes: tuple[OpenSerde, ...] = field(default=(), compare=False, repr=False)
    settings: tuple[tuple[str, object], ...] = field(default=(), compare=False, repr=False)
    """The settings of the application that apply to its topics and stores."""
    is_wrapped: bool = field(default=False, compare=False, repr=False)
    """Whether it was built with a ``processor.wrapper.class``."""

    def describe(self) -> str:
        """The text that Kafka Streams' ``Topology.describe()`` returns for the same program."""
        return describe(self.all_subtopologies)

    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart, which Markdown viewers draw."""
        return mermaid(self.all_subtopologies)

    def dot(self) -> str:
        """The graph for Graphviz (``dot -Tsvg``), with digests as tooltips."""
        return dot(self.subtopologies, self.digest)

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return drawing(self.all_subtopologies)

    def configured(self, config: Mapping[str, object]) -> Topology:
        """The same topology with the application's settings for its internal topics.

        Keys: ``topic.<topic setting>`` for all internal topics, ``windowstore.changelog.additional.retention.ms`` and
        ``dsl.store.suppliers.class``; other keys are ignored. They override those of an earlier call and of ``build``.
        The digest does not change.
        """
        settings = {**dict(self.settings), **settings_in(config)}
        return replace(
            self,
            subtopologies=tuple(with_settings(each, settings) for each in self.subtopologies),
            global_subtopologies=tuple(with_settings(each, settings) for each in self.global_subtopologies),
            settings=tuple(sorted(settings.items())),
        )

    def with_default_serdes(self, key: AnySerde = None, value: AnySerde = None) -> Topology:
        """The same topology with all serdes set: those that the program leaves open become the defaults given here.

        Without a default, the last known serde is used, or bytes if none was given. Raises MissingSerdeError if an
        operator may have changed the type and there is no serde for it. The digest does not change.
        """
        chosen = chosen_serdes(self.open_serdes, key, value)
        return replace(
            self,
            subtopologies=tuple(with_serdes(each, chosen) for each in self.subtopologies),
            global_subtopologies=tuple(with_serdes(each, chosen) for each in self.global_subtopologies),
            open_serdes=(),
        )

    @property
    def all_subtopologies(self) -> tuple[Subtopology, ...]:
        """Subtopologies with tasks and those that fill global stores, by number."""
        return tuple(sorted((*self.subtopologies, *self.global_subtopologies), key=lambda each: each.number))
