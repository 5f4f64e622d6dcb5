"""Connections to a broker: the only package of the runtime that uses asyncio.

- ``admin``                     what an operator or the start of an application asks of a cluster
- ``blocking``                  how one thread waits for another: the processing thread for what the network's loop
                                does
- ``classic_group``             runs the machine of a member of a classic group: two lanes, and the work of a leader
- ``cluster``                   the brokers of a cluster: addresses, connections by purpose, group coordinators
- ``connection``                one connection to one broker: any message of the wire package, version by version
- ``fetcher``                   fetches raw record batches, partition by partition
- ``group``                     runs the machine of a group protocol on the network thread: finds the coordinator,
                                sends, waits, wakes
- ``interface``                 what the processing thread may ask of the network: the contract of ``NetworkThread``
- ``leading``                   what the leader of a classic group asks of the cluster: topics that there are, topics to
                                make, ends and commits
- ``metadata``                  which topics there are, and which broker leads which partition
- ``network``                   all network of an application on a thread of its own, beside the thread that processes
                                records
- ``offsets``                   committed offsets of a group: OffsetCommit and OffsetFetch with member id and epoch,
                                by topic name
- ``producer``                  the idempotent producer of encoded record batches (KIP-98)
- ``reading``                   topics from their starts to their ends, for commands
- ``refused_batches``           what becomes of a record batch that the broker did not take: its records one by one,
                                its halves, the rest of it
- ``security``                  TLS and SASL of a connection: the settings of Kafka's and librdkafka's clients, done
                                by ``ssl`` and aiokafka
- ``signal``                    how the network thread gets the processing thread's attention
- ``transaction_coordination``  transactions of a producer: the part that its coordinator plays (KIP-98, KIP-360,
                                KIP-447; transaction.version 1)
- ``transactions``              transactions as the thread that sends uses them: the producer and the coordination of
                                its transactional id in step
- ``unreadable``                what is told of a record batch that can't be read
- ``values``                    settings of the client and the values that cross between the network thread and the
                                processing thread
"""
