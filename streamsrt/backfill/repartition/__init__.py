"""Repartitions the state of a stopped application in place, after its source topics got more partitions.

================  ===============================================================================================
``placement``     which part of its key decides the partition of a row, for each kind of store; stores that can't be moved
``partitioners``  where the program's own partitioners place the record of a row
``shape``         which subtopologies and stores are affected, and what in the topology or its topics prevents the move
``rows``          the rows of a changelog, each once, on disk
``survey``        checks where rows are, and looks for records that are not processed yet
``moving``        moves rows from one partition to another, in transactions
``offsets``       the marks that keep the application from starting, and the offsets from which it resumes
``job``           all steps in order
================  ===============================================================================================

1. Everything is checked before anything is changed, and all reasons against the move are reported together.
2. A row moves by a put in its new partition and a tombstone in its old one, in one transaction. So each row exists exactly
   once at any moment, and local state and standbys follow by reading the changelog.
3. During the move, a mark in the committed offsets keeps the application from starting. It contains the partition counts
   by which rows may be placed. A resumed move reads everything again and moves the rows that are not in their place.
4. After the last row has moved, one request replaces the mark by the offsets from which the application resumes.
"""
