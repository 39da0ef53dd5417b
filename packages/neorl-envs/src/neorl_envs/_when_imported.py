"""A hook that runs when another package is imported, without importing that package."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_imported(package: str, callback: Callable[[], object]) -> None:
    """Calls a function once a package is imported, or immediately if it already is.

    Args:
        package: Name of a package without dots.
        callback: The function. It is called after the import of the package has finished.
    """
    if package in sys.modules:
        callback()
    else:
        sys.meta_path.insert(0, _Finder(package, callback))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the package with the other finders and makes its loader call the function at the end.

    Args:
        package: Name of the package.
        callback: The function.
    """

    def __init__(self, package: str, callback: Callable[[], object]) -> None:
        self._package, self._callback = package, callback

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the package; ``None`` for any other package."""
        if fullname != self._package or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)  # the package may be installed later
            return spec
        loader, run = spec.loader, spec.loader.exec_module

        def run_and_call(module: ModuleType) -> None:
            del loader.exec_module  # uncovers the loader's own method
            run(module)
            self._callback()

        loader.exec_module = run_and_call
        return spec
