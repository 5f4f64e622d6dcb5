"""The topology DSL: what a stream application computes, as pure values.

- ``dsl``    the classes that a program calls: builders, streams, tables and their operators
- ``build``  turns these calls into a graph: the plan, and the passes over it
- ``graph``  a topology as data: nodes, operations, identity, descriptions, comparisons
- ``spec``   the arguments of operators: windows, stores, serdes, functions, names, errors

1. Each imports only from those below it, and nothing imports the client or the broker.
2. The names of this package are public. The packages below are not: their modules may move.
"""

from topology.build.planned import savepoint
from topology.dsl.builder import StreamsBuilder
from topology.dsl.global_tables import GlobalKTable
from topology.dsl.processor_api import TopologyBuilder
from topology.dsl.streams_and_tables import (
    BranchedKStream,
    CogroupedKStream,
    CountWindowedKStream,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    SessionWindowedCogroupedKStream,
    SessionWindowedKStream,
    TimeWindowedCogroupedKStream,
    TimeWindowedKStream,
)
from topology.graph.nodes import Subtopology
from topology.graph.topology import Topology
from topology.spec import serdes
from topology.spec.aggregates import (
    Collect,
    Count,
    First,
    Last,
    Max,
    Mean,
    Min,
    NamedAggregate,
    NamedAggregates,
    Sum,
    agg,
)
from topology.spec.arguments import check_arguments_of
from topology.spec.codecs import Serde
from topology.spec.count_windows import CountWindows, OpenWindow, OpenWindows
from topology.spec.errors import (
    CopartitionError,
    CycleError,
    IllegalNameError,
    MissingSerdeError,
    NameInUseError,
    TopicInUseError,
    TopologyError,
    UnknownStoreError,
    UnsupportedError,
    WindowError,
)
from topology.spec.functions import FailedValue
from topology.spec.join_windows import JoinWindows
from topology.spec.processor import (
    Cancellable,
    FixedKeyProcessor,
    Headers,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    RecordContext,
    RecordMetadata,
    ValueTransformer,
)
from topology.spec.processor_metrics import MetricCounter, MetricLatency, ProcessorMetrics
from topology.spec.processor_wrapper import OperatorProcessor, ProcessorWrapper, TableRecord
from topology.spec.row_versions import Upcast
from topology.spec.stores import (
    KeyValueStore,
    ReadOnlyKeyValueStore,
    SessionStore,
    Store,
    ValueAndTimestamp,
    VersionedKeyValueStore,
    VersionedRecord,
    WindowStore,
)
from topology.spec.suppressed import Buffer, Suppressed
from topology.spec.windows import (
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windowed,
)

__all__ = [
    "BranchedKStream",
    "Buffer",
    "Cancellable",
    "CogroupedKStream",
    "Collect",
    "CopartitionError",
    "Count",
    "CountWindowedKStream",
    "CountWindows",
    "CycleError",
    "EmitStrategy",
    "FailedValue",
    "First",
    "FixedKeyProcessor",
    "GlobalKTable",
    "Headers",
    "IllegalNameError",
    "JoinWindows",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KeyValueStore",
    "Last",
    "Max",
    "Mean",
    "MetricCounter",
    "MetricLatency",
    "Min",
    "MissingSerdeError",
    "NameInUseError",
    "NamedAggregate",
    "NamedAggregates",
    "OpenWindow",
    "OpenWindows",
    "OperatorProcessor",
    "Processor",
    "ProcessorContext",
    "ProcessorMetrics",
    "ProcessorWrapper",
    "PunctuationType",
    "ReadOnlyKeyValueStore",
    "Record",
    "RecordContext",
    "RecordMetadata",
    "Serde",
    "SessionStore",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "SessionWindows",
    "SlidingWindows",
    "Store",
    "StreamsBuilder",
    "Subtopology",
    "Sum",
    "Suppressed",
    "TableRecord",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "TimeWindows",
    "TopicInUseError",
    "Topology",
    "TopologyBuilder",
    "TopologyError",
    "UnknownStoreError",
    "UnlimitedWindows",
    "UnsupportedError",
    "Upcast",
    "ValueAndTimestamp",
    "ValueTransformer",
    "VersionedKeyValueStore",
    "VersionedRecord",
    "WindowError",
    "WindowStore",
    "Windowed",
    "agg",
    "serdes",
]

check_arguments_of(
    BranchedKStream,
    Buffer,
    CogroupedKStream,
    CountWindowedKStream,
    CountWindows,
    JoinWindows,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    SessionWindowedCogroupedKStream,
    SessionWindowedKStream,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindowedCogroupedKStream,
    TimeWindowedKStream,
    TimeWindows,
    Topology,
    TopologyBuilder,
    UnlimitedWindows,
    Upcast,
    savepoint=savepoint,
)
