"""Connections to a broker: the only package of the runtime that uses asyncio.

- ``absent_topics``             topics that batches wait for although the cluster says that they do not exist
- ``admin``                     administrative requests of an operator, or of an application that starts
- ``alarm``                     a timer that is set much more often than it rings
- ``batch_queue``               the batches of one partition that the producer has not delivered yet
- ``blocking``                  how one thread waits for another: the processing thread for the network's loop
- ``classic_group``             runs the machine of a classic group's member: two lanes, and the work of a leader
- ``cluster``                   the brokers of a cluster: addresses, connections by purpose, group coordinators
- ``connection``                one connection to one broker: any message of the wire package, version by version
- ``fetch_buffers``             the buffers of large Fetch responses, used again when nothing reads them any more
- ``fetcher``                   fetches raw record batches, partition by partition
- ``fetch_session``             what a broker remembers of the fetcher's partitions (KIP-227)
- ``frames``                    cuts what a broker sends into frames
- ``group``                     runs the machine of a group protocol on the network thread: finds the coordinator,
                                sends, waits, wakes
- ``interface``                 what the processing thread can ask of the network: the contract of ``NetworkThread``
- ``leading``                   what the leader of a classic group asks of the cluster: topics, new topics, log ends and
                                commits
- ``loop_selector``             how the network thread's loop looks at its sockets
- ``metadata``                  which topics exist, and which broker leads which partition
- ``network``                   all network I/O of an application, on its own thread beside the processing thread
- ``offsets``                   committed offsets of a group: OffsetCommit and OffsetFetch with member id and epoch, by
                                topic name
- ``produce_requests``          one Produce request of the producer: its version, what it says, its answer
- ``producer``                  the idempotent producer of encoded record batches (KIP-98)
- ``reading``                   reads topics from start to end, for commands
- ``refused_batches``           handles a record batch that the broker refused: its records one by one, its halves, the
                                rest of it
- ``security``                  TLS and SASL of a connection: the settings of Kafka's and librdkafka's clients,
                                implemented with ``ssl`` and aiokafka
- ``signal``                    how the network thread wakes the processing thread
- ``spawned``                   tasks on the network thread that nobody waits for: what they raise is not lost
- ``transaction_coordination``  transactions of a producer: the requests to its coordinator (KIP-98, KIP-360, KIP-447;
                                transaction.version 1)
- ``transactions``              transactions as the sending thread uses them: the producer and the coordination of its
                                transactional id
- ``unreadable``                the error message of a record batch that can't be read
- ``values``                    settings of the client and the values that cross between the network thread and the
                                processing thread
"""
