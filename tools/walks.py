"""Count what a reader has to hold: files that a value passes, rooms, files and lines of code.

Usage:
    python tools/walks.py                 measure everything and print it beside the record
    python tools/walks.py --write         and keep it as the record, tests/gates/walks.json
    python tools/walks.py --write --size  measure rooms, files and lines alone; keep the rest
    python tools/walks.py --list          name the files of every walk

A test fails where a number is larger than its record. `GOALS` says where the numbers should go.

Walks are counted under a profiler: a file counts where one of its functions is called. The first is
a small offline run up to the moment at which the program of a chunk is compiled; among its files,
those are counted in which an argument holds a marked hyperparameter or a marked cost limit, alone
or nested. The second is the way from a table to a decision, all in one process: convert it, train,
evaluate and judge, export, load the bundle and ask it once. Every module is imported beforehand, so
that importing counts nowhere. It works on an editable checkout and on installed wheels alike.

Sizes are read from the sources: rooms are the folders of a package that hold modules, code is what
is left of a file without blank lines, comments and docstrings.
"""

import argparse
import ast
import contextlib
import dataclasses
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests/gates/walks.json"
PACKAGES = (
    "neorl_core",
    "neorl_envs",
    "neorl_safety",
    "neorl_agents",
    "neorl_train",
    "neorl_deploy",
)
GOALS = {
    "files before the loop": 80,
    "files that see a hyperparameter": 25,
    "files that see a cost limit": 25,
    "files from a table to a decision": 150,
    "rooms": 14,
}
ALPHA, LIMIT = 0.1234567, 7.654321
SMALL = (
    "--training.seeds", "0", "--output.no-tracking", "--quiet",
    "--algorithms.td3-bc.networks.hidden", "8", "--training.algorithms", "td3_bc",
)  # fmt: skip
MARKED = (
    "run", "CSTR-v0", "--data.steps", "2000", "--algorithms.td3-bc.alpha", str(ALPHA),
    "--limits.cost", "COST", str(LIMIT), *SMALL,
)  # fmt: skip
WHOLE = (
    "run", "tank.h5", "--data.held-out", "0.3", "--training.updates", "20",
    "--training.chunk", "20", "--checkpoints.interval", "20", "--evaluation.candidate", "td3_bc",
    "--algorithms.td3-bc.steps.batch-size", "16", *SMALL,
)  # fmt: skip
TANK = """
name = "tank"
log = { files = ["tank.csv"], timestamp = "time" }
sampling = { period_s = 60 }
episodes = { gap_s = 600, length = 60 }
reward = { expression = "-abs(level - target)" }
tag = [
    { name = "level", role = "observation", unit = "m", low = 0, high = 4 },
    { name = "target", role = "setpoint", unit = "m", low = 0, high = 4 },
    { name = "valve", role = "manipulated", unit = "%", low = 0, high = 100 },
]
"""


def measured_sizes(root: Path = ROOT) -> dict[str, dict[str, int]]:
    """Rooms, files and lines of code of every package."""
    sizes = {}
    for package in PACKAGES:
        source = root / "packages" / package.replace("_", "-") / "src" / package
        files = sorted(source.rglob("*.py"))
        rooms = {path.relative_to(source).parts[0] for path in files if path.parent != source}
        lines = sum(code_lines(path.read_text(encoding="utf-8")) for path in files)
        sizes[package] = {"rooms": len(rooms), "files": len(files), "code": lines}
    return sizes


def code_lines(text: str) -> int:
    """Lines of a module without blank ones, comments and docstrings."""
    documents, inside = set(), set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                if ast.get_docstring(node, clean=False) is not None:
                    documents.update(_lines(node.body[0]))
            case ast.Constant(value=str()) | ast.JoinedStr():
                inside.update(_lines(node))  # a blank line or a # in a text is code
    written = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    return len((written | inside) - documents)


