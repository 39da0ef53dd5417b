"""Count the skipped tests of a JUnit file by the reason they give.

Usage:
    python tools/skipped.py tests.xml

Two reasons are counted by name even when they are zero, since a run counts for less where they are
not: the shared data folder (../shared/data or NEORL_SHARED_DATA) and a browser.
"""

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

NAMED = {
    "the shared data folder": ("NEORL_SHARED_DATA", "shared data"),
    "a browser": ("browser", "Chromium", "chromium"),
}


def reasons(file: Path) -> list[str]:
    """The reason of every skipped test."""
    skipped = ElementTree.parse(file).getroot().iter("skipped")
    return [element.get("message") or "no reason given" for element in skipped]


def report(skips: list[str]) -> str:
    """One line per reason."""
    lines, rest = [], list(skips)
    for name, words in NAMED.items():
        mine = [reason for reason in rest if any(word in reason for word in words)]
        rest = [reason for reason in rest if reason not in mine]
        lines.append(f"{len(mine)} skipped for want of {name}")
    lines += [f"{count} skipped: {reason}" for reason, count in Counter(rest).most_common()]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Count the skipped tests of a JUnit file.")
    parser.add_argument("file", type=Path, help="written by pytest --junitxml")
    file = parser.parse_args(arguments).file
    if not file.is_file():
        print(f"{file}: no such file; did the tests run?", file=sys.stderr)
        return 2
    print(report(reasons(file)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
