"""Check the changelogs of all packages.

Usage:
    hatch run lint:changelog

Each CHANGELOG.md follows Keep a Changelog: a title, `## Unreleased` first, then one
`## X.Y.Z - YYYY-MM-DD` per release, newest on top and the newest equal to the package's version
(or none yet), under each only `### Added`, `### Changed`, `### Deprecated`, `### Removed`,
`### Fixed` or `### Security`, and under those nothing but list items.
"""

import argparse
import datetime
import re
import sys
import tomllib
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
RELEASE = re.compile(r"## (\d+\.\d+\.\d+) - (\d{4}-\d{2}-\d{2})")


def release_headings(text: str) -> list[tuple[Version, str]]:
    """Version and date of every release, in the order of the file."""
    return [(Version(v), date) for v, date in RELEASE.findall(text)]


def faults(text: str, *, name: str, version: Version) -> list[str]:
    """One line for each thing wrong with one package's changelog."""
    lines = text.splitlines()
    faulty = []
    if not lines or lines[0] != f"# Changelog of {name}":
        faulty.append(f"the first line must be '# Changelog of {name}'")
    headings = [line for line in lines if line.startswith("## ")]
    if headings[:1] != ["## Unreleased"]:
        faulty.append("the first section must be '## Unreleased'")
    for line in headings[1:]:
        if not RELEASE.fullmatch(line) or not _is_date(line[-10:]):
            faulty.append(f"'{line}' is not of the form '## X.Y.Z - YYYY-MM-DD'")
    for line in lines:
        if line.startswith("### ") and line[4:] not in KINDS:
            faulty.append(f"'{line}': use one of {', '.join(sorted(KINDS))}")
    versions = [version for version, _ in release_headings(text)]
    if versions != sorted(set(versions), reverse=True):
        faulty.append("the releases must be in descending order, each once")
    if versions and versions[0] != version:
        faulty.append(f"the newest release is {versions[0]}, the package is at {version}")
    return faulty


def _is_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the changelogs of all packages.")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    root = parser.parse_args(arguments).root
    code = 0
    for file in sorted(root.glob("packages/*/CHANGELOG.md")):
        project = tomllib.loads(file.with_name("pyproject.toml").read_text())["project"]
        version = Version(project["version"])
        for fault in faults(file.read_text(), name=project["name"], version=version):
            print(f"{file.relative_to(root)}: {fault}")
            code = 1
    if not code:
        print("changelog: all headings are in order")
    return code


if __name__ == "__main__":
    sys.exit(main())
