"""A topology as data: the graph that the passes produce and the runtime executes.

- ``default_serdes``     sets the serdes that a program leaves open
- ``describe``           a topology as text, and as input of drawing programs
- ``diff``               what happens to existing state when one version replaces another
- ``drawing``            a topology as a picture, for notebooks
- ``identity``           ids and digests, which the members of a group compare
- ``internal_topics``    topics that the group coordinator creates, and their settings
- ``java_set_order``     the iteration orders of Java's sets
- ``join_sides``         which sides of a join its stores and internal topics belong to
- ``misread``            whether a version would misread what another one keeps
- ``new_state``          what new stores find in their changelogs, and how to fill them
- ``nodes``              sources, processors, sinks, stores, subtopologies
- ``operations``         what processor nodes compute: one value for each operation
- ``origins``            what a store or repartition topic is filled from
- ``outline``            a summary of a topology for a JSON file
- ``partitions``         how many partitions the topics of a topology need
- ``partitioned_bytes``  bytes with the partition that they go to
- ``patterns``           which source topics a pattern matches
- ``row_windows``        what the window of a row means, and what becomes of it with other windows
- ``same_tasks``         whether the tasks of a subtopology are the same tasks in two versions
- ``settings``           the settings of an application that apply to its topology
- ``store_kinds``        the kinds of stores and their properties
- ``topology``           a whole topology

1. Everything is a frozen value; changes return a new value.
2. Nothing here knows how a graph was made.
"""
