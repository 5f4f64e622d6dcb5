"""``python -m tests.tools.reference [--write]``: which pages are not what the code says; with ``--write`` they become it."""

from __future__ import annotations

import argparse
import sys

from tests.tools.reference import FOLDER, pages


def main() -> int:
    """The exit code: 1 if a page is out of date and was not written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write the pages of {FOLDER}")
    is_written = parser.parse_args().write
    stale = 0
    for name, text in pages().items():
        page = FOLDER / name
        if page.exists() and page.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{name}: {'written' if is_written else 'out of date'}")
        if is_written:
            page.parent.mkdir(exist_ok=True)
            page.write_text(text, encoding="utf-8")
    return int(stale > 0 and not is_written)


if __name__ == "__main__":
    sys.exit(main())
