"""``python -m streamsrt.testing.simulator MODULE:TOPOLOGY --seeds 1000``: an application under many seeds.

Exit codes: 0 all seeds pass; 1 one fails, which is described; 2 the arguments are wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from streamsrt.application import load_application, load_object, module_and_attribute
from streamsrt.config import key_value_pairs
from streamsrt.errors import ConfigError, StreamsError
from streamsrt.testing.simulator.running import simulate_seeds
from streamsrt.testing.simulator.values import Faults, Inputs, Protocols, SimulationFailure
from topology.spec.errors import TopologyError

_OF_A_REAL_CLUSTER = ("bootstrap.servers", "state.dir", "http.listen", "application.server", "num.stream.threads")
_REPORT_EVERY = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the seeds; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except SimulationFailure as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    except (StreamsError, TopologyError) as error:
        sys.stderr.write(f"simulator: {error}\n")
        return int(error.exit_code)


def _run(options: argparse.Namespace) -> int:
    application = load_application(options.application)
    config = {key: value for key, value in application.config.items() if key not in _OF_A_REAL_CLUSTER}
    config.update(key_value_pairs(options.config))
    faults = _faults(options.fault)
    counts: Counter[str] = Counter()
    done, virtual_s = 0, 0.0
    for result in simulate_seeds(
        application.topology,
        seeds=range(options.first, options.first + options.seeds),
        inputs=_inputs(options.inputs or module_and_attribute(options.application)[0]),
        instances=options.instances,
        partitions=options.partitions,
        faults=faults,
        protocol=options.protocol,
        config=config,
        compare=options.compare,
    ):
        counts.update(result.counts)
        done, virtual_s = done + 1, virtual_s + result.virtual_s
        if done % _REPORT_EVERY == 0:
            sys.stderr.write(f"{done} seeds passed\n")
    events = ", ".join(f"{text} {count}" for text, count in sorted(counts.items()))
    sys.stdout.write(f"{done} seeds passed, {virtual_s / 60:.0f} minutes of virtual time\n{events}\n")
    return 0


def _inputs(name: str) -> Inputs:
    found = load_object(name, "inputs")
    if callable(found):
        found = found()
    if not isinstance(found, Mapping) or not found:
        raise ConfigError(
            f"{name if ':' in name else f'{name}:inputs'} is not an input for a simulation: make it a mapping from the "
            "names of source topics to lists of streamsrt.testing.simulator.Input(key, value, timestamp), or name "
            "one with --inputs"
        )
    return found


def _faults(texts: Sequence[str]) -> Faults:
    numbers: dict[str, Any] = {}
    for kind, number in key_value_pairs(texts, "--fault").items():
        if kind not in _KINDS or not number.replace(".", "", 1).isdecimal():
            raise ConfigError(f"--fault {kind}={number}: expected NUMBER for one of {', '.join(_KINDS)}")
        numbers[kind] = float(number)
    return Faults(**numbers)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: give at least 1")
    return number


_KINDS = [name for name in Faults.__dataclass_fields__ if name != "varied"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m streamsrt.testing.simulator",
        description="Runs an application of several instances through seeded faults, all simulated, and checks the results.",
    )
    parser.add_argument("application", metavar="MODULE:TOPOLOGY", help="the topology, as for `streamsrt run`")
    parser.add_argument("--inputs", metavar="MODULE:ATTRIBUTE", help="the input records (default: `inputs` of MODULE)")
    parser.add_argument("--seeds", type=_at_least_one, default=100, help="number of seeds (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (default: %(default)s)")
    parser.add_argument("--instances", type=_at_least_one, default=3, help="of the application (default: %(default)s)")
    parser.add_argument("--partitions", type=_at_least_one, default=2, help="of each topic (default: %(default)s)")
    parser.add_argument(
        "--protocol",
        choices=get_args(Protocols),
        help="group protocol of the instances; both: some seeds start with each, and change it while they run "
        "(default: group.protocol of the application)",
    )
    parser.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="setting of the application; repeatable"
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="KIND=NUMBER",
        help=f"how often a fault occurs on average, or its probability: {', '.join(_KINDS)}; repeatable",
    )
    parser.add_argument(
        "--compare",
        choices=["each", "last", "none lost"],
        help="which values of each key must equal those of a run without faults (default: each under exactly_once_v2, "
        "else none lost)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
