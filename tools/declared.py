"""Check with deptry that each package declares exactly what it imports.

Usage:
    python tools/declared.py            all packages
    python tools/declared.py core envs  these
"""

import argparse
import subprocess
import sys
from pathlib import Path

PACKAGES = Path(__file__).resolve().parent.parent / "packages"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Check that each package declares exactly what it imports."
    )
    parser.add_argument("package", nargs="*", help="core, envs, ...: default all")
    names = parser.parse_args(arguments).package
    folders = [PACKAGES / f"neorl-{name}" for name in names] or sorted(PACKAGES.glob("neorl-*"))
    command = [sys.executable, "-m", "deptry", "src", "--no-ansi"]
    codes = [subprocess.run(command, cwd=folder, check=False).returncode for folder in folders]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
