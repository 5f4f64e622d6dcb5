"""A lock file with the agreed topology, which must match the topology that runs.

1. The file contains what ``streamsrt topology describe --json`` prints, with the topology epoch of the version. Whoever
   changes the topology writes it again (``streamsrt topology lock``), and sees what happens to the state.
2. A topology matches if its digest is the one in the file, and no generated name stands for something else.
3. A file of an earlier release may lack what is compared of a store. It is valid, and a message says
   so.
4. With a lock file, the epoch is the one in the file and need not be set anywhere else; another epoch is refused.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import orjson

from streamsrt.errors import ConfigError, TopologyMismatchError
from topology.graph.diff import TopologyDiff, Verdict, diff
from topology.graph.outline import TopologyOutline, outline
from topology.graph.topology import Topology

logger = logging.getLogger(__name__)

LOCK_FILE = "topology.lock"
_LISTED = 5


def read_lock(path: Path) -> TopologyOutline | None:
    """Reads the version in the file; None if there is no file. Raises ConfigError."""
    try:
        return TopologyOutline.from_json(orjson.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"lock file {path} can't be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(
            f"lock file {path}: {error}. Restore it from version control, or write another one with `streamsrt topology "
            f"lock APPLICATION --file {path} --force --config topology.epoch=N`, where N is the epoch that runs"
        ) from None


def write_lock(path: Path, version: TopologyOutline) -> None:
    """Writes the file. Raises ConfigError."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        made.write_bytes(orjson.dumps(version.to_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
        os.replace(made, path)
    except OSError as error:
        raise ConfigError(f"lock file {path} can't be written: {error.strerror}") from None


def outdated_text(agreed: TopologyOutline, now: TopologyOutline, path: Path) -> str:
    """What a lock file of an earlier release does not say of the stores of the same topology, and what to do; empty if it
    says all."""
    if not agreed.incomplete or agreed.digest != now.digest:
        return ""
    first, more = sorted(agreed.incomplete)[:_LISTED], len(agreed.incomplete) - _LISTED
    listed = ", ".join(first) + (f" and {more} more" if more > 0 else "")
    return (
        f"lock file {path} was written by an earlier release: it does not contain what is compared now of {listed} (inputs, "
        "windows, sides of joins, ttl, max_entries, serdes of repartition topics), so a change of that is not found. Write "
        "it again with `streamsrt topology lock APPLICATION` before you change the topology, and check it in"
    )


def locked(topology: Topology, path: Path, epoch: int | None = None) -> Topology:
    """Returns the topology with the epoch of the lock file. ``epoch``: the configured one.

    Raises TopologyMismatchError where it is not the one in the file, ConfigError where there is no file.
    """
    agreed = read_lock(path)
    if agreed is None:
        raise ConfigError(f"there is no lock file {path}: write it with `streamsrt topology lock APPLICATION`")
    if epoch is not None and epoch != agreed.epoch:
        raise TopologyMismatchError(f"topology.epoch={epoch} is set, and lock file {path} has epoch {agreed.epoch}")
    now = outline(topology)
    found = diff(agreed, now)
    if found.verdict is not Verdict.SAME:
        raise TopologyMismatchError(
            f"The topology is not the one in lock file {path}:\n{changes_text(found)}\nIf this is intended, run `streamsrt "
            f"topology lock APPLICATION` and check the file in; it gets topology epoch {found.epoch_needed}."
        )
    outdated = outdated_text(agreed, now, path)
    if outdated:
        logger.warning("%s", outdated)
    for each in found.kept_otherwise:
        logger.warning("not as in lock file %s: %s. `streamsrt topology lock APPLICATION` writes it again", path, each)
    return replace(topology, epoch=agreed.epoch)


def changes_text(found: TopologyDiff) -> str:
    """Describes the differences, one per line."""
    parts = [
        f"  subtopology {each.id}: {each.change if each.change != 'same' else 'other steps or formats'}"
        for each in found.subtopologies
        if each.change != "same" or each.has_other_steps
    ]
    state = [
        f"  {each.kind} {each.name}: {each.fate}{f' ({each.reason})' if each.reason else ''}"
        for each in found.state
        if each.fate != "carried over" or each.reason
    ]
    return "\n".join([*parts, *state]) or "  steps in another order"
