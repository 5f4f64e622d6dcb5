"""Interactive queries: the state of a running application, asked for from outside.

| module | what it is |
| --- | --- |
| ``values`` | queries, positions and results, as in Kafka Streams' IQv2 |
| ``errors`` | why there is no answer |
| ``gate`` | who may touch tasks and stores: the processing thread or a query |
| ``readers`` | the rows of one store of one task, cache and byte store together, as bytes |
| ``preparation`` | each kind of query on each kind of store |
| ``local`` | queries over the tasks of this instance |
| ``read_only`` | stores as a caller sees them: typed, over all tasks of this instance |
| ``queryable`` | the methods of ``KafkaStreams`` |
| ``routing`` | which instance has which partition |
| ``store_queries`` | what every way to ask for state has in common: typed queries, rows as bytes |

1. A query reads only while the processing thread lets it, never in the middle of a batch: it sees all that a record changed,
   or nothing of it, in every task of the instance at the same moment.
2. What a query takes out of a cache is bytes. A result shares nothing with what the application's functions go on changing.
3. A scan is a snapshot that is read piece by piece; between two pieces the application goes on.
"""
