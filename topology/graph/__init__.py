"""What a program is, as data: the graph that the passes produce and the runtime executes.

- ``default_serdes``   the serdes that a program leaves open, filled in
- ``describe``         a topology as text, and for programs that draw
- ``diff``             what becomes of running state when one version follows another
- ``drawing``          a topology as a picture, for notebooks
- ``identity``         ids and digests, which members of a group compare
- ``internal_topics``  topics that the group coordinator creates, and their settings
- ``java_set_order``   the orders in which Java's sets give their elements
- ``nodes``            sources, processors, sinks, stores, subtopologies
- ``operations``       what processor nodes compute, one value for each operation
- ``origins``          what a store or repartition topic is made from
- ``outline``          a topology as a value that fits into a JSON file
- ``partitions``       how many partitions the topics of a topology need
- ``partitioned_bytes`` bytes that know which partition they go to
- ``settings``         the settings of an application that are in its topology
- ``store_kinds``      the kinds of stores, and what is true of each
- ``topology``         a whole topology

1. Everything is a frozen value; what changes one returns another.
2. Nothing here knows how a graph was made.
"""
