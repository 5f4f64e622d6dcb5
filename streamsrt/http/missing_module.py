"""Why HTTP can't start if a module is not found. It imports none of the packages that HTTP needs."""

from __future__ import annotations

import sys

from streamsrt.errors import ConfigError


def missing_module(error: ModuleNotFoundError, listen: str) -> ConfigError:
    """Returns the error with what to do. ``listen``: the value of ``http.listen``."""
    root = (error.name or "").partition(".")[0]
    if root not in sys.stdlib_module_names:
        return ConfigError(
            f"http.listen={listen} needs packages that are not installed ({error.name}): pip install 'streamsrt[http]'"
        )
    hiding = getattr(sys.modules.get(root), "__file__", None)
    return ConfigError(
        f"http.listen={listen} needs Python's own module {root!r}, which is hidden by a module of the same name beside the "
        f"program{f' ({hiding})' if hiding else ''}: rename that"
    )
