"""aiokafka's codec of record batches, in Cython. Import it where a batch needs it: with it come aiokafka's consumer, its
producer and the compression, which take 6 MB of a process and 50 ms of its start. The loops in C need none of it."""

from struct import error as struct_error

from aiokafka.errors import KafkaError
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

# What the reader raises on bytes that are no records; the pure Python one runs off the end of its buffer.
READER_ERRORS = (KafkaError, ValueError, IndexError, OverflowError, MemoryError, AssertionError, struct_error)

__all__ = ["READER_ERRORS", "DefaultRecordBatch", "DefaultRecordBatchBuilder"]
