"""The state of a stopped application, repartitioned in place: source topics got more partitions, and state follows its keys.

=============  ===============================================================================================
``placement``  by which part of its key a row is placed, for each kind of store, and which stores can't be moved
``shape``      which subtopologies and stores are concerned, and what stands against it in the topology
``rows``       the rows of a changelog, each once, on disk
``survey``     what lies where: the proof that rows can be moved, records that are not processed yet
``moving``     rows from one partition to another, in transactions
``offsets``    the marks that keep the application from starting, and the offsets with which it goes on
``job``        all of it in order
=============  ===============================================================================================

1. Nothing is changed before everything has been looked at. What stands against it is told all at once.
2. A row moves by a put in its new partition and a tombstone in its old one, in one transaction. So at every moment each row
   is there exactly once, and local state and standbys follow by reading on.
3. While it is under way a mark in the committed offsets keeps the application from starting. It says by which counts rows
   may lie. Whoever resumes reads all again and moves what is not in its place.
4. The mark goes with the offsets that the application goes on from, in one request, after the last row has moved.
"""
