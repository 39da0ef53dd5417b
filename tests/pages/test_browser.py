"""Every page of the built site in a browser, at the widths of a screen and of a phone.

The site is built anew, which takes a minute, so these tests run by night, in the environment
``site``. Pictures of some pages are left in pytest's temporary folder.
"""

import functools
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import documentation

pytestmark = pytest.mark.nightly

NO_DRIVER = "no Playwright (hatch run site:test)"
SCREEN, PHONE = 1400, 390
HEIGHT = 1000
REPOSITORY = "https://example.org/neorl/neorl"
TIMEOUT = 300_000
"""Milliseconds that a page may take on a machine that does other work."""
PICTURED = {
    "home": "",
    "benchmark": "explanation/benchmark/",
    "learners": "learners/",
    "learner": "learners/iql/",
    "plants": "plants/",
    "plant": "plants/chemical_reactor/",
}
FAULTS = """() => {
    const found = [], width = document.documentElement.clientWidth;
    const words = e => `${e.tagName} ${(e.innerText || e.textContent || "").slice(0, 50)}`;
    const scrolls = e => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
    const scroller = e => { do e = e.parentElement; while (e && !scrolls(e)); return e; };
    const page = document.documentElement.scrollWidth;
    if (page > width) found.push(`the page is ${page} pixels wide`);
    const goesOn = e => scrolls(e) && e.scrollWidth > e.clientWidth + 1;
    const isSigned = style => style.backgroundImage !== "none" || style.maskImage !== "none";
    for (const table of document.querySelectorAll(".md-content table")) {
        const box = scroller(table);
        if (width > 1000 && box && goesOn(box)) found.push(`a table is cut: ${words(table)}`);
    }
    for (const e of document.querySelectorAll(".md-content *")) {
        const place = e.getBoundingClientRect(), style = getComputedStyle(e);
        if (goesOn(e) && !isSigned(style)) found.push(`scrolls without a sign: ${words(e)}`);
        if (place.width > 1 && place.right > width + 1 && !scroller(e))
            found.push(`beyond the page: ${words(e)}`);
        if (place.width > 1 && ["hidden", "clip"].includes(style.overflowX) && !e.closest("svg")
            && e.scrollWidth > e.clientWidth + 1)
            found.push(`cut by its frame: ${words(e)}`);
    }
    for (const text of document.querySelectorAll(".figure svg text")) {
        const frame = text.closest("svg").getBoundingClientRect();
        const place = text.getBoundingClientRect();
        if (place.left < frame.left - 1 || place.right > frame.right + 1
            || place.top < frame.top - 1 || place.bottom > frame.bottom + 1)
            found.push(`cut by its figure: ${words(text)}`);
    }
    return found;
}"""
"""What a reader would not see, a line each."""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="session")
def chromium(browser: str) -> Iterator[Any]:
    """A running browser, which reaches this machine alone."""
    playwright = pytest.importorskip("playwright.sync_api", reason=NO_DRIVER)
    with playwright.sync_playwright() as driver:
        flags = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        running = driver.chromium.launch(executable_path=browser, args=flags)
        yield running
        running.close()


@pytest.fixture(scope="session")
def site(chromium: Any) -> Iterator[tuple[str, list[str]]]:
    """The address of the built site, and its pages."""
    script = Path(documentation.__file__)
    done = subprocess.run(
        [sys.executable, script, "build", "--repository", REPOSITORY],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    folder = documentation.BUILT / "site"
    pages = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("index.html"))]
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        yield address, [page.removesuffix("index.html") for page in pages]
        server.shutdown()


@pytest.mark.parametrize("width", [SCREEN, PHONE])
def test_nothing_is_cut_on_any_page(width: int, chromium: Any, site: tuple[str, list[str]]) -> None:
    address, pages = site
    assert {*PICTURED.values()} <= {*pages}
    context = chromium.new_context(viewport={"width": width, "height": HEIGHT})
    context.set_default_timeout(TIMEOUT)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    faults = {}
    for name in pages:
        page.goto(f"{address}{name}")
        if found := page.evaluate(FAULTS):
            faults[name] = found
    context.close()
    assert not faults, "\n".join(f"{name}: {line}" for name in faults for line in faults[name])
    elsewhere = {url for url in asked if not url.startswith((address, "data:"))}
    assert not elsewhere, "a page loads something from outside"


def test_a_fault_of_every_kind_is_found(chromium: Any) -> None:
    context = chromium.new_context(viewport={"width": PHONE, "height": HEIGHT})
    page = context.new_page()
    wide = '<div style="width: 500px">wide</div>'
    table = f"<table><tr><td>{wide}</td></tr></table>"
    figure = '<svg width="90" height="20"><text x="80" y="15">too long</text></svg>'
    for body, fault in (
        (wide, "the page is"),
        (f'<div style="overflow-x: auto">{table}</div>', "scrolls without a sign"),
        (f'<div style="overflow: hidden">{wide}</div>', "cut by its frame"),
        (f'<div class="figure">{figure}</div>', "cut by its figure"),
        ("<p>short</p>", ""),
    ):
        page.set_content(f'<!doctype html><div class="md-content">{body}</div>')
        found = page.evaluate(FAULTS)
        assert any(fault in line for line in found) if fault else not found, found
    page.set_viewport_size({"width": SCREEN, "height": HEIGHT})
    frame = "overflow-x: auto; width: 300px; background: linear-gradient(red, blue)"
    framed = f'<div style="{frame}">{table}</div>'
    page.set_content(f'<!doctype html><div class="md-content">{framed}</div>')
    assert [fault.partition(":")[0] for fault in page.evaluate(FAULTS)] == ["a table is cut"]
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_pictured_in_light_and_dark(
    scheme: str, chromium: Any, site: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, _ = site
    for width in (SCREEN, PHONE):
        size = {"width": width, "height": HEIGHT}
        context = chromium.new_context(viewport=size, color_scheme=scheme)
        context.set_default_timeout(TIMEOUT)
        page = context.new_page()
        for name, place in PICTURED.items():
            page.goto(f"{address}{place}")
            picture = tmp_path / f"{name}_{width}.png"
            page.screenshot(path=picture, full_page=True)
            assert picture.stat().st_size > 10_000
            colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
            channels = [int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
            assert (max(channels) < 60) == (scheme == "dark"), colour
        context.close()
