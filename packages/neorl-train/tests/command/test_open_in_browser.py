"""``neorl-train open`` in a real browser: five messy exports, at most five decisions each.

A decision is an answer that the page does not already hold, and each button that is pressed.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from neorl_train._command.subcommands.open import served

pytestmark = pytest.mark.nightly

LAG, DELAY, GAIN, KP, TI, ROWS = 10.0, 4, 2.0, 0.05, 10.0, 4000
DECISIONS = 5
TIMEOUT = 1_800_000
"""Milliseconds that an answer may take on a machine that does other work."""


class Rows(NamedTuple):
    """Stamps, measurement, setpoint and output in percent of a sluggish loop."""

    stamps: np.ndarray
    measurement: np.ndarray
    setpoint: np.ndarray
    output: np.ndarray


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Two hours of a lag behind a dead time under a PI, with moves of the setpoint."""
    rng = np.random.default_rng(0)
    pole, a = np.exp(-1 / LAG), np.exp(-1 / 60)
    setpoint = np.full(ROWS, 50.0)
    for start in np.sort(rng.integers(0, ROWS, 25)):
        setpoint[start:] = 50 + rng.uniform(-5, 5)
    w, v = rng.standard_normal((2, ROWS))
    x, drift, u, before, late = 0.0, 0.0, 50.0, 0.0, np.zeros(DELAY + 1)
    measurement, output = np.zeros(ROWS), np.zeros(ROWS)
    for t in range(ROWS):
        y = 50 + x + 0.02 * v[t]
        e = setpoint[t] - y
        u = u + KP * (e - before) + KP / TI * e
        before = e
        drift = a * drift + np.sqrt(1 - a**2) * 0.1 * w[t]
        late = np.append(late[1:], u - 50 + drift)
        x = pole * x + (1 - pole) * GAIN * late[0]
        measurement[t], output[t] = y, u
    stamps = np.datetime64("2026-03-02T06:00:00") + 2 * np.arange(ROWS).astype("m8[s]")
    return Rows(stamps, measurement, setpoint, output)


def lines(rows: Rows, *, output: float = 1.0, setpoint: float = 1.0) -> list[list[str]]:
    """The cells of every row; output and setpoint multiplied."""
    return [
        [str(stamp), f"{y:.4f}", f"{w * setpoint:.5f}", f"{u * output:.6f}"]
        for stamp, y, w, u in zip(*rows, strict=True)
    ]


HEAD = ["time", "TIC-1.PV [°C]", "TIC-1.SP [°C]", "TIC-1.OP"]


def written(path: Path, head: list[str], cells: list[list[str]], separator: str = ",") -> Path:
    path.write_text("\n".join(separator.join(row) for row in [head, *cells]) + "\n")
    return path


def semicolons(rows: Rows, path: Path) -> Path:
    """Days first, decimal commas, semicolons."""
    cells = [
        [
            stamp.astype(object).strftime("%d.%m.%Y %H:%M:%S"),
            *(x.replace(".", ",") for x in row[1:]),
        ]
        for stamp, row in zip(rows.stamps, lines(rows), strict=True)
    ]
    return written(path, HEAD, cells, ";")


def gaps(rows: Rows, path: Path) -> Path:
    """Rows that are absent, and cells that say so in three ways."""
    cells = lines(rows)
    for place, word in ((100, "NULL"), (101, ""), (1500, "Bad"), (1501, "Bad")):
        cells[place][1] = word
    return written(path, HEAD, cells[:2000] + cells[2100:])


def percent_and_fraction(rows: Rows, path: Path) -> Path:
    """The output is a fraction, and the setpoint is a hundredth of the measurement."""
    return written(path, [w.partition(" [")[0] for w in HEAD],
                   lines(rows, output=0.01, setpoint=0.01))  # fmt: skip


def bad_stamps(rows: Rows, path: Path) -> Path:
    """Some stamps are words or empty, and two rows have changed places."""
    cells = lines(rows)
    cells[300][0], cells[301][0], cells[3000][0] = "#N/A", "", "31.02.2026"
    cells[700], cells[701] = cells[701], cells[700]
    return written(path, HEAD, cells)


def twins(rows: Rows, path: Path) -> Path:
    """Two columns have one name, and the values of another loop in the first one."""
    cells = [[row[0], f"{float(row[1]) + 7 * (i % 2):.3f}", *row[1:]]
             for i, row in enumerate(lines(rows))]  # fmt: skip
    return written(path, [HEAD[0], HEAD[1], *HEAD[1:]], cells)


EXPORTS: dict[str, tuple[Callable[[Rows, Path], Path], dict[str, str]]] = {
    "semicolons": (semicolons, {}),
    "gaps": (gaps, {}),
    "percent_and_fraction": (
        percent_and_fraction, {"0.factor": "100", "0.op_range": "0 1"}
    ),
    "bad_stamps": (bad_stamps, {}),
    "twins": (twins, {"0.pv": "TIC-1.PV [°C]_duplicated_0"}),
}  # fmt: skip
"""How each is written, and what must be answered beside the two buttons."""


