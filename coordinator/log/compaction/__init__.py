"""Compaction: of each key, the last record stays.

==============  ===============================================================================
module          what is in it
==============  ===============================================================================
``assessment``  which closed segments may be compacted now, and whether it is worth it
``survivors``   which records of a batch stay: keys, tombstones, transactions, producers
``rewriting``   reading segments, writing what stays into one file
``swap``        putting that file in the place of the segments, so that a crash leaves one or the other
==============  ===============================================================================
"""
