"""A headless Chromium for a test, spoken to over a pipe in its own protocol, without a driver of others."""
import json
import os
import shutil
import subprocess
import threading

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


def binary():
    """The browser's path; skips where there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser is installed: none of {', '.join(NAMES)}")
    return found


class Browser:
    """One page. `problems`: what its scripts threw, and what the browser logged as errors."""

    def __init__(self, profile):
        # It reads from descriptor 3 and writes to 4.
        self._process = subprocess.Popen(
            ["sh", "-c", 'exec 3<&0 4>&1 </dev/null >/dev/null 2>&1; exec "$@"', "sh", binary(), "--headless=new",
             "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
             "--disable-extensions", "--disable-component-update", f"--user-data-dir={profile}", "--remote-debugging-pipe",
             "about:blank"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._watchdog = threading.Timer(120, self._process.kill)       # a browser that hangs fails the test
        self._watchdog.start()
        self._rest = b""
        self._number = 0
        self._session = None
        self.problems = []
        self.loaded = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._watchdog.cancel()
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def call(self, method, **params):
        self._number += 1
        said = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            said["sessionId"] = self._session
        os.write(self._to, json.dumps(said).encode() + b"\0")
        while True:
            heard = self._read()
            if heard.get("id") == self._number:
                assert "error" not in heard, heard
                return heard["result"]

    def _read(self):
        while b"\0" not in self._rest:
            more = os.read(self._from, 1 << 16)
            assert more, "the browser has ended"
            self._rest += more
        one, _, self._rest = self._rest.partition(b"\0")
        heard = json.loads(one)
        method, params = heard.get("method", ""), heard.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"])
        elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.problems.append(params["args"])
        elif method == "Page.loadEventFired":
            self.loaded += 1
        return heard

    def open(self, url):
        """Returns when the page is loaded."""
        before = self.loaded
        self.call("Page.navigate", url=url)
        while self.loaded == before:
            self._read()

    def value(self, expression):
        """What a script of the test says, as a value of Python; a promise is awaited."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def scheme(self, name):
        """light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])
