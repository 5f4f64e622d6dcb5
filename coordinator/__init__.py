"""The bundled broker: a durable single-node log with Kafka's protocol and group coordinator.

=============  =================================================================================
package        contents
=============  =================================================================================
``log``        segments, indexes, recovery: files and fsync; of the protocol, only record batches
``group``      the coordinator's state machines: pure functions over values
``shard``      connects a machine to its log: handle, append, apply, set timers, respond
``broker``     one module per family of APIs
``server``     sockets, dispatch, the entry point ``python -m coordinator``
``__main__``   ``python -m coordinator``
``machine``    the common inputs and outputs of the broker's state machines, for groups and for transactions
``security``   who a client is: SASL mechanisms as pure machines, and the credentials that they check
``txn``        the transaction coordinator's machine: values and pure functions
=============  =================================================================================
"""
