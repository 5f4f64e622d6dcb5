"""Modules of an application that its settings name (``autodiscover=``), imported before anything is collected.

1. Faust's own ``App.discover`` does it, where faust's worker does it: after the application is final, and once.
2. A module that is named and not there is an error. One inside a package that can't be imported is logged, as by faust.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from faust.exceptions import ImproperlyConfigured

from streamsrt.errors import UserError
from streamsrt.faust.locations import declared_at

if TYPE_CHECKING:
    import faust

_DISCOVERED: WeakSet[faust.App] = WeakSet()


def discover(app: faust.App) -> None:
    """Makes the application final, and imports what its ``autodiscover=`` names. Raises UserError for what is not there."""
    app.finalize()
    if app in _DISCOVERED:
        return
    app.worker_init()
    if app.conf.autodiscover:
        try:
            app.discover()
        except ImproperlyConfigured:
            raise UserError(
                f"autodiscover=True of {app.conf.id}{declared_at(app)} needs origin=: the package that has the agents"
            ) from None
        except ModuleNotFoundError as error:
            cause = error.__context__ or error
            raise UserError(
                f"autodiscover= of {app.conf.id}{declared_at(app)} names a module that can't be imported: {cause}. "
                "Name modules as Python imports them, from the directory in which the application is started"
            ) from error
    _DISCOVERED.add(app)
