"""Runs several instances of an application against a cluster, all simulated, with seeded faults, and checks the
results.

::

    from streamsrt.testing.simulator import Faults, Input, simulate

    simulate(topology, inputs={"orders": [Input("ada", 3, 1_000), ...]}, seed=7, instances=3, faults=Faults(crashes=3))

The code that runs is the real one: client, membership, tasks, the logic of stores, commits and transactions of this
package, and the bundled broker including its files. The network, disks, the clock and the computers are simulated, in
one thread with one queue of events. A seed always gives the same run: :class:`SimulationFailure` has the call that
repeats it.

==============  =================================================================================
module          what is in it
==============  =================================================================================
``simulation``  one run: input, instances, faults, the end
``nemesis``     which faults are injected, and when
``invariants``  what must hold
``instance``    the application on a host
``broker``      the bundled broker on a host
``loop``        the event loop with virtual time
``hosts``       hosts, and threads that are greenlets
``net``         connections, and how they fail
``stored_rows`` compares stores with their changelogs
``disk``        stores, and what a crash leaves of them
``trace``       what happened
``__main__``    ``python -m streamsrt.testing.simulator MODULE:TOPOLOGY --seeds 1000``: an application under many
                seeds
``running``     the public functions: one seed, many seeds, and the uninterrupted run that they are compared with
``values``      the arguments of a simulation, and its results
==============  =================================================================================
"""

import sys

from streamsrt.errors import ConfigError

try:
    from streamsrt.testing.simulator.running import simulate, simulate_seeds, uninterrupted
    from streamsrt.testing.simulator.values import (
        NO_FAULTS,
        Check,
        Compare,
        Faults,
        Input,
        Inputs,
        Output,
        Outputs,
        Protocols,
        SimulationFailure,
        SimulationResult,
    )
except ConfigError as error:
    # While the interpreter looks for what ``python -m`` names, there is nobody yet who could catch it.
    if sys.argv[:1] != ["-m"] or __name__ not in sys.orig_argv:
        raise
    sys.stderr.write(f"simulator: {error}\n")
    sys.exit(error.exit_code)

__all__ = [
    "NO_FAULTS",
    "Check",
    "Compare",
    "Faults",
    "Input",
    "Inputs",
    "Output",
    "Outputs",
    "Protocols",
    "SimulationFailure",
    "SimulationResult",
    "simulate",
    "simulate_seeds",
    "uninterrupted",
]
