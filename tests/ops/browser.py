"""A real browser without a window, driven over its own protocol: what a page asks for, shows, and complains about.

The protocol's messages are JSON texts that end with a NUL, on two pipes (``--remote-debugging-pipe``); the browser ends when
they are closed, so that it does not outlive this process.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lancewal_demo.stack import StackFailed

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE_S = 120.0
_COMPLAINTS = ("Log.entryAdded", "Runtime.exceptionThrown", "Page.javascriptDialogOpening")
#: The browser takes the pipes as 3 and 4.
_WITH_PIPES = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for number, pipe in zip((3, 4), pipes):
    os.dup2(pipe, number)
os.execvp(sys.argv[3], sys.argv[3:])
"""

Event = Mapping[str, Any]


def browser_program() -> str:
    found = next((path for name in _PROGRAMS if (path := shutil.which(name))), None)
    if found is None:
        raise StackFailed("no Chromium or Chrome on the PATH: install one (Debian: apt-get install chromium)")
    return found


class Browser:
    """One tab.  Runs inside ``with``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last = 0
        self._held = b""
        self._session: str | None = None
        self.events: list[Event] = []
        """All since the last ``open``, in order."""

    def __enter__(self) -> Self:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        arguments = [
            browser_program(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
            "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
            f"--user-data-dir={self._folder / 'profile'}", "about:blank",
        ]  # fmt: skip
        with open(self._folder / "browser.log", "wb") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-c", _WITH_PIPES, str(theirs_in), str(theirs_out), *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=(theirs_in, theirs_out), start_new_session=True,
            )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        (tab,) = (t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._out)
        os.close(self._in)
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def open(self, address: str) -> None:
        """Returns once the page is loaded."""
        self.events.clear()
        failed = self._call("Page.navigate", url=address).get("errorText")
        assert not failed, f"{address}: {failed}"
        self.wait_for("Page.loadEventFired")

    def wait_for(self, method: str, times: int = 1) -> None:
        """Until so many events of this kind have come since the last ``open``."""
        deadline = time.monotonic() + _PATIENCE_S
        while sum(event["method"] == method for event in self.events) < times:
            self._take(deadline, method)

    def value(self, expression: str) -> Any:
        """What JavaScript's expression is in the page."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def width(self, pixels: int) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride", width=pixels, height=800, deviceScaleFactor=1, mobile=False
        )  # fmt: skip

    def scheme(self, name: str) -> None:
        """``light`` or ``dark``."""
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    @property
    def version(self) -> str:
        """Its name and version."""
        return str(self._call("Browser.getVersion")["product"])

    @property
    def requested(self) -> list[str]:
        """Addresses that the page has asked for, its own among them."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    @property
    def complaints(self) -> list[str]:
        """What the page did that it must not: errors, refused by its policy or not, and dialogs."""
        return [json.dumps(event["params"]) for event in self.events if event["method"] in _COMPLAINTS]

    def _call(self, method: str, **parameters: object) -> dict[str, Any]:
        asked, deadline = self._send(method, **parameters), time.monotonic() + _PATIENCE_S
        while True:
            answer = self._take(deadline, method)
            if answer.get("id") == asked:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def _take(self, deadline: float, what: str) -> Event:
        """The next message; events are kept."""
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the browser does not answer: {what}"
            more = os.read(self._in, 1 << 16)
            assert more, f"the browser has ended, see {self._folder / 'browser.log'}"
            self._held += more
        text, _, self._held = self._held.partition(b"\0")
        message: Event = json.loads(text)
        if "method" in message:
            self.events.append(message)
        if message.get("method") == "Page.javascriptDialogOpening":  # it holds the page up
            self._send("Page.handleJavaScriptDialog", accept=True)
        return message

    def _send(self, method: str, **parameters: object) -> int:
        self._last += 1
        message: dict[str, object] = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        return self._last
