"""The topology DSL: what a stream application computes, as pure values."""

from topology import serdes
from topology.aggregates import Collect, Count, First, Last, Max, Mean, Min, NamedAggregate, NamedAggregates, Sum, agg
from topology.arguments import check_arguments_of
from topology.builder import StreamsBuilder
from topology.codecs import Serde
from topology.cogrouped import CogroupedKStream, SessionWindowedCogroupedKStream, TimeWindowedCogroupedKStream
from topology.count_windows import CountWindowedKStream, CountWindows, OpenWindow, OpenWindows
from topology.errors import (
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
from topology.global_tables import GlobalKTable
from topology.grouped import KGroupedStream, SessionWindowedKStream, TimeWindowedKStream
from topology.grouped_tables import KGroupedTable
from topology.join_windows import JoinWindows
from topology.nodes import Subtopology, Topology
from topology.processor import (
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
from topology.processor_api import TopologyBuilder
from topology.processor_metrics import MetricCounter, MetricLatency, ProcessorMetrics
from topology.stores import (
    KeyValueStore,
    ReadOnlyKeyValueStore,
    SessionStore,
    Store,
    ValueAndTimestamp,
    VersionedKeyValueStore,
    VersionedRecord,
    WindowStore,
)
from topology.stream_extras import FailedValue
from topology.streams import BranchedKStream, KStream
from topology.suppressed import Buffer, Suppressed
from topology.tables import KTable
from topology.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windowed
from topology.wrapping import OperatorProcessor, ProcessorWrapper, TableRecord

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
)
