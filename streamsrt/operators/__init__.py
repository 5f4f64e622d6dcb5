"""What a subtopology does to a run of records: functions over columns and stores.

- ``engine``  what runs operations, whichever they are
- ``kinds``   the operations by family
- ``runner``  runs one subtopology for one task: generated functions where there are any, processor nodes for the rest
- ``table``   every operation and what runs it: the one place where a new operator is entered
"""
