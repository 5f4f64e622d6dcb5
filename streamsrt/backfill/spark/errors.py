"""What Spark's errors say: the file that can't be read, the module that a worker does not have, and the cause."""

from __future__ import annotations

import re
from urllib.parse import unquote

_FILE = re.compile(
    r"Encountered error while reading file (?P<path>.+?)\.?\s*?"
    # What may follow the path, which may hold spaces and dots itself.
    r"(?:\s(?:SQLSTATE: |(?P<footer>Could not read footer)|File does not exist|Data type mismatches when|The file system )|"
    r"\s*$)",
    re.MULTILINE,
)

_HEADER = re.compile(r"Could not read file: (?P<path>[^\n]+)")
"""Of a file whose columns are looked for."""
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n)+(?P<error>[^\s][^\n]*)")
_MODULE = re.compile(r"No module named '([\w.]+)'")


def plain_path(uri: str) -> str:
    """A path as Spark lists it, of a path as Spark names it elsewhere."""
    return re.sub(r"^file:/+", "file:/", unquote(uri))


def file_in(text: str) -> str | None:
    """The file that an error of Spark's is about, as Spark lists it; None if it names none."""
    found = _FILE.search(text)
    if found is None:
        header = _HEADER.search(text)
        return None if header is None else plain_path(header["path"].strip().replace("%", "%25"))
    # Only what is found in a footer names the file as it is; all else names its URI.
    return plain_path(found["path"].replace("%", "%25") if found["footer"] else found["path"])


def python_error(text: str) -> str:
    """The error at the end of the last traceback of a Python worker; empty if there is none."""
    found = [match["error"].strip() for match in _TRACEBACK.finditer(text)]
    return found[-1] if found else ""


def missing_module(text: str) -> str | None:
    """The module that a Python worker can't import; None if that is not the error."""
    found = _MODULE.search(text) if "Traceback" in text else None
    return None if found is None else found[1]


def last_cause(text: str) -> str:
    """The last cause in Spark's error message; empty if there is none."""
    causes = [line.partition("Caused by: ")[2] for line in text.splitlines() if line.startswith("Caused by: ")]
    return causes[-1].strip() if causes else ""
