"""Counts the files that a run passes through before its first chunk, and those that see one value.

``python tools/walks.py`` runs a small offline run under a profiler, up to the moment when the
program of a chunk is compiled. It counts files of the packages in which a function was called, and
of them those in which an argument holds a marked hyperparameter or a marked cost limit, alone or
nested.
"""

import argparse
import contextlib
import importlib
import os
import pkgutil
import sys
import tempfile
from types import FrameType
from typing import Any

ALPHA, LIMIT = 0.1234567, 7.654321
WORDS = (
    "run", "CSTR-v0", "--data.steps", "2000", "--training.algorithms", "td3_bc", "--quiet",
    "--training.seeds", "0", "--algorithms.td3-bc.alpha", str(ALPHA), "--output.no-tracking",
    "--algorithms.td3-bc.networks.hidden", "8", "--limits.cost", "COST", str(LIMIT),
)  # fmt: skip


class Begun(BaseException):
    """The training loop begins."""


def holds(value: Any, mark: float, depth: int = 4) -> bool:
    """Whether a value is a marked number or holds it, some levels down."""
    if isinstance(value, float):
        return value == mark
    if depth == 0 or isinstance(value, str | bytes | int | type):
        return False
    if isinstance(value, dict):
        return any(holds(one, mark, depth - 1) for one in value.values())
    if isinstance(value, tuple | list):
        return len(value) < 50 and any(holds(one, mark, depth - 1) for one in value)
    inside = getattr(value, "__dict__", None)
    return bool(inside) and any(holds(one, mark, depth - 1) for one in inside.values())


def main(arguments: list[str] | None = None) -> None:
    """Prints the three counts."""
    argparse.ArgumentParser(description="Count the files that a run passes through.").parse_args(
        arguments
    )
    from neorl_envs import make
    from neorl_train._command import main as command
    from neorl_train._job.watcher import RunWatcher

    # What importing calls is no part of the walk, whenever it happens.
    for package in ("neorl_core", "neorl_envs", "neorl_safety", "neorl_agents", "neorl_train"):
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            if "__main__" not in module.name:
                with contextlib.suppress(ImportError):
                    importlib.import_module(module.name)

    seen: dict[str, set[str]] = {"called": set(), "alpha": set(), "limit": set()}

    def look(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or "/neorl_" not in file or frame.f_code.co_name == "<module>":
            return
        file = file[file.index("/src/") + 5 :]
        seen["called"].add(file)
        for name, mark in (("alpha", ALPHA), ("limit", LIMIT)):
            if file not in seen[name] and holds(list(frame.f_locals.values()), mark, 6):
                seen[name].add(file)

    def mark_start(*_: Any) -> None:
        raise Begun

    setattr(RunWatcher, "compiling", mark_start)  # noqa: B010
    cost = make("CSTR-v0").spec.cost[0].name
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Begun):
        os.chdir(folder)
        sys.setprofile(look)
        try:
            command.main([cost if word == "COST" else word for word in WORDS])
        finally:
            sys.setprofile(None)
    print(f"files in which a function is called before the loop: {len(seen['called'])}")
    print(f"files that see the hyperparameter: {len(seen['alpha'])}")
    print(f"files that see the cost limit: {len(seen['limit'])}")


if __name__ == "__main__":
    main()
