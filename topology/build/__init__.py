"""Turns the calls of a program into a graph.

- ``join_stores``        the stores of stream-stream joins
- ``layout``             the nodes that each step makes, in order
- ``materialize``        from a program's description of a store to what an operator needs
- ``optimizer``          the passes of ``topology.optimization``
- ``passes``             ``PASSES``, in order, and ``build``, which runs them
- ``plan``               the steps that calls add, in order, and what later calls ask of them
- ``planned``            streams, tables and groups in the plan, which operators take and return
- ``processor_wrapper``  the pass that applies a ``processor.wrapper.class``
- ``unfinished``         a topology under construction: what a pass takes and returns

1. A call adds steps to a plan and takes its names immediately. The passes decide everything else.
2. Building does not change the plan, so it can be built again.
"""
