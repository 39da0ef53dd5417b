"""Make the README's picture of a report.

Usage:
    python tools/pages/report_picture.py RUN [OUT]    default: docs/pages/images/report.png

Opens RUN/report.html in a headless Chromium and keeps its top: the verdict, its reasons and the
clauses with their intervals. The colours are reduced until the file is below 200 kB. Needs
Chromium, and Pillow (which the extra `report` brings with matplotlib).
"""

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT, LIMIT = 1280, 1450, 200_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


def screenshot(page: Path, height: int) -> bytes:
    """The top of a page as PNG."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit("no browser: install Chromium")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        command = [browser, *FLAGS, f"--user-data-dir={folder}/profile"]
        command += [f"--window-size={WIDTH},{height}", f"--screenshot={shot}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        return shot.read_bytes()


def reduced(png: bytes, limit: int) -> bytes:
    """The same picture with as few colours as `limit` bytes need."""
    from PIL import Image

    whole = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in (256, 128, 64, 32):
        target = io.BytesIO()
        few = whole.quantize(colours, dither=Image.Dither.NONE)
        few.save(target, format="PNG", optimize=True)
        if len(target.getvalue()) < limit:
            return target.getvalue()
    raise SystemExit(f"the picture does not fit into {limit} bytes; lower --height")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the README's picture of a report.")
    parser.add_argument("run", type=Path, help="a run directory with a report")
    default = ROOT / "docs" / "pages" / "images" / "report.png"
    parser.add_argument("out", type=Path, nargs="?", default=default)
    parser.add_argument("--height", type=int, default=HEIGHT, help="pixels kept from the top")
    arguments = parser.parse_args()
    page = (arguments.run / "report.html").resolve()
    if not page.is_file():
        sys.exit(f"{page}: no such file; write it with `neorl-train report {arguments.run}`")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    picture = reduced(screenshot(page, arguments.height), LIMIT)
    arguments.out.write_bytes(picture)
    print(f"{arguments.out}: {len(picture)} bytes")


if __name__ == "__main__":
    main()
