"""Sockets, dispatch and the entry point of the bundled broker.

====================  =================================================================================
module                what is in it
====================  =================================================================================
``main``              ``python -m coordinator``: arguments, settings, start, stop, exit codes
``properties``        Java's properties files
``listener``          the listening socket and all its connections
``fair_queue``        which connection is served next
``tcp``               one connection: frames in, answers out, in order
``dispatch``          from a frame to the bytes of its answer
``embedded``          the broker on another event loop, for a simulation
``assignors``         assignors of consumer groups that the operator brings:
                      ``group.consumer.assignors=uniform,package.module:Class``
``metrics_endpoint``  ``GET /metrics`` over HTTP, for Prometheus
``sasl``              connections of a listener with SASL: nothing is served before the client has said who it is
``security``          what a listener's settings mean: TLS, SASL, and whether it may be reached from other machines
``settings``          the broker's settings from a properties file and the command line
====================  =================================================================================
"""
