"""``streamsrt upgrade start``: runs one instance of the new version, as a plan says.

1. The epoch is that of the plan. An instance that is started again after the upgrade was sent back finds another epoch
   in its group, and ends: it does not begin an upgrade.
2. The cluster is that of the plan, too: another one is refused.
3. Until the group has taken the new version, its topics and rights are checked once more, in their present state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamsrt.cli.arguments import ConfigOverModule
from streamsrt.cli.entry import command_line
from streamsrt.cli.output import note
from streamsrt.cli.session import BootstrapServers, cluster
from streamsrt.cli.topology_versions import ready_application
from streamsrt.cli.upgrade.plan import AgreedPlan, read_plan
from streamsrt.cli.upgrade.preflight import refusals
from streamsrt.config import key_value_pairs
from streamsrt.errors import ConfigError, TopologyMismatchError
from streamsrt.runtime.group_facts import GroupFacts, describe_when_settled

OTHER_OPTIONS = {"allow_extra_args": True, "ignore_unknown_options": True}


def start(
    context: typer.Context,
    new: Annotated[str, typer.Argument(help="MODULE:ATTRIBUTE of the new version")],
    plan: Annotated[Path, typer.Option("--plan", help="file of `upgrade plan --out`")],
    bootstrap_servers: BootstrapServers = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="state directory of the instance that it replaces")
    ] = None,
    config: ConfigOverModule = None,
) -> None:
    """Run an instance of the new version with the epoch of a plan. Accepts all options of `streamsrt run`.

    It is refused if the plan is refused, if NEW is not the planned version, or if the group's epoch has changed: the
    upgrade was rolled back or completed, or another one was started.
    """
    agreed = read_plan(plan)
    if agreed.refusals:
        raise ConfigError(f"plan {plan} refuses to start: {agreed.refusals[0]}")
    topology = ready_application(new, key_value_pairs(config or []))
    if topology.digest != agreed.digest:
        raise TopologyMismatchError(
            f"{new} is not the version that plan {plan} was made for: make a new one with `streamsrt upgrade plan {new} "
            f"--group {agreed.group} --out {plan}`"
        )
    servers = bootstrap_servers or agreed.bootstrap_servers
    with cluster(servers) as network:
        agreed.check_cluster(plan, servers, network.admin.cluster().cluster_id)
        found = next((each for each in network.admin.list_groups() if each.group_id == agreed.group), None)
        facts = None if found is None else describe_when_settled(network.admin, agreed.group)
        why = "" if facts is None else _why_not(facts, agreed, plan)
        if not why and facts is not None and facts.epoch == agreed.epoch_before:
            why = "; ".join(refusals(network, agreed.group, facts.kind, topology))
    if why:
        raise TopologyMismatchError(why)
    note(f"{new} runs with topology.epoch={agreed.epoch_needed}, as {plan} says")
    settings = [*(config or []), f"topology.epoch={agreed.epoch_needed}"]
    arguments = ["run", new, "-a", agreed.group, *(part for each in settings for part in ("--config", each))]
    arguments += [] if servers is None else ["-b", servers]
    arguments += [] if state_dir is None else ["--state-dir", str(state_dir)]
    code = command_line("run")([*arguments, *context.args], standalone_mode=False)
    raise typer.Exit(code or 0)


def _why_not(facts: GroupFacts, agreed: AgreedPlan, plan: Path) -> str:
    """Why the plan no longer fits the group; empty if it does."""
    if facts.epoch is None or facts.epoch == agreed.epoch_before:
        return ""
    again = f"make a new plan (streamsrt upgrade plan NEW --group {facts.name} --out {plan})"
    if facts.epoch != agreed.epoch_needed:
        return (
            f"plan {plan} takes group {facts.name} from topology epoch {agreed.epoch_before} to {agreed.epoch_needed}, "
            f"and the group has epoch {facts.epoch} now: the upgrade was rolled back, or another one "
            "was started. To try again, "
            f"{again}"
        )
    others = {each.digest for each in facts.with_epoch(facts.epoch) if each.digest is not None}
    others |= {facts.known_digest} - {""}
    if others and not any(agreed.digest.startswith(each) for each in others):
        return f"group {facts.name} runs another version with topology epoch {facts.epoch} already: {again}"
    return ""
