"""The pages of docs/reference/, out of the code: ``python -m tests.tools.reference --write``.

- ``source``    what stands in the code: trees, docstrings, signatures, and how they look in Markdown
- ``settings``  settings of an application and of the bundled broker
- ``commands``  the command line: arguments, options, help
- ``errors``    every error: whose fault it is, its exit code, what to do
- ``api``       the public classes and functions
- ``design``    the modules and rules of each package, for contributors

1. A page is a function of the code: the same text with any Python, terminal or version of a library.
2. Nothing is listed by hand that the code lists already. Where a page has an order of its own, what is missing in it is an
   error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from tests.tools.reference.api import api_page
from tests.tools.reference.commands import commands_page
from tests.tools.reference.design import design_page
from tests.tools.reference.errors import errors_page
from tests.tools.reference.settings import settings_page

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference"


WRITERS: Mapping[str, Callable[[], str]] = {
    "api.md": api_page,
    "commands.md": commands_page,
    "design.md": design_page,
    "errors.md": errors_page,
    "settings.md": settings_page,
}
"""What writes each page, by the page's name."""


@cache
def pages() -> Mapping[str, str]:
    """The text of each page by its name."""
    return {name: write() for name, write in WRITERS.items()}
