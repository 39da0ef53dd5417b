"""Public names of a package that are imported on first use."""

import ast
import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

from neorl_core._internal.missing_names import missing_name


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package whose names are imported on use.

    Importing JAX takes seconds of processor time. A command that prints its help or an error for a
    misspelt word does not need JAX, but imports its package. So a package puts its imports under
    ``if TYPE_CHECKING``, from which they are read when a name is used for the first time.

    Args:
        package: Full name of the package, its ``__name__``.

    Returns:
        ``(__getattr__, __dir__)``, to be assigned in the package (PEP 562), out of sight of type
        checkers, which would otherwise accept any name. An imported name is stored in the package,
        so later uses cost nothing.
    """

    @functools.cache
    def modules() -> dict[str, str]:
        return _imports_for_types(package)

    def attribute(name: str) -> Any:
        # Python asks for these two of every package, and the source need not be read for them.
        if name in ("__path__", "__file__") or name not in modules():
            missing_name(package, [] if name.startswith("__") else [*modules()])(name)
        if modules()[name] == package:
            value = importlib.import_module(f"{package}.{name}")
        else:
            value = getattr(importlib.import_module(modules()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules()})

    return attribute, names


def _imports_for_types(package: str) -> dict[str, str]:
    """The module of every name that a package imports under ``if TYPE_CHECKING``."""
    spec = sys.modules[package].__spec__
    source = spec.loader.get_source(package) if spec and spec.loader else ""  # pyright: ignore[reportAttributeAccessIssue]
    blocks = [
        node.body
        for node in ast.parse(source or "").body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}
