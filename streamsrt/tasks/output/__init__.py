"""What a task writes: to topics and changelogs, through the producer.

- ``record_collector``  what a task writes, column by column, until there is enough of it for a record batch
- ``refused_records``   records that the cluster rejects: the production exception handler decides (KIP-210, KIP-1065)
"""
