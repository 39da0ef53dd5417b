"""Prepare the release of one package: version, changelog, and the bounds of who needs it.

Usage:
    python tools/release.py neorl-core 0.2.0
    python tools/release.py --check-tag neorl-core-v0.2.0

The first edits files and prints what to do next; it neither commits nor tags nor uploads. The
second is the release workflow's: it refuses a tag that is not a package at its released version,
and a package whose nightly tests failed or were last run on other sources
(tests/gates/nightly.csv).
"""

import argparse
import datetime
import re
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

import nightly
from bounds import Package, compatible, packages
from changelog import release_headings

ROOT = Path(__file__).resolve().parent.parent
EMPTY = "## Unreleased\n\n### Added\n\n"


def cut_changelog(text: str, version: Version, date: str) -> str:
    """The changelog with everything unreleased put under the new version.

    Raises:
        ValueError: If nothing is unreleased, or the version is not newer than the last one.
    """
    head, mark, rest = text.partition("## Unreleased\n")
    unreleased, heading, older = rest.partition("\n## ")
    if not mark or "\n- " not in unreleased:
        raise ValueError("the changelog has no line under '## Unreleased': say what changed first")
    last = release_headings(text)[:1]
    if last and last[0][0] >= version:
        raise ValueError(f"{version} is not newer than the last release {last[0][0]}")
    sections = re.sub(r"### \w+\n+(?=### |\Z)", "", unreleased.strip() + "\n").strip()
    return f"{head}{EMPTY}## {version} - {date}\n\n{sections}\n{heading}{older}"


def set_version(text: str, version: Version) -> str:
    """A pyproject.toml with another static version."""
    return re.sub(r'(?m)^version = "[^"]+"$', f'version = "{version}"', text, count=1)


def set_bounds(text: str, name: str, version: Version) -> str:
    """A pyproject.toml whose requirements on a sibling take in that sibling's new version."""
    upper, lower = compatible(version).split(",")
    return re.sub(rf'"({name}(?:\[[^\]]+\])?)[<>=][^"]*"', rf'"\1{lower},{upper}"', text)


def release(root: Path, package: Package, version: Version, date: str) -> list[Path]:
    """Edits the files of one release and returns them.

    Raises:
        ValueError: If the changelog or the version does not allow a release.
    """
    folder = root / "packages" / package.name
    if version < package.version:
        raise ValueError(f"{package.name} is at {package.version} already, {version} is older")
    changelog = folder / "CHANGELOG.md"
    edits = {changelog: cut_changelog(changelog.read_text(), version, date)}
    for file in sorted(root.glob("packages/*/pyproject.toml")):
        text = file.read_text()
        own = file.parent == folder
        edits[file] = set_version(text, version) if own else set_bounds(text, package.name, version)
    changed = [file for file, text in edits.items() if text != file.read_text()]
    for file in changed:
        file.write_text(edits[file])
    return changed


def tag_fault(root: Path, tag: str) -> str:
    """Why a tag cannot be released, or nothing."""
    name, _, version = tag.rpartition("-v")
    package = packages(root).get(name)
    if package is None:
        return f"{tag}: a tag is a package's name, -v and its version"
    if version != str(package.version):
        return f"{tag}: {name} is at {package.version}"
    cut = release_headings((root / "packages" / name / "CHANGELOG.md").read_text())
    return "" if cut and cut[0][0] == package.version else f"{tag}: the changelog has no {version}"


def night_fault(tag: str) -> str:
    """Why the nightly tests of a tagged package do not allow its release, or nothing."""
    faults = nightly.faults(tag.rpartition("-v")[0])
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{faults[0]}{more}" if faults else ""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Prepare the release of one package.")
    parser.add_argument("package", nargs="?", help="neorl-core, neorl-envs, ...")
    parser.add_argument("version", nargs="?", help="X.Y.Z")
    parser.add_argument("--check-tag", metavar="TAG", help="refuse a tag that does not fit")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    options = parser.parse_args(arguments)
    by_name = packages(options.root)
    if options.check_tag:
        fault = tag_fault(options.root, options.check_tag) or night_fault(options.check_tag)
        print(f"release: {fault or 'the tag fits'}")
        return 2 if fault else 0
    if options.package not in by_name or options.version is None:
        parser.error(f"name one of {', '.join(by_name)} and its new version")
    today = datetime.date.today().isoformat()
    try:
        version = Version(options.version)
        changed = release(options.root, by_name[options.package], version, today)
    except (InvalidVersion, ValueError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    print("\n".join(f"edited {file.relative_to(options.root)}" for file in changed))
    tag = f"{options.package}-v{version}"
    print(f"next: review, commit, then `git tag {tag}` and `git push origin {tag}`;")
    print("the release workflow checks the tag against the version and builds that one package")
    return 0


if __name__ == "__main__":
    sys.exit(main())
