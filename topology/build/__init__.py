"""From the calls of a program to a graph.

- ``join_stores``         the stores of stream-stream joins
- ``layout``              the nodes that each step makes, in order
- ``materialize``         from what a program says about a store to what an operator needs
- ``optimizer``           the passes of ``topology.optimization``
- ``passes``              ``PASSES``, in order, and ``build``, which runs them
- ``plan``                the steps that calls add, in order, and what later calls ask of them
- ``planned``             streams, tables and groups as the plan has them, which operators take and return
- ``processor_wrapper``   the pass that asks a ``processor.wrapper.class``
- ``unfinished``          a topology under construction: what a pass takes and returns

1. A call adds steps to a plan and takes its names right then. All else is decided by the passes.
2. Building changes nothing of the plan: it can be built again.
"""
