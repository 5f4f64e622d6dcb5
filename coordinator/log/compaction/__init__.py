"""Compaction: keeps the last record of each key.

==============  ===============================================================================
module          what is in it
==============  ===============================================================================
``assessment``  which closed segments may be compacted now, and whether it is worth it
``survivors``   which records of a batch stay: keys, tombstones, transactions, producers
``rewriting``   reading segments, writing the kept records into one file
``swap``        replacing the segments by that file, so that a crash leaves one or the other
==============  ===============================================================================
"""
