"""Something to do as soon as another package is imported, without importing it."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_imported(package: str, then: Callable[[], object]) -> None:
    """Calls a function once a package is imported: at once where it is imported already.

    Args:
        package: Name of a package without dots.
        then: The function; the package is complete when it is called.
    """
    if package in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Finder(package, then))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the package as the other finders do, and has its loader call the function afterwards.

    Args:
        package: Name of the package.
        then: The function.
    """

    def __init__(self, package: str, then: Callable[[], object]) -> None:
        self._package, self._then = package, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the package; nothing for any other."""
        if fullname != self._package or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)  # it may be installed later
            return spec
        loader, run = spec.loader, spec.loader.exec_module

        def run_and_call(module: ModuleType) -> None:
            del loader.exec_module  # that of the instance: the class keeps its own
            run(module)
            self._then()

        loader.exec_module = run_and_call
        return spec
