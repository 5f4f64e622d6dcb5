"""The transaction coordinator's machine: values and pure functions.

- ``config``    settings of the transaction coordinator
- ``describe``  ListTransactions and DescribeTransactions: what the coordinator knows, without changing anything
- ``machine``   the machine of all transactional ids of one partition of ``__transaction_state``
- ``state``     transactions as the records of ``__transaction_state`` make them
- ``values``    what goes into the transaction machine and what comes out of it: values, nothing else
"""
