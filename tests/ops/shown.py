"""The status page in a real browser: styled by its policy's hash, without scripts, readable light and dark and on a telephone,
asking nobody but its own service, and showing of itself what has changed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from lancewal_core.process.clock import SystemClock
from lancewal_core.process.health import Health, HealthServer
from lancewal_core.process.status.board import StatusBoard
from lancewal_core.process.status.report import TableStatus
from tests.ops.browser import Browser
from tests.ops.stage import Stage
from tests.support.shown_status import HOSTILE, shown_status

_CONTRAST_MIN = 4.5
"""Of text (WCAG 2, AA)."""
_TELEPHONE = 390
_PARTITIONS = "document.querySelectorAll('tbody tr[class]').length"
_TEXT = "document.body.innerText"
#: The least contrast of any text with what is behind it.
_CONTRAST = """(() => {
  const light = c => {
    const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (c !== 'rgba(0, 0, 0, 0)') return c;
    }
    return 'rgb(255, 255, 255)';
  };
  let least = 21;
  for (const e of document.body.querySelectorAll('*')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    least = Math.min(least, (a + 0.05) / (b + 0.05));
  }
  return least;
})()"""


def look_at_pages(stage: Stage) -> tuple[str, list[str]]:
    """The browser, and what is wrong with the page; empty if nothing is."""
    with Browser(Path(tempfile.mkdtemp(dir=stage.folder, prefix="browser-"))) as browser:
        return browser.version, [*_of_any_page(browser), *_of_services(browser, stage)]


def _of_any_page(browser: Browser) -> Iterator[str]:
    """A page of every kind of partition, and one on which every name is hostile."""
    board = StatusBoard("ingest", SystemClock())
    with HealthServer("127.0.0.1", 0, CollectorRegistry(), Health(SystemClock(), list), board.answer) as server:
        address = f"http://127.0.0.1:{server.port}/status"
        board.show(shown_status(64))
        browser.open(address)
        yield from _clean(browser, address, "64 partitions")
        yield from _looks(browser)
        if (found := browser.value(_PARTITIONS)) != 64:
            yield f"{found} partitions of 64 are shown"
        if browser.value("document.querySelector('tbody tr').className") != "problem":
            yield "the first partition is none with a problem"
        board.show(shown_status(3, HOSTILE))
        browser.open(address)
        yield from _clean(browser, address, "hostile names")
        if "<script>alert(1)</script>" not in browser.value(_TEXT):
            yield "a hostile name is not shown as it is"
        changed: TableStatus = replace(shown_status(3), topic="another-topic")
        board.show(changed)
        browser.wait_for("Page.loadEventFired", 2)  # it asks again by itself
        if "another-topic" not in browser.value(_TEXT):
            yield "the page that came by itself is not the newest"


def _of_services(browser: Browser, stage: Stage) -> Iterator[str]:
    """Real services, and an operator's pause that the page must show without being asked for again."""
    for name in stage.services:
        address = f"http://127.0.0.1:{stage.ports[name]}/status"
        browser.open(address)
        yield from _clean(browser, address, name)
        if not 0 < browser.value(_PARTITIONS) <= 4:
            yield f"{name} shows {browser.value(_PARTITIONS)} partitions"
    stage.run("pause", "flusher")
    try:
        for reloads in range(2, 14):
            if "flusher until resumed" in browser.value(_TEXT):
                return
            browser.wait_for("Page.loadEventFired", reloads)
        yield "the flusher's page does not show that it is paused"
    finally:
        stage.run("resume", "flusher")


def _clean(browser: Browser, address: str, what: str) -> Iterator[str]:
    """It loads nothing from anywhere else, runs nothing, and its style is in force."""
    yield from (f"{what}: {complaint}" for complaint in browser.complaints)
    others = {url for url in browser.requested if urlsplit(url).netloc != urlsplit(address).netloc}
    if others:
        yield f"{what}: the page asks for {sorted(others)}"
    if browser.value("document.scripts.length"):
        yield f"{what}: there is a script"
    if browser.value("getComputedStyle(document.querySelector('.card')).borderRadius") != "8px":
        yield f"{what}: the style is not in force"


def _looks(browser: Browser) -> Iterator[str]:
    backs = {}
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        backs[scheme] = browser.value("getComputedStyle(document.body).backgroundColor")
        if (contrast := browser.value(_CONTRAST)) < _CONTRAST_MIN:
            yield f"{scheme}: a text has a contrast of {contrast:.1f}"
    if backs["light"] == backs["dark"]:
        yield "light and dark look alike"
    browser.width(_TELEPHONE)
    if (wide := browser.value("document.documentElement.scrollWidth")) > _TELEPHONE:
        yield f"on a telephone the page is {wide} pixels wide"
    browser.width(1280)
