"""A headless Chromium for tests, spoken to over its debugging pipe: no driver, no network, no port."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE = 60.0


def need_chromium():
    """Return the path of a Chromium, or skip the test."""
    found = next((path for path in map(shutil.which, _NAMES) if path), None)
    if found is None:
        pytest.skip("no Chromium on this machine; install the Debian package chromium")
    return found


class Chromium:
    """A browser that ends with its ``with`` block."""

    def __init__(self, folder):
        self._folder = Path(folder)

    def __enter__(self):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        options += ["--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars"]
        # The browser speaks on descriptors 3 and 4, whatever the pipes are called here.
        redirect = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        command = ["bash", "-c", redirect, "-", need_chromium(), *options, f"--user-data-dir={self._folder}"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([*command, "about:blank"], pass_fds=(to_read, to_write), **quiet)
        os.close(to_read)
        os.close(to_write)
        self._waiting, self._events, self._number = b"", [], 0
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(timeout=_PATIENCE)
        os.close(self._write)
        os.close(self._read)

    def page(self, url, *, width, height, scheme="light", scripts=True):
        """Open a page of its own at a size and colour scheme."""
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.send(f"{domain}.enable")
        page.send(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        page.send("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        page.send("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        page.send("Page.navigate", {"url": url})
        page.wait_for_event("Page.loadEventFired")
        return page

    def send(self, method, parameters=None, session=None):
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        number = self._number
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._events.append(answer)

    def events(self, session, method):
        """Return the parameters of all events of a kind in a page so far."""
        named = [event for event in self._events if event.get("method") == method]
        return [event["params"] for event in named if event.get("sessionId") == session]

    def listen(self):
        """Take in one more message."""
        self._events.append(self._next())

    def _next(self):
        until = time.monotonic() + _PATIENCE
        while b"\0" not in self._waiting:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            chunk = os.read(self._read, 1 << 20)
            assert chunk, "the browser has ended"
            self._waiting += chunk
        message, self._waiting = self._waiting.split(b"\0", 1)
        return json.loads(message)


class Page:
    """One open page."""

    def __init__(self, browser, session, target):
        self._browser, self._session, self._target = browser, session, target

    def send(self, method, parameters=None):
        return self._browser.send(method, parameters, self._session)

    def wait_for_event(self, method):
        while not self._browser.events(self._session, method):
            self._browser.listen()

    def events(self, method):
        return self._browser.events(self._session, method)

    def evaluate(self, expression):
        """Return the value of an expression in the page, after awaiting it."""
        answer = self.send(
            "Runtime.evaluate",
            {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True},
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_until(self, expression):
        until = time.monotonic() + _PATIENCE
        while not self.evaluate(expression):
            assert time.monotonic() < until, f"never true: {expression}"
            time.sleep(0.05)

    def click(self, selector):
        """Click with the mouse in the middle of an element."""
        corner = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        where = {"x": corner[0], "y": corner[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", {"type": kind, **where})

    def press(self, key, code, text=None):
        """Press and release a key."""
        named = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        down = {"type": "keyDown", **named, "text": text} if text else {"type": "rawKeyDown", **named}
        self.send("Input.dispatchKeyEvent", down)
        self.send("Input.dispatchKeyEvent", {"type": "keyUp", **named})

    def screenshot(self, file):
        """Keep a picture of the whole page."""
        picture = self.send("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True})
        Path(file).write_bytes(base64.b64decode(picture["data"]))

    def close(self):
        self._browser.send("Target.closeTarget", {"targetId": self._target})
