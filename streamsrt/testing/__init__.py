"""Runs a topology without a broker.

- ``driver``                  the parts of the topology test driver
- ``mock_processor_context``  a context for testing a processor by itself (Kafka Streams' ``MockProcessorContext``)
- ``simulator``               runs several instances of an application against a cluster, all simulated, with seeded
                              faults, and checks the results
- ``topology_lock``           a test that fails when a topology is changed without its lock file
- ``topology_test_driver``    runs a topology in a test, record by record, without a broker (Kafka Streams'
                              ``TopologyTestDriver``)
"""
