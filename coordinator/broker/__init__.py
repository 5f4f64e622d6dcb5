"""The broker's request handlers, one module per family of APIs.

======================  ==================================================================================================
module                  APIs
======================  ==================================================================================================
``api_versions``        ApiVersions; the table of supported APIs and versions
``metadata``            Metadata, DescribeTopicPartitions, DescribeCluster
``topic_admin``         CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords
``configs``             DescribeConfigs, AlterConfigs, IncrementalAlterConfigs
``cluster_admin``       DescribeLogDirs, AlterReplicaLogDirs, ElectLeaders, Alter- and ListPartitionReassignments,
                        UpdateFeatures, Describe- and AlterClientQuotas, ListConfigResources, WriteTxnMarkers
``refusals``            known APIs that are not served
``produce``             Produce
``fetch``               Fetch, ListOffsets, OffsetForLeaderEpoch
``groups``              FindCoordinator, OffsetCommit, OffsetFetch, OffsetDelete, ListGroups, DeleteGroups,
                        JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ConsumerGroupHeartbeat,
                        ConsumerGroupDescribe, StreamsGroupHeartbeat, StreamsGroupDescribe
``transactions``        InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit, ListTransactions,
                        DescribeTransactions, DescribeProducers
======================  ==================================================================================================

======================  ==================================================================================================
module                  what the handlers share
======================  ==================================================================================================
``broker``              :class:`Broker`: state, services, clock
``topics``              the existing topics, durable in ``__cluster_metadata``
``group_shards``        the group coordinator: shards, timers, settings of groups
``transaction_shards``  the transaction coordinator: shards, markers, timers
``deadline_timer``      waits until the next deadline
``producer_ids``        producer ids, each given out once
``stepped_clock``       the machine's clock; moves deadlines when it is set
``purgatory``           fetches that wait for records
``fetch_sessions``      what clients fetch, so that their requests name only what changes
``slices``              long work in slices
``splitting``           which requests are split, and how
``keyed_log``           a small durable map as an internal log
``metadata_of_all``     encoded descriptions of all topics, answered from memory
``repeated_heartbeats`` heartbeats that change nothing, answered from memory
``log_cleaner``         compaction in the background
``broker_configs``      settings of the broker in force, and where they come from
``config_definitions``  settings of the broker and of topics: names, types, bounds
``access``              what one principal may do from one host, which every request checks
``acls``                ACLs: durable, and managed by Kafka's own requests (KIP-140)
``authorization``       the rights that each API requires, as in Kafka
``credentials``         SCRAM credentials: durable, and managed by Kafka's own requests (KIP-554)
``kafka_settings``      the settings of Apache Kafka 4.4's broker, by name and type:
                        ``AbstractKafkaConfig.CONFIG_DEF``, internal ones too
``metrics``             the group coordinator's metrics, under Kafka's names, in the text format of Prometheus
``queued_bytes``        limits the memory of requests that are being read or served, and of responses that are not yet
                        sent
``security``            ACLs and SCRAM credentials by request; SASL where a listener has none (else: ``sasl``)
======================  ==================================================================================================

Not supported: transactions of ``transaction.version`` 2. Quotas are described as empty, and setting them is refused. APIs
that are not served are not advertised.

Accepted without effect, for Kafka's tools and files: ``preallocate``, ``flush.*`` (see ``log.fsync``),
``segment.jitter.ms``, ``segment.index.bytes``, ``file.delete.delay.ms``, ``min.insync.replicas`` and
``unclean.leader.election.enable``.
"""
