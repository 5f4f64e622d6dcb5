"""CRC-32C, by the hardware.

The package ``crc32c`` imports what its own command line needs (argparse, email, zipfile, and more), which takes 2 MB of
every process. What computes the checksum is one extension module of it, which is loaded here without the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


def _loaded() -> Callable[..., int]:
    package = find_spec("crc32c")
    extension = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if extension is None or extension.loader is None:
        # Another version of the package, whose modules have other names.
        from crc32c import crc32c as of_package

        return of_package
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    found: Callable[..., int] = module.crc32c
    return found


crc32c = _loaded()
"""``crc32c(data, before=0)``: the checksum of bytes that follow those whose checksum is ``before``."""
