"""Prepare the release of one package: version, changelog, and the bounds of who needs it.

Usage:
    python tools/release.py neorl-core 0.2.0

Edits files and prints what to do next; it neither commits nor tags nor uploads.
"""

import argparse
import datetime
import re
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Prepare the release of one package.")
    parser.add_argument("package", help="neorl-core, neorl-envs, ...")
    parser.add_argument("version", help="X.Y.Z")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    options = parser.parse_args(arguments)
    found = packages(options.root)
    if options.package not in found:
        parser.error(f"no package {options.package!r}: one of {', '.join(found)}")
    today = datetime.date.today().isoformat()
    try:
        version = Version(options.version)
        changed = release(options.root, found[options.package], version, today)
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
