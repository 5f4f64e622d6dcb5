"""``streamsrt upgrade``: a new version of a running application, from the plan to its end or back."""

from __future__ import annotations

import typer

from streamsrt.cli.upgrade.abort import abort
from streamsrt.cli.upgrade.plan import plan
from streamsrt.cli.upgrade.start import OTHER_OPTIONS, start
from streamsrt.cli.upgrade.status import status

app = typer.Typer(help="Upgrade a running application: plan, start, follow, roll back.", no_args_is_help=True)
app.command("plan")(plan)
app.command("start", context_settings=OTHER_OPTIONS)(start)
app.command("status")(status)
app.command("abort")(abort)
