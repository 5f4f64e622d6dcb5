"""Sockets, dispatch and the entry point of the bundled broker.

==============  =================================================================================
module          what is in it
==============  =================================================================================
``main``        ``python -m coordinator``: arguments, settings, start, stop, exit codes
``properties``  Java's properties files
``listener``    the listening socket and all its connections
``turns``       which connection is served next
``tcp``         one connection: frames in, answers out, in order
``dispatch``    from a frame to the bytes of its answer
``embedded``    the same on somebody else's event loop, for a simulation
==============  =================================================================================
"""
