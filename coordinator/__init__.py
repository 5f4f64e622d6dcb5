"""The bundled broker: a durable single-node log that speaks Kafka's protocol, with the group coordinator.

=============  =================================================================================
package        what is in it
=============  =================================================================================
``log``        segments, indexes, recovery: files and fsync, nothing of the protocol but batches
``group``      the coordinator's state machines: pure functions over values
``shard``      joins a machine and its log: handle, append, apply, arm timers, answer
``broker``     one module per family of APIs
``server``     sockets, dispatch, the entry point ``python -m coordinator``
``__main__``   ``python -m coordinator``
``machine``    what every state machine of the broker takes and gives, whatever it coordinates: the group and the
               transaction machine
``security``   who a client is: SASL mechanisms as pure machines, and the credentials that they check
``txn``        the transaction coordinator's machine: values and pure functions
=============  =================================================================================
"""
