"""What the topology test driver is made of; programs import it from :mod:`streamsrt.testing.topology_test_driver`.

- ``produced_records``  what an application sends: the records, and the collector that keeps them
- ``topics``            input and output topics, with keys and values instead of bytes
"""
