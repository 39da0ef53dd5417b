"""Check what changed: its style, its types, and the tests of the namespaces that it is in.

Usage:
    python tools/check_changed.py              what differs from the branch main, and new files
    python tools/check_changed.py --base HEAD~3
    python tools/check_changed.py --dry-run    print the commands alone

It needs hatch in the Python that runs it, and nothing else. Tests of other namespaces may depend on
the change too: `hatch run tests:all` runs everything but the nightly tests.
"""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", default="main", help="commit to compare with (main)")
    parser.add_argument("--dry-run", action="store_true", help="print the commands alone")
    options = parser.parse_args(arguments)
    changed = [path for path in changed_files(options.base) if (ROOT / path).is_file()]
    if not changed:
        print(f"nothing differs from {options.base}")
        return 0
    for words in commands(changed):
        print(f"$ python {shlex.join(words)}", flush=True)
        if not options.dry_run:
            code = subprocess.run([sys.executable, *words], cwd=ROOT, check=False).returncode
            if code:
                return code
    return 0


def changed_files(base: str) -> list[str]:
    """Paths that differ from where this branch left another one, and those not yet added."""
    begun = _git("merge-base", base, "HEAD")[0]
    return sorted(
        {*_git("diff", "--name-only", begun), *_git("ls-files", "-o", "--exclude-standard")}
    )


def commands(changed: Iterable[str]) -> list[list[str]]:
    """Arguments of Python for every check of some files, the quickest first."""
    code = [path for path in changed if path.endswith(".py")]
    typed = [path for path in code if _is_typed(path)]
    tests = chosen_tests(changed)
    hatch = ["-m", "hatch"]
    return [
        *([[*hatch, "run", "lint:style", *code]] if code else []),
        [*hatch, "run", "lint:sizes"],
        *([[*hatch, "run", "lint:types", *typed]] if typed else []),
        *([[*hatch, "test", *tests]] if tests else []),
    ]


def _is_typed(path: str) -> bool:
    """Whether the type check covers a file: paths on its command line override its settings."""
    parts = path.split("/")
    in_package = parts[0] == "packages" and parts[2:3] == ["src"]
    return in_package or (parts[0] == "tools" and parts[1:3] != ["studies", "oracles"])


def chosen_tests(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """The test files and folders that belong to some files, none of them twice.

    Args:
        changed: Paths from the root of the checkout.
        root: The root.
    """
    chosen = {place for path in changed if (place := _place(path, root))}
    return sorted(one for one in chosen if not any(str(up) in chosen for up in Path(one).parents))


def _place(path: str, root: Path) -> str:
    """The tests of one file; empty if there are none."""
    parts = path.split("/")
    if parts[0] == "packages" and len(parts) > 4 and parts[2] == "src":
        tests = f"packages/{parts[1]}/tests"
        room = f"{tests}/{Path(parts[4]).stem.lstrip('_')}"
        return room if (root / room).is_dir() else tests
    if "tests" in parts[:3]:
        return path if parts[-1].startswith("test_") else str(Path(path).parent)
    return {"docs": "tests/test_docs.py", "tools": "tests/test_tools.py"}.get(parts[0], "")


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
