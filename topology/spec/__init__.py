"""What a program names: values and functions that it gives to operators, and the checks of each by itself.

- ``aggregates``         aggregates by name (``agg``): count, sum, min, max and so on
- ``arguments``          arguments of a wrong type, refused by what annotations say
- ``changes``            a row's new and old value, as bytes in a repartition topic
- ``codecs``             serdes: values to bytes and back
- ``count_windows``      count windows
- ``errors``             what can be wrong with a topology, and the program's line that it is said of
- ``functions``          types of the functions that a program gives, and what they must take
- ``join_windows``       how far apart in time joined records may be
- ``names``              names of steps, stores and topics: what Kafka allows, what is generated
- ``processor``          the Processor API: records, contexts, processors
- ``processor_metrics``  metrics that a program's processors make
- ``processor_wrapper``  what may be put around every processor node
- ``row_versions``       versions of a store's values: tags, and how earlier versions are read
- ``serdes``             the serdes by the names that a program uses
- ``stores``             state stores as a program asks for them, and as a processor sees them
- ``suppressed``         how long changes of a table are held back, and how many
- ``timestamps``         where the time of a record comes from
- ``typed_dicts``        TypedDicts as pydantic takes them
- ``windows``            windows of event time and sessions

1. A value is checked when it is made: a mistake is raised with the line of the program.
2. Nothing here knows of operators, nodes or the plan.
"""
