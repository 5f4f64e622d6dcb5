"""A browser without a window: Chromium, which is told over two pipes what to do (its DevTools protocol).

1. Nobody waits for a time: a condition is watched in the page itself, whenever the page changes.
2. What the page has worked is counted in CPU time of its thread, which says the same on a busy machine.
3. An error of the page's own program is an error of whoever asks next.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

PATIENCE_S = 120.0
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_WATCH = """new Promise((resolve) => {
  const holds = () => { try { return Boolean(%s); } catch { return false; } };
  if (holds()) return resolve(true);
  const watcher = new MutationObserver(() => { if (holds()) { watcher.disconnect(); resolve(true); } });
  watcher.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
})"""


class PageError(AssertionError):
    """The page's own program has failed, or what was asked of the browser has."""


class Browser:
    """One page. ``command``: the program."""

    def __init__(self, folder: Path, command: str = "chromium") -> None:
        (to_read, said), (heard, to_write) = os.pipe(), os.pipe()
        words = [command, *_OPTIONS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        # The browser reads from 3 and writes to 4.
        script = f'exec "$@" 3<&{heard} 4>&{said}'
        with (folder / "browser.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", script, "browser", *words],
                pass_fds=(heard, said),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        os.close(heard)
        os.close(said)
        self._in, self._out = to_read, to_write
        self._is_closed = False
        self._numbers = itertools.count(1)
        self._unread = b""
        self._errors: list[str] = []
        self._session: str | None = None
        page = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime"):
            self.ask(f"{domain}.enable")
        self.ask("Performance.enable", timeDomain="threadTicks")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """The browser ends."""
        if self._is_closed:
            return  # The numbers may be of other files by now.
        self._is_closed = True
        os.close(self._out)  # it ends when nobody can tell it anything any more
        try:
            self._process.wait(20.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)

    def ask(self, method: str, /, **values: object) -> dict[str, Any]:
        """What the browser answers to one call of its protocol."""
        number = next(self._numbers)
        call: dict[str, object] = {"id": number, "method": method, "params": values}
        if self._session is not None:
            call["sessionId"] = self._session
        os.write(self._out, json.dumps(call).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while (found := self._message(deadline, method)).get("id") != number:
            if found.get("method") == "Runtime.exceptionThrown":
                self._errors.append(_said(found["params"]["exceptionDetails"]))
        if "error" in found:
            raise PageError(f"{method}: {found['error']}")
        if self._errors:
            raise PageError("; ".join(self._errors))
        return dict(found["result"])

    def _message(self, deadline: float, method: str) -> Mapping[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._in, 1 << 20) if ready else b""
            if not piece:
                raise PageError(f"the browser does not answer to {method} within {PATIENCE_S:g} s, or has ended")
            self._unread += piece
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))

    # ------------------------------------------------------------------------------------------------------- the page

    def look_like(self, *, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        """The size of the window, the colours that the person prefers, whether it is a phone."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        wanted = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=wanted)

    def open(self, url: str) -> None:
        self.ask("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is in the page; a promise is awaited."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise PageError(f"{expression}: {_said(found['exceptionDetails'])}")
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Until an expression of JavaScript holds, which is looked at whenever the page changes."""
        try:
            self.value(_WATCH % condition)
        except PageError as error:
            shown = self.value("document.body.innerText")
            raise PageError(f"{condition} did not come to hold: {error}. The page shows:\n{shown[:2000]}") from error

    def worked_s(self) -> float:
        """CPU seconds of the page's thread so far: scripts, styles, layout."""
        told = {each["name"]: each["value"] for each in self.ask("Performance.getMetrics")["metrics"]}
        return float(told["TaskDuration"])

    def picture(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"])


def _said(details: Mapping[str, Any]) -> str:
    return str(details.get("exception", {}).get("description") or details.get("text"))
