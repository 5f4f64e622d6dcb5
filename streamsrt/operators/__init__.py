"""The processing of a subtopology: functions over columns of records and stores.

- ``engine``      runs operations of all kinds
- ``kinds``       the operations by family
- ``key_slices``  whether the keys of a partition can be computed apart
- ``offline``     how a backfill treats an operation
- ``runner``      runs one subtopology for one task: generated functions where possible, processor nodes for the rest
- ``table``       every operation and what runs it: the one place where a new operator is registered
"""
