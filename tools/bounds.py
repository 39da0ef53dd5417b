"""Check that the packages' declared bounds fit each other.

Usage:
    hatch run lint:bounds    print who needs whom; exit 1 and name what does not fit

A package names a sibling by its compatible minor, `neorl-core>=0.1,<0.2` while the sibling is at
0.1.x; it may need only siblings below it; and a third-party distribution has the same bounds
wherever it is named.
"""

import argparse
import sys
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
BELOW = {
    "neorl-core": set(),
    "neorl-envs": {"neorl-core"},
    "neorl-safety": {"neorl-core"},
    "neorl-agents": {"neorl-core"},
    "neorl-train": {"neorl-core", "neorl-envs", "neorl-safety", "neorl-agents"},
    "neorl-deploy": {"neorl-core", "neorl-safety", "neorl-agents"},
}


@dataclass(frozen=True)
class Package:
    """One package's name, version and requirements, `(extra or "", requirement)`."""

    name: str
    version: Version
    requirements: tuple[tuple[str, Requirement], ...]


def packages(root: Path) -> dict[str, Package]:
    """Every package of the workspace by name."""
    by_name = {}
    for file in sorted(root.glob("packages/*/pyproject.toml")):
        project = tomllib.loads(file.read_text())["project"]
        groups = {"": project["dependencies"], **project.get("optional-dependencies", {})}
        lines = tuple((extra, Requirement(line)) for extra, rows in groups.items() for line in rows)
        name = project["name"]
        by_name[name] = Package(name, Version(project["version"]), lines)
    return by_name


def compatible(version: Version) -> str:
    """The bounds that a sibling's version asks for: its minor while it is 0.x, else its major."""
    major, minor = version.major, version.minor
    return f"<0.{minor + 1},>=0.{minor}" if major == 0 else f"<{major + 1},>={major}.{minor}"


def sibling_faults(siblings: dict[str, Package]) -> list[str]:
    """Requirements on siblings that point upward or do not take in the sibling's version."""
    faults = []
    for package in siblings.values():
        for extra, requirement in package.requirements:
            sibling = siblings.get(requirement.name)
            if sibling is None or sibling is package:
                continue
            where = f"{package.name}[{extra}]" if extra else package.name
            if sibling.name not in BELOW[package.name]:
                faults.append(f"{where} may not need {sibling.name}")
            if str(requirement.specifier) != (wanted := compatible(sibling.version)):
                faults.append(
                    f"{where} bounds {sibling.name} by '{requirement.specifier}': "
                    f"it is at {sibling.version}, write '{wanted}'"
                )
    return faults


def shared_faults(by_name: dict[str, Package]) -> list[str]:
    """Third-party distributions that are named with different bounds."""
    bounds: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for package in by_name.values():
        for _, requirement in package.requirements:
            if requirement.name not in by_name:
                bounds[requirement.name][str(requirement.specifier)].add(package.name)
    return [
        f"{name}: " + "; ".join(f"'{s}' in {', '.join(sorted(who))}" for s, who in spread.items())
        for name, spread in sorted(bounds.items())
        if len(spread) > 1
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the bounds between the packages.")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    by_name = packages(parser.parse_args(arguments).root)
    for package in by_name.values():
        siblings = {r.name for _, r in package.requirements if r.name in by_name} - {package.name}
        print(f"{package.name} {package.version} <- {', '.join(sorted(siblings)) or 'nothing'}")
    faults = [*sibling_faults(by_name), *shared_faults(by_name)]
    print("\n".join(faults) if faults else "bounds: all fit")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
