"""Runs a group machine over its log.

- ``journal``            a coordinator's records as batches of its log: written, read back, ended by transaction
                         markers
- ``lone_records``       rows of batches that hold one plain record, which most of a coordinator's are: a commit, a
                         member, a transaction
- ``rebalance_meter``    how often groups rebalance: a rebalance is a rise of a group's epoch
- ``rebalance_reasons``  what a shard remembers of why its streams groups were assigned anew: for its log, for
                         members, for who describes a group
- ``shard``              one partition of ``__consumer_offsets``: a group machine over its log
- ``timers``             deadlines by key
- ``transaction_shard``  one partition of ``__transaction_state``: the transaction machine over its log
"""