@pytest.fixture(scope="module")
def page(browser: str) -> Iterator[Any]:
    """A page of a browser that reaches this machine alone."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="no Playwright (hatch run site:test)"
    )
    with playwright.sync_playwright() as driver:
        flags = [
            "--no-sandbox",
            "--disable-gpu",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]
        running = driver.chromium.launch(executable_path=browser, args=flags)
        one = running.new_context(viewport={"width": 1400, "height": 1000}).new_page()
        one.set_default_timeout(TIMEOUT)
        yield one
        running.close()


@pytest.mark.parametrize("name", EXPORTS)
def test_a_messy_export_leads_to_a_change_sheet(
    name: str, rows: Rows, page: Any, tmp_path: Path
) -> None:
    write, answers = EXPORTS[name]
    path = write(rows, tmp_path / f"{name}.csv")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with served(tmp_path / "out") as address:
        page.goto(address)
        page.screenshot(path=tmp_path / "drop.png", full_page=True)
        page.set_input_files("input[type=file]", path)
        page.click("button")
        page.screenshot(path=tmp_path / "confirm.png", full_page=True)
        decisions = 2
        # What must be answered is marked, and nothing else needs a change.
        marked = page.eval_on_selector_all(".asked select", "all => all.map(one => one.name)")
        assert sorted(marked) == sorted(answers)
        if answers:
            page.click("button")
            assert page.inner_text("[role=alert]")
        for field, value in answers.items():
            page.select_option(f"select[name='{field}']", value)
            decisions += 1
        page.click("button")
        page.wait_for_selector("text=After the change")
        text = page.inner_text("main")
        page.screenshot(path=tmp_path / "answers.png", full_page=True)
        assert "RETUNE" in text, text
        assert decisions + 1 <= DECISIONS
        page.click("text=Change sheet")
        sheet = next((tmp_path / "out").glob("change-*.html"))
        assert "May be tried" in sheet.read_text()
        again = page.context.new_page()
        again.goto(sheet.as_uri())
        again.screenshot(path=tmp_path / "sheet.png", full_page=True)
        again.close()
        assert_units(text, name)
        page.set_input_files("input[type=file]", path)
        page.click("button")
        assert "NO DIFFERENCE SHOWN" in page.inner_text("main")
    assert {url for url in asked if not url.startswith(address)} == set()


def test_a_typed_faceplate_leads_to_a_sheet_in_its_form(
    rows: Rows, page: Any, tmp_path: Path
) -> None:
    """Range 0 to 150 °C: a gain of 0.05 % per °C is a proportional band of 4000/3 %."""
    typed = {"low": "0", "high": "150", "proportional": "1333.333333", "integral": "3"}
    chosen = {"kind": "band", "integral_unit": "per_minute", "direction": "reverse"}
    with served(tmp_path / "out") as address:
        page.goto(address)
        page.set_input_files("input[type=file]", semicolons(rows, tmp_path / "log.csv"))
        page.click("button")
        page.click("summary")
        for field, value in typed.items():
            page.fill(f"input[name='0.{field}']", value)
        for field, value in chosen.items():
            page.select_option(f"select[name='0.{field}']", value)
        page.click("button[name=show]")
        page.screenshot(path=tmp_path / "faceplate.png", full_page=True)
        assert page.inner_text(".made") == (
            "Proportional band 1333.333333 %, reset 3 repeats/min; this is gain 0.05 % per °C, "
            "integral time 20 s, reverse acting. The rows of the log agree."
        )
        page.set_viewport_size({"width": 390, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.set_viewport_size({"width": 1400, "height": 1000})
        page.click("button")
        page.wait_for_selector("text=After the change")
        assert "Today's faceplate: proportional band 1333.333333 %" in page.inner_text("main")
        page.screenshot(path=tmp_path / "answers.png", full_page=True)
        (sheet,) = (tmp_path / "out").glob("change-*.html")
        told = re.sub(r"<[^>]+>", " ", sheet.read_text())
        assert "To go back, type proportional band 1333.333333 %, reset 3 repeats/min" in told
        band = float(re.findall(r"proportional band 1333\.333333 to ([\d.]+) %", told)[0])
        gain = float(re.findall(r"gain +% per °C +0\.05 .*?([\d.]+) +integral time", told)[0])
        assert gain == pytest.approx(100 * 100 / 150 / band, rel=1e-3)


def assert_units(text: str, name: str) -> None:
    """The gain of the process is the true one in the units that were confirmed."""
    (line,) = [line for line in text.splitlines() if line.startswith("gain, ")]
    found = float(line.partition(": ")[2].split(" ")[0])
    true = GAIN * (100 if name == "percent_and_fraction" else 1)
    assert 0.7 * true < found < 1.4 * true, line
