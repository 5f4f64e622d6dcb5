"""Which version of the topology ran last: with this state directory, and in the other members of the group.

1. The same topology epoch with another topology is refused: before the group is joined, so that the others do not notice,
   and once more when it is joined and no task is open yet. Of two versions that start at the same moment each may look
   before the other has joined; but not both of them after. Apache Kafka compares topics and stores only; this, and the
   bundled broker, compare the whole structure, by its digest.
2. With another epoch everything may change but the bytes in a store: what lies in a store of the same name must be
   readable. Which of two versions is the newer one is the coordinator's to judge.
3. What ran is written down when the member runs: a version that was refused leaves no trace.

The digest of a member is among its client tags, where the other members find it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from streamsrt.client.interface import Administering
from streamsrt.errors import TopologyMismatchError
from streamsrt.state.private_files import write_private
from streamsrt.wire import types
from streamsrt.wire.client_tags import TOPOLOGY_DIGEST
from topology.graph.diff import diff
from topology.graph.outline import TopologyOutline, outline
from topology.graph.topology import Topology

FILE = "topology.json"
_TAG_DIGITS = 16


def digest_tag(topology: Topology) -> dict[str, str]:
    """The client tag that tells the version of a member."""
    return {TOPOLOGY_DIGEST: topology.digest[:_TAG_DIGITS]}


def check_group(application_id: str, topology: Topology, admin: Administering) -> None:
    """Asks the group for its members. Raises TopologyMismatchError as :func:`check_members` does, and BrokerError."""
    (group,) = admin.describe_streams_groups([application_id])
    check_members(application_id, topology, group)


def check_members(
    application_id: str, topology: Topology, described: types.StreamsGroupDescribeResponse.DescribedGroup
) -> None:
    """Raises TopologyMismatchError where a member of the group runs another topology under the same epoch.

    ``described``: the group's entry in the answer to StreamsGroupDescribe; one with an error has no members.
    """
    mine = digest_tag(topology)[TOPOLOGY_DIGEST]
    for member in described.members:
        theirs = {tag.key: tag.value for tag in member.client_tags}.get(TOPOLOGY_DIGEST, mine)
        if member.topology_epoch == topology.epoch and theirs != mine:
            raise TopologyMismatchError(
                f"Application {application_id!r}: member {member.member_id} on {member.client_host.lstrip('/')} runs "
                f"another topology under the same topology epoch {topology.epoch}. {_advice(topology.epoch + 1)}"
            )


class LocalVersion:
    """The version that ran last with a state directory. ``path`` is the directory of the application."""

    def __init__(self, path: Path, topology: Topology) -> None:
        self._file = path / FILE
        self._outline = outline(topology)
        self._remembered = False

    def check(self) -> None:
        """Raises TopologyMismatchError where this version may not follow the one that ran last."""
        last = self._last()
        if last is None:
            return
        if last.epoch == self._outline.epoch and last.digest != self._outline.digest:
            raise TopologyMismatchError(
                f"The topology is not the one that ran last with the state in {self._file.parent}, and both have topology "
                f"epoch {last.epoch}. {_advice(last.epoch + 1, self._file)}"
            )
        misread = [change for change in diff(last, self._outline).state if change.fate == "incompatible"]
        stores = [change for change in misread if change.kind == "store"]
        if stores:
            listed = "; ".join(f"store {change.name!r}: {change.reason}" for change in stores)
            raise TopologyMismatchError(
                f"The state in {self._file.parent} would be misread by this version: {listed}. `streamsrt topology diff "
                f"{self._file} NEW` shows all changes."
            )

    def remember(self) -> None:
        """Writes this version down."""
        if self._remembered:
            return
        made = self._file.with_suffix(f".{os.getpid()}.tmp")
        write_private(made, json.dumps(self._outline.to_json(), indent=1) + "\n")
        os.replace(made, self._file)
        self._remembered = True

    def _last(self) -> TopologyOutline | None:
        try:
            return TopologyOutline.from_json(json.loads(self._file.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError):
            # None was written yet, or one of another format: the coordinator's comparison remains.
            return None


def _advice(epoch: int, last: Path | None = None) -> str:
    return (
        f"`streamsrt topology diff {last or 'OLD'} NEW` shows what happens to the running state; then run the new version "
        f"with topology.epoch={epoch}, or the unchanged old one."
    )
