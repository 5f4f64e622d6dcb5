"""What a version that fails during an upgrade says first: the old instances go on, and how to roll back.

1. Records that the old version processes are not to be skipped because of a mistake in the new one: so this comes before
   the advice about the record.
2. The group is described over a connection of its own: the one of the stream thread may be what fails. Where the group
   can't be described in time, the error is left as it is.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import FetchConfig
from streamsrt.config import StreamsConfig
from streamsrt.errors import RecordError, StreamsError
from streamsrt.runtime.assembly import client_config
from streamsrt.runtime.group_facts import GroupFacts
from streamsrt.runtime.upgrade_status import advice_on_way_back
from streamsrt.runtime.way_back import WayBack, former_version
from streamsrt.wording import counted

logger = logging.getLogger(__name__)

_TIMEOUT_S = 3.0


def put_upgrade_first(error: StreamsError, config: StreamsConfig, epoch: int) -> None:
    """Puts the advice about the upgrade in front of the message of a failed record. ``epoch``: of the version that fails;
    with epoch 0, nothing was upgraded."""
    if not isinstance(error, RecordError) or epoch == 0:
        return
    network = NetworkThread(
        replace(client_config(config), fetch=FetchConfig(isolation_level="read_committed", max_wait_ms=20))
    )
    try:
        network.start(_TIMEOUT_S)
        advice = advice_to_failing(WayBack(network, patience_s=_TIMEOUT_S).group(config.application_id), epoch)
    except StreamsError as unknown:
        logger.debug("it is not known whether instances of another version run: %s", unknown)
        return
    finally:
        network.stop()
    if advice:
        error.args = (f"{advice}. What failed: {error}", *error.args[1:])


def advice_to_failing(now: GroupFacts, epoch: int) -> str:
    """Returns what to do if the version with this topology epoch fails; empty if it is not the newest, or runs alone."""
    if not now.knows_versions:
        if len(now.members) < 2:
            return ""
        return (
            f"this version, topology epoch {epoch}, has failed. If instances of an earlier version run, they go on with its "
            f"tasks: keep them running, and see what to do with streamsrt upgrade status --group {now.name}"
        )
    former = former_version(now)
    if former is None or not former.leaving or now.epochs[0] != epoch:
        return ""
    return (
        f"the new version, topology epoch {epoch}, has failed during an upgrade. {counted(len(former.members), 'instance')} "
        f"with topology epoch {former.epoch} can go on with its tasks: keep them running, and skip no records for it. "
        f"Correct this version and start it again (topology.epoch={epoch} if its topology stays the same, else {epoch + 1})"
        f"; {advice_on_way_back(now, former)}"
    )
