"""The arguments of operators: values and functions, each with the checks that need nothing else.

- ``aggregates``         aggregates by name (``agg``): count, sum, min, max and so on
- ``arguments``          checks the types of arguments against the annotations
- ``changes``            a row's new and old value, as bytes in a repartition topic
- ``codecs``             serdes: values to bytes and back
- ``count_windows``      count windows
- ``errors``             what can be wrong with a topology, with the line of the program
- ``functions``          types of user functions, and the arguments that they must take
- ``join_windows``       how far apart in time joined records may be
- ``model_reading``      reads JSON as plain values, models, dataclasses and TypedDicts in C, where that was built
- ``names``              names of steps, stores and topics: what Kafka allows, what is generated
- ``processor``          the Processor API: records, contexts, processors
- ``processor_metrics``  custom metrics of a program's processors
- ``processor_wrapper``  wrappers around processor nodes
- ``row_versions``       versions of a store's values: tags, and how earlier versions are read
- ``serdes``             the serdes under the names that a program uses
- ``stores``             state stores as a program describes them, and as a processor uses them
- ``suppressed``         how long, and how many, changes of a table are suppressed
- ``timestamps``         timestamp extractors
- ``typed_dicts``        converts TypedDicts for pydantic
- ``windows``            windows of event time and sessions

1. A value is checked when it is created: a mistake is raised with the line of the program.
2. Nothing here knows of operators, nodes or the plan.
"""
