"""``/upgrade``: the progress of the application's upgrade, according to its group, and what this instance does in it.

1. The group is described over a connection of its own, which is closed after the response: stream threads may be other
   processes.
2. For its own warm-up tasks, the instance has better information than the group: current offsets, and the remaining
   time.
3. An instance that can't reach its group reports only about itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import FetchConfig
from streamsrt.errors import StreamsError
from streamsrt.http.instance import Instance
from streamsrt.runtime.assembly import client_config
from streamsrt.runtime.health import is_behind
from streamsrt.runtime.upgrade_status import UpgradeStatus, UpgradeWatch
from streamsrt.runtime.values import TaskProgress
from streamsrt.runtime.way_back import WayBack

_TIMEOUT_S = 5.0
_PATIENCE_S = 2.0
_COMMITTED = FetchConfig(isolation_level="read_committed", max_wait_ms=20)

Body: TypeAlias = dict[str, object]


def upgrade(instance: Instance) -> tuple[int, Body]:
    """Returns the response."""
    try:
        found = _look(instance)
    except StreamsError as error:
        return 503, {"error": "GroupUnknown", "message": str(error), "instance": _instance(instance)}
    return 200, {**found.to_json(), "instance": _instance(instance)}


def _look(instance: Instance) -> UpgradeStatus:
    network = NetworkThread(replace(client_config(instance.config), fetch=_COMMITTED))
    network.start(_TIMEOUT_S)
    try:
        seen = WayBack(network, patience_s=_PATIENCE_S).group(instance.config.application_id)
        return UpgradeWatch().status(seen, 0.0)
    finally:
        network.stop()


def _instance(instance: Instance) -> Body:
    progress, why = instance.progress, instance.why_not_ready()
    tasks = progress.tasks
    return {
        "member_id": progress.member_id,
        "state": instance.state.value,
        "topology_epoch": instance.topology.epoch,
        "digest": instance.topology.digest,
        "is_behind": is_behind(progress),
        "ready": not why,
        "why": why,
        "tasks": {
            role: [each.task_id for each in tasks if each.role == role] for role in ("active", "standby", "warmup")
        },
        "warming_up": [_warm_up(each) for each in tasks if each.role == "warmup"],
        "statuses": progress.statuses,
    }


def _warm_up(task: TaskProgress) -> Body:
    left = [(each.remaining_records, each.offsets_per_second) for each in task.restoring]
    speeds = [behind / speed for behind, speed in left if speed]
    is_known = all(speed or not behind for behind, speed in left)
    return {
        "task": task.task_id,
        "behind": sum(behind for behind, _ in left),
        "eta_s": max(speeds, default=0.0) if is_known else None,
    }