def _lines(node: ast.expr | ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def measured_walks() -> dict[str, list[str]]:
    """The files of every walk; each run has a process of its own, with nothing cached."""
    walks: dict[str, list[str]] = {}
    for name in ("marked", "whole"):
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, str(Path(__file__).resolve()), "--walk", name]
            # The user's cache holds logs that a run would otherwise record anew.
            cached = {"NEORL_COMPILATION_CACHE": "programs", "XDG_CACHE_HOME": "cache"}
            keep = {name: str(Path(folder) / place) for name, place in cached.items()}
            file = Path(folder) / "walks.json"
            subprocess.run([*words, str(file)], cwd=folder, env=os.environ | keep, check=True)
            walks |= json.loads(file.read_text())
    return walks


class Profiler:
    """Notes the files of the packages in which functions are called, in every thread."""

    def __init__(self, notes: Callable[[str, FrameType], None]) -> None:
        self.notes = notes
        self.names: dict[str, str] = {}
        for package in PACKAGES:
            (home,) = importlib.import_module(package).__path__
            self.names |= {
                str(path): f"{package}/{path.relative_to(home).as_posix()}"
                for path in Path(home).rglob("*.py")
            }

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Called by Python for every call."""
        file = self.names.get(frame.f_code.co_filename) if event == "call" else None
        if file and frame.f_code.co_name != "<module>":
            self.notes(file, frame)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """While it looks on."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # pyright: ignore[reportArgumentType]


def import_everything() -> None:
    """Imports all modules that this environment can; what importing calls is no part of a walk."""
    for package in PACKAGES:
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            if "__main__" not in module.name and ".testing" not in module.name:
                with contextlib.suppress(ImportError):
                    importlib.import_module(module.name)


class Begun(BaseException):
    """The training loop begins."""


def marked_walk() -> dict[str, list[str]]:
    """The files before the loop, and those of them that see a hyperparameter or a limit."""
    from neorl_envs import make
    from neorl_train._command import main as command

    seen: dict[str, set[str]] = {"called": set(), "alpha": set(), "limit": set()}

    def notes(file: str, frame: FrameType) -> None:
        if frame.f_code.co_name == "compiling":  # what the loop calls before it compiles a chunk
            raise Begun
        seen["called"].add(file)
        for name, mark in (("alpha", ALPHA), ("limit", LIMIT)):
            if file not in seen[name] and holds(list(frame.f_locals.values()), mark):
                seen[name].add(file)

    cost = make("CSTR-v0").spec.cost[0].name
    words = [cost if word == "COST" else word for word in MARKED]
    begun = False
    try:
        with Profiler(notes).watching():
            command.main(words)
    except Begun:
        begun = True
    if not begun:
        raise RuntimeError("the run ended and nothing named `compiling` was called before its loop")
    return {
        "files before the loop": sorted(seen["called"]),
        "files that see a hyperparameter": sorted(seen["alpha"]),
        "files that see a cost limit": sorted(seen["limit"]),
    }


def holds(value: Any, mark: float, depth: int = 6) -> bool:
    """Whether a value is a marked number or holds it, some levels down."""
    if isinstance(value, float):
        return value == mark
    if depth == 0 or value is None or isinstance(value, str | bytes | int | type):
        return False
    if isinstance(value, dict):
        return any(holds(one, mark, depth - 1) for one in value.values())
    if isinstance(value, tuple | list):
        return len(value) < 50 and any(holds(one, mark, depth - 1) for one in value)
    # Arrays and other objects of libraries hold no setting of ours.
    ours = type(value).__module__.startswith("neorl_") or dataclasses.is_dataclass(value)
    if not ours and not isinstance(value, SimpleNamespace | argparse.Namespace):
        return False
    inside = getattr(value, "__dict__", None)
    return bool(inside) and any(holds(one, mark, depth - 1) for one in inside.values())


