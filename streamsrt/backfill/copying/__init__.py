"""Takes the state of another application over, out of its changelogs: one in Java, or another one of this library.

=================  =======================================================================================
``origin``         the other application: what it has committed, where its changelogs end, what it has not processed
``planning``       the plan: which stores are filled from which changelogs, and where the new application begins to read
``subscriptions``  those of foreign-key joins, which know the partition of their left row
``taking``         the stores of one task out of these changelogs
=================  =======================================================================================

1. Changelogs are those of Kafka Streams, byte for byte. So a store is filled as an instance restores it, and what is written
   is the last value of each key. No record is processed, and nothing is written to output topics.
2. State and positions must be of one moment. So the other application is stopped, or has processed everything that there is;
   and from the plan to the end of the run nothing may come into its changelogs.
3. If a store has other partitions here, each row goes where the partitioner places its key. Rows must lie where it placed
   them there, or they are refused, as when state is repartitioned (:mod:`streamsrt.backfill.repartition`).
"""
