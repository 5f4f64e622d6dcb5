"""The command line: ``streamsrt``.

======================  =====================================================================
module                  commands
======================  =====================================================================
``entry``               the entry point: collects the commands, turns errors into messages
``early_stop``          SIGTERM and Ctrl-C before an application has started, and Ctrl-C in other commands
``run``                 ``run``
``init``                ``init``
``project_files``       what ``init`` writes
``properties``          Java properties files, of ``--config-file``
``demo``                ``demo``: a whole application with its data
``faust``               ``faust run|command``: applications of faust-streaming
``broker``              ``broker``
``topology``            ``topology describe|diff|lock|graph``
``topology_versions``   what ``topology diff`` compares: modules, files, the running group
``told_state``          what running instances tell of their stores, for comparisons
``told_topology``       the subtopologies of a classic group, as its members tell them
``upgrade``             ``upgrade plan|start|status|abort``
``takeover``            the options of a backfill that takes the state of another application over
``restored_state``      what an instance of a new version reads to restore its stores, and how long that takes
``restore_speed``       how many records of a changelog this machine restores per second
``topics``              ``topics list|create|describe|add-partitions|delete``
``records``             ``produce``, ``consume``
``record_formats``      formats of keys and values: bytes as text, and text as bytes
``record_input``        records from lines, JSON lines and CSV
``groups``              ``groups list|describe|delete|forget-topology`` and the rest of ``groups``
``offsets_backup``      the file in which ``groups forget-topology`` keeps the offsets of a group
``top``                 ``top``
``console``             ``console``: the same and more in a browser
``group_lag``           the offsets and the lag of ``groups describe``
``group_members``       ``groups remove-members``: removes static members that are away
``backfill``            ``backfill operators|plan|bundle|run|resume|status|verify|commit|abort``
``backfill_progress``   the line that ``backfill run`` prints every few seconds
``backfill_report``     the tables of ``backfill report``
``dlq``                 ``dlq list|show|replay|drop``
``state``               ``state export|inspect|diff|clean|repartition``
``arguments``           options of several commands, and arguments ``KEY=VALUE``
``session``             connecting to a cluster, finding or starting the bundled broker
``output``              tables for people, JSON for programs
``application``         finding the application that a command names: ``MODULE:ATTRIBUTE``
``classic_group``       a group of the classic protocol as the cluster describes it
``described_group``     a streams group as the cluster describes it, for the commands about groups
``group_offsets``       ``streamsrt groups reset-offsets`` and ``delete-offsets``: where a stopped application
                        continues
``query``               ``streamsrt query``: asks a running instance over HTTP
``live_table``          a table that stays in place on a terminal while something runs; elsewhere lines, and the table
                        at the end
======================  =====================================================================

Exit codes: 0 done; 1 anything unforeseen; 2 the user's mistake (arguments, configuration, topology, a missing topic);
3 the broker can't be reached or refuses; 4 the state directory; 5 a record that could not be handled; 6 fenced or refused
by the group; 7 another instance asked all of them to stop; 130 interrupted; 143 SIGTERM before ``--until quiet`` was done.
"""

from __future__ import annotations

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C has ended."""


def main() -> None:
    """The console script. Signals are taken care of before anything that takes long to import."""
    import signal
    import sys

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave_at_once)

    from streamsrt.cli.early_stop import StoppedEarlyError, early_stop

    try:
        with early_stop(sys.argv[1:]):
            from streamsrt.cli.entry import run_command_line
        run_command_line()
    except StoppedEarlyError as stopped:
        sys.exit(stopped.exit_code(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def leave_at_once(_number: int, _frame: object) -> None:
    """What Ctrl-C does while modules are imported, and when the command is over. Nothing is open then that would have to be
    closed, and whoever is interrupted by an exception may print it."""
    import os

    os._exit(INTERRUPTED)