def whole_walk() -> dict[str, list[str]]:
    """The files from a table to a decision."""
    import numpy as np

    from neorl_deploy._command import main as deploy
    from neorl_deploy.runtime import LastSent, load_bundle
    from neorl_envs._command import main as envs
    from neorl_train._command import main as train

    Path("plant.toml").write_text(TANK)
    Path("tank.csv").write_text(table())
    parts: dict[str, set[str]] = {}

    def step(name: str, action: Callable[[], Any], wanted: object = 0) -> Any:
        parts[name] = set()
        with Profiler(lambda file, _: parts[name].add(file)).watching():
            result = action()
        if wanted is not None and result != wanted:
            raise RuntimeError(f"{name} of the walk gave {result}")
        return result

    step("convert", lambda: envs.main(["convert", "plant.toml"]))
    step("run", lambda: train.main(list(WHOLE)))
    step("export", lambda: deploy.main(["export"]))
    bundle = Path("runs/0001/policy.bundle")
    runtime = step("load", lambda: load_bundle(bundle, state=Path("policy.state")), None)
    runtime.release("the walk: first start")
    obs = np.array([(channel.low + channel.high) / 2 for channel in runtime.manifest.obs])
    step("decide", lambda: runtime.step(obs, LastSent.UNKNOWN), None)
    for name, files in parts.items():
        print(f"{name}: {len(files)} files")
    return {"files from a table to a decision": sorted(set().union(*parts.values()))}


def table() -> str:
    """The log of a tank under a proportional controller, 600 minutes of it."""
    import numpy as np

    rng = np.random.default_rng(0)
    level, target, lines = 2.0, 2.0, ["time,level,target,valve"]
    for minute in range(600):
        target = rng.uniform(1.5, 2.5) if minute % 60 == 0 else target
        valve = float(np.clip(50 + 40 * (target - level) + 2 * rng.normal(), 0, 100))
        time = f"2026-01-05T{10 + minute // 60:02d}:{minute % 60:02d}:00+00:00"
        lines.append(f"{time},{level:.4f},{target:.3f},{valve:.2f}")
        level += 0.01 * (valve - 50) - 0.05 * (level - 2) + 0.01 * rng.normal()
    return "\n".join([*lines, ""])


def grown(now: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """One line for every number that is larger than its record, in whatever part was measured."""
    if not record:
        return ["there is no record yet: python tools/walks.py --write"]
    pairs = [(name, number, record["walks"][name]) for name, number in now.get("walks", {}).items()]
    for package, sizes in now["sizes"].items():
        pairs += [
            (f"{name} of {package}", number, record["sizes"][package][name])
            for name, number in sizes.items()
        ]
    return [f"{name}: {number}, at most {kept}" for name, number, kept in pairs if number > kept]


def lines_of(now: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Every number with its record and its goal."""
    lines = [
        f"{name}: {number} (record {record.get('walks', {}).get(name, 'none')}, goal {GOALS[name]})"
        for name, number in now.get("walks", {}).items()
    ]
    for package, sizes in now["sizes"].items():
        kept = record.get("sizes", {}).get(package, {})
        rooms, files, code = (
            f"{sizes[n]:,} ({kept.get(n, 0):,})" for n in ("rooms", "files", "code")
        )
        lines.append(f"{package}: rooms {rooms}, goal {GOALS['rooms']}; files {files}; code {code}")
    totals = {n: sum(s[n] for s in now["sizes"].values()) for n in ("files", "code")}
    return [*lines, f"all packages: files {totals['files']:,}; code {totals['code']:,}"]


def read_record() -> dict[str, Any]:
    """What was written last; empty where nothing was."""
    return json.loads(RECORD.read_text()) if RECORD.is_file() else {}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="keep the numbers as the record")
    parser.add_argument("--size", action="store_true", help="sizes alone, which takes seconds")
    parser.add_argument("--list", action="store_true", help="print the files of the walks")
    parser.add_argument("--walk", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.walk:
        name, file = options.walk
        import_everything()
        files = marked_walk() if name == "marked" else whole_walk()
        Path(file).write_text(json.dumps(files))
        return 0
    record, now = read_record(), {"sizes": measured_sizes()}
    if not options.size:
        walks = measured_walks()
        now = {"walks": {name: len(files) for name, files in walks.items()}, **now}
        for name, files in walks.items() if options.list else ():
            print(name, *files, sep="\n  ")
    print(*lines_of(now, record), sep="\n")
    if options.write:
        RECORD.write_text(json.dumps({"goals": GOALS} | record | now, indent=1) + "\n")
        return 0
    faults = grown(now, record)
    print(*faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
