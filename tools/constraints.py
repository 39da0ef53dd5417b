"""Write tools/constraints.txt: one tested version of everything an environment may install.

Usage:
    hatch run constraints:update    resolve anew and rewrite the file
    hatch run constraints:moved     print what a fresh resolve would change (exit 1 if anything)

The file answers for every Python from 3.11 on: where a package has left an older Python behind, two
lines with markers stand for it. It names no index.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tools" / "constraints.txt"
OWN_PINS = {
    "benchmark-core",
    "benchmark-latency",
    "benchmark-learners",
    "benchmark-plants",
    "flower",
}
"""Environments that pin their own versions, for peers that nothing else here needs."""
HEADER = "# Written by `hatch run constraints:update` for all environments.\n"


def environment_requirements() -> list[str]:
    """The `dependencies` of the hatch environments, members and `OWN_PINS` aside."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    environments = settings["tool"]["hatch"]["envs"]
    chosen = [env for name, env in environments.items() if name not in OWN_PINS]
    return sorted({line for env in chosen for line in env.get("dependencies", [])})


def member_requirements() -> list[str]:
    """Every package with all its extras, and what builds it."""
    lines = set()
    for file in sorted(ROOT.glob("packages/*/pyproject.toml")):
        settings = tomllib.loads(file.read_text())
        extras = ",".join(settings["project"].get("optional-dependencies", {}))
        lines.add(f"-e {file.parent}[{extras}]")
        lines.update(settings["build-system"]["requires"])
    return sorted(lines)


def resolved(*, keep: bool) -> str:
    """One resolution for Python 3.11 and later; `keep` starts from the committed versions."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, out = Path(folder) / "in.txt", Path(folder) / "out.txt"
        wanted.write_text("\n".join([*member_requirements(), *environment_requirements()]) + "\n")
        if keep and FILE.exists():
            out.write_text(FILE.read_text())
        command = ["uv", "pip", "compile", str(wanted), "--output-file", str(out)]
        command += ["--universal", "--python-version", "3.11", "--no-header", "--no-annotate"]
        command += ["--no-emit-index-url", "--no-emit-find-links", "--quiet"]
        clean = {k: v for k, v in os.environ.items() if not k.endswith("_CONSTRAINT")}
        subprocess.run(command, check=True, cwd=ROOT, env=clean)
        lines = [line for line in out.read_text().splitlines() if "==" in line]
    return HEADER + "\n".join(sorted(lines, key=str.lower)) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Resolve tools/constraints.txt anew.")
    parser.add_argument("--moved", action="store_true", help="print the difference; write nothing")
    parser.add_argument("--keep", action="store_true", help="move only what has to move")
    options = parser.parse_args(arguments)
    text = resolved(keep=options.keep)
    if not options.moved:
        FILE.write_text(text)
        print(f"{FILE.relative_to(ROOT)}: {text.count('==')} lines")
        return 0
    old, new = set(FILE.read_text().splitlines()), set(text.splitlines())
    for line in sorted(old ^ new, key=str.lower):
        print("-" if line in old else "+", line)
    return int(old != new)


if __name__ == "__main__":
    sys.exit(main())
