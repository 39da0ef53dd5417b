"""Measure the README's two commands as a newcomer meets them: fresh clone, fresh environment.

Usage:
    python tools/measure_setup.py                      all steps, about as long as the tests twice
    python tools/measure_setup.py --only demo          set-up and the demo, cold and warm
    python tools/measure_setup.py --page               write it into the page on installing, too

Clones the committed state of this checkout into a temporary folder and keeps every cache there, so
the first round is cold. Run it with nothing else on the machine: bytes received are those of all
its network interfaces. Disk is the whole temporary folder: clone, environments and caches.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEGABYTE = 1_000_000
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def steps(only: str | None) -> list[tuple[str, str]]:
    """What to run, in order: a label and a command for the shell of the fresh environment."""
    collect = "python -m hatch test packages/neorl-core/tests --collect-only -qqq"
    demo = [
        ("`hatch run demo`: what it installs first", "python -m hatch env create default"),
        ("`hatch run demo`: the job, first time", "python -m hatch run demo"),
        ("`hatch run demo`: the job again", "python -m hatch run demo"),
    ]
    tests = [
        ("`hatch test`: what it installs first", collect),
        ("`hatch test`: the tests, first time", "python -m hatch test"),
        ("`hatch test`: the tests again", "python -m hatch test"),
    ]
    chosen = {"demo": demo, "tests": tests}.get(only or "", [*demo, *tests])
    again = "python -m hatch env remove default && python -m hatch env create default"
    return [
        ("`pip install hatch`, nothing cached", "python -m pip install --quiet hatch"),
        *chosen,
        ("the demo's environment again, with the caches of pip and hatch", again),
    ]


def fresh_variables(scratch: Path) -> dict[str, str]:
    """The environment of a newcomer: a virtual environment first on PATH, all caches empty."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HATCH", "UV_", "JAX_"))}
    kept.pop("VIRTUAL_ENV", None)
    kept.pop("PYTHONPATH", None)
    folders = {
        "HATCH_DATA_DIR": "hatch",
        "HATCH_CACHE_DIR": "hatch-cache",
        "UV_CACHE_DIR": "uv-cache",
        "PIP_CACHE_DIR": "pip-cache",
        "XDG_CACHE_HOME": "cache",
    }
    kept |= {name: str(scratch / folder) for name, folder in folders.items()}
    return kept | {"PATH": f"{scratch / 'venv' / 'bin'}{os.pathsep}{kept['PATH']}"}


def received_bytes() -> int:
    """Bytes that all network interfaces but the loopback have received so far (Linux)."""
    rows = [line.split(":") for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    return sum(int(counts.split()[0]) for name, counts in rows if name.strip() != "lo")


def disk_bytes(folder: Path) -> int:
    """Size on disk, files that are hard links of each other counted once."""
    completed = subprocess.run(["du", "-s", "-B1", str(folder)], capture_output=True, text=True)
    return int(completed.stdout.split()[0])


def measure(name: str, command: str, clone: Path, variables: dict[str, str]) -> dict:
    """Runs one step in the clone; its output goes to this terminal."""
    print(f"\n=== {name}: {command}", flush=True)
    before, started = received_bytes(), time.monotonic()
    completed = subprocess.run(
        command, shell=True, cwd=clone, env=variables, stdin=subprocess.DEVNULL
    )
    return {
        "step": name,
        "exit": completed.returncode,
        "seconds": round(time.monotonic() - started, 1),
        "received_mb": round((received_bytes() - before) / MEGABYTE, 1),
        "disk_mb": round(disk_bytes(clone.parent) / MEGABYTE),
    }


def table(rows: list[dict]) -> str:
    """The rows in Markdown; a step that failed says so."""
    lines = [
        f"| On {os.cpu_count()} cores | Seconds | MB received | MB on disk in all |",
        "|---|---|---|---|",
    ]
    for row in rows:
        failed = f" (exit {row['exit']})" if row["exit"] else ""
        numbers = f"{row['seconds']:.0f} | {row['received_mb']:.0f} | {row['disk_mb']}"
        lines.append(f"| {row['step']}{failed} | {numbers} |")
    return "\n".join(lines)


def write_page(text: str) -> None:
    """Puts the table between the two marks of the page."""
    file = ROOT / "docs/pages/how-to/install.md"
    head, _, rest = file.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    file.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure the README's two commands.")
    parser.add_argument("--only", choices=("demo", "tests"), help="half of it")
    parser.add_argument("--python", default=sys.executable, help="the newcomer's interpreter")
    parser.add_argument("--page", action="store_true", help="write it into the page on installing")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="neorl-setup-") as folder:
        scratch = Path(folder)
        clone, variables = scratch / "neorl", fresh_variables(scratch)
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        subprocess.run([options.python, "-m", "venv", str(scratch / "venv")], check=True)
        rows = [measure(*step, clone, variables) for step in steps(options.only)]
    print(f"\n{table(rows)}")
    code = max(row["exit"] for row in rows)
    if options.page and code == 0:
        write_page(table(rows))
    return code


if __name__ == "__main__":
    sys.exit(main())
