"""``make demo``: the flights application on the bundled broker, from raw data to tables.

    python -m examples.demo [--directory DIR] [--bootstrap-servers HOST:PORT] [--limit N]

It is ``streamsrt demo`` with all departures of the year. Everything is durable under the directory: stop it at any time,
run it again, and it resumes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from examples import flights
from streamsrt.cli.demo.program import DemoInput, console, run_demo
from streamsrt.errors import StreamsError

TOTAL = 336_776
WHOLE_YEAR = DemoInput(
    airlines=flights.read_airlines, departures=flights.read_departures, title="Departures from New York City, 2013"
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo", description="The flights application, start to end."
    )
    parser.add_argument("--directory", type=Path, default=Path(".streamsrt/demo"), help="directory of all data")
    parser.add_argument("--bootstrap-servers", help="use this cluster instead of the bundled broker")
    parser.add_argument("--limit", type=int, default=TOTAL, help="load only the first departures")
    options = parser.parse_args(arguments)
    try:
        run_demo(options.directory, WHOLE_YEAR, bootstrap_servers=options.bootstrap_servers, limit=options.limit)
    except (StreamsError, FileNotFoundError) as error:
        console.print(f"[bold red]demo:[/] {error}")
        return error.exit_code if isinstance(error, StreamsError) else 2
    except KeyboardInterrupt:
        console.print("Stopped. The next run resumes from here.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
