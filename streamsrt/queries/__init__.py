"""Interactive queries: reading the state of a running application from outside.

| module | what it is |
| --- | --- |
| ``values`` | queries, positions and results, as in Kafka Streams' IQv2 |
| ``errors`` | why a query has no answer |
| ``gate`` | access to tasks and stores: by the processing thread or a query |
| ``readers`` | the rows of one store of one task, cache and byte store together, as bytes |
| ``preparation`` | each kind of query on each kind of store |
| ``local`` | queries over the tasks of this instance |
| ``read_only`` | stores as a caller sees them: typed, over all tasks of this instance |
| ``queryable`` | the methods of ``KafkaStreams`` |
| ``routing`` | which instance has which partition |
| ``store_queries`` | what all ways to query state have in common: typed queries, rows as bytes |

1. A query reads only while the processing thread allows it, never in the middle of a batch: it sees all effects of a
   record or none, in every task of the instance at the same moment.
2. A query gets copies of cached values, as bytes. A result shares nothing with objects that the application's functions
   may change.
3. A scan is a snapshot that is read in pieces; the application continues between two pieces.
"""
