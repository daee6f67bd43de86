"""A headless Chromium that opens pages and says what a reader meets there, without a package: DevTools over two pipes.

`TENSORPROG_BROWSER` names a browser; otherwise the first of the usual names on the path is taken.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

__all__ = ["Browser", "Tab", "command"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--allow-file-access-from-files",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0  # seconds until an answer that does not come is an error
LOADED = "Page.loadEventFired"
BAD = ("Runtime.exceptionThrown", "Log.entryAdded")


class Browser:
    """One process; `open` gives a page in it."""

    def __init__(self, command: str, folder: Path) -> None:
        theirs, self._write = os.pipe()
        self._read, answers = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs, answers)]

        def ends() -> None:  # the protocol reads descriptor 3 and writes 4
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [command, *OPTIONS, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=ends,
            pass_fds=(3, 4, *high),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (theirs, answers, *high):
            os.close(end)
        self._buffer = b""
        self._count = 0
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """The answer to one call; events that come before it are kept."""
        self._count += 1
        call = {"id": self._count, "method": method, "params": params} | ({"sessionId": session} if session else {})
        data = json.dumps(call).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            message = self.next()
            if message.get("id") == call["id"]:
                assert "error" not in message, (method, message["error"])
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    def next(self) -> dict[str, Any]:
        """The next message."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser says nothing"
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has left"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self) -> Tab:
        """An empty page."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        return Tab(self, self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(AssertionError, OSError):
            self.ask("Browser.close")
        os.close(self._write)
        os.close(self._read)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Tab:
    """One page: what it fetched and complained of since `show`."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session
        for part in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{part}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One call to this page."""
        return self.browser.ask(method, self.session, **params)

    def size(self, width: int, dark: bool, height: int = 900) -> None:
        """The size of the window, and whether the reader likes it dark."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media="screen", features=[scheme])

    def show(self, page: Path | str) -> None:
        """Open a file or an address and wait until it is loaded."""
        self.browser.events.clear()
        self.ask("Page.navigate", url=page.resolve().as_uri() if isinstance(page, Path) else page)
        while not any(event["method"] == LOADED for event in self._events()):
            self.browser.events.append(self.browser.next())

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, which may be a promise."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def _events(self) -> list[dict[str, Any]]:
        return [event for event in self.browser.events if event.get("sessionId") == self.session]

    def fetched(self) -> list[str]:
        """Addresses that the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self._events()
            if event["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions."""
        found = [json.dumps(event["params"]) for event in self._events() if event["method"] in BAD]
        return found + [
            json.dumps(event["params"]["args"])
            for event in self._events()
            if event["method"] == "Runtime.consoleAPICalled"
            and event["params"]["type"] in ("error", "warning", "assert")
        ]

    def picture(self, path: Path, whole: bool = True, most: int = 16000) -> None:
        """A screenshot, of the whole page unless only the first screen is asked for."""
        if whole:
            size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], most), "scale": 1}
            answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        else:
            answer = self.ask("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))


def command() -> str | None:
    """The browser of this machine."""
    return os.environ.get("TENSORPROG_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
