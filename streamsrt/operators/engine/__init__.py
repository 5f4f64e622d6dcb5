"""What runs operations, whichever they are: generated functions over columns, and steps record by record.

- ``canonical_keys``     keys as their serde writes them, whatever bytes they were read from
- ``compiler``           one generated function per source of a subtopology, and one per store whose cache forwards
                         when it is flushed
- ``contexts``           which record of a run is processed; which one failed, as exception handlers get it
- ``emitter``            writes the source of one generated function and remembers which node each of its lines
                         belongs to
- ``environment``        what the processor nodes of one task share: the current record, time, stores' caches,
                         counters, handlers, schedules
- ``expiry``             deletes expired entries of stores with a ``ttl``, between records
- ``forwarded_records``  serializes a record that a punctuation forwarded, for its dead letter
- ``gathered_output``    what processor nodes write in a run, a flush or a punctuation, handed over at its end
- ``handlers``           what happens to a record that fails: Kafka Streams' three exception handlers as callables
- ``murmur3``            Murmur3, 128 bits, x64: the hash by which a foreign-key join knows whether a row has changed
                         since it asked
- ``node_meter``         counters of single nodes (``metrics.recording.level`` DEBUG and up)
- ``open_calls``         asynchronous calls, as an environment knows them
- ``placement``          what a partitioner may return for a record: a partition, None, or several partitions
- ``plan``               what both ways of running a subtopology need to know of it: names, serdes and stores,
                         resolved once per task
- ``processor_nodes``    every operation as a processor node: one call per record and node, as in Kafka Streams
- ``program_clock``      the clock that programs see, which follows the machine's
- ``punctuation_queue``  when punctuations are due, in the order of Kafka Streams
- ``table_views``        rows of tables as other operators see them: read from a store, or made on the fly of what the
                         nearest stores have
- ``user_metrics``       custom metrics of user processors (``ProcessorMetrics``), for one task
- ``written_texts``      the texts that a run of records writes to one topic, each of them as key and value
"""
