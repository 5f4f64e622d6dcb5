"""The options of ``streamsrt backfill plan`` that take the state of another application over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from streamsrt.backfill.copying.planning import Takeover
from streamsrt.backfill.plan import StateCopy
from streamsrt.cli.arguments import utc_ms
from streamsrt.cli.output import note, print_rows
from streamsrt.client.values import EARLIEST, LATEST
from streamsrt.config import key_value_pairs
from streamsrt.errors import ConfigError

StateOf = Annotated[
    str | None,
    typer.Option(
        "--state-of",
        help="take the state of this application over, e.g. of one in Java, out of its changelogs, and compute nothing",
    ),
]
ChangelogOf = Annotated[
    list[str] | None,
    typer.Option(
        "--changelog",
        help="with --state-of: STORE=TOPIC, the changelog of a store that has another name there; repeatable",
    ),
]
Empty = Annotated[
    list[str] | None, typer.Option("--empty", help="with --state-of: store that begins empty; repeatable")
]
ReadFrom = Annotated[
    list[str] | None,
    typer.Option(
        "--read-from",
        help="with --state-of: TOPIC=earliest, latest or a time, for a topic that the other application does not read",
    ),
]
RecordKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--record-keys", help="with --state-of: store of a processor whose keys are those of its records; repeatable"
    ),
]
_ENDS = {"earliest": EARLIEST, "latest": LATEST}


def takeover_of(
    origin: str | None,
    changelogs: Sequence[str],
    empty: Sequence[str],
    read_from: Sequence[str],
    record_keys: Sequence[str],
) -> Takeover | None:
    """What is said about the other application; None if none is. Raises ConfigError."""
    if origin is None:
        if changelogs or empty or read_from or record_keys:
            raise ConfigError("--changelog, --empty, --read-from and --record-keys are for --state-of APPLICATION")
        return None
    return Takeover(
        origin=origin,
        changelogs=key_value_pairs(changelogs, "--changelog"),
        empty=empty,
        begins={topic: _offset_ms(text) for topic, text in key_value_pairs(read_from, "--read-from").items()},
        record_keys=record_keys,
    )


def _offset_ms(text: str) -> int:
    """What asks for the offset: a time in ms, or the beginning or the end."""
    if text in _ENDS:
        return _ENDS[text]
    try:
        return utc_ms(text)
    except ValueError:
        raise ConfigError(
            f"--read-from {text}: give earliest, latest, or a time as 2026-03-01 or 2026-03-01T12:00:00Z"
        ) from None


def show_copied(application_id: str, copied: StateCopy) -> None:
    """Shows which changelogs stores are filled from."""
    rows = [
        {"store": name, "changelog": each.topic, "partitions": len(each.ends), "offsets": sum(each.ends)}
        for name, each in copied.stores.items()
    ]
    print_rows(["store", "changelog", "partitions", "offsets"], rows, as_json=False)
    note(
        f"stores of {application_id} are filled from changelogs of {copied.application_id}, into which nothing may be "
        "written before the run has ended"
    )
