"""Public names of a package that are imported on first use."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, sources: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package whose names are imported on use.

    Importing JAX takes seconds of processor time. A command that prints its help or an error for a
    misspelt word does not need JAX, but imports its package. So a package puts its imports under
    ``if TYPE_CHECKING`` and passes the same names to this function.

    Args:
        package: Full name of the package, its ``__name__``.
        sources: Lists of names by the module that defines them; a name that is a submodule of the
            package is listed under the package itself.

    Returns:
        ``(__getattr__, __dir__)``, to be assigned in the package (PEP 562). An imported name is
        stored in the package, so later uses cost nothing.

    Example:
        >>> getter, _ = lazy_names("json", {"json.decoder": ["JSONDecodeError"]})
        >>> getter("JSONDecodeError").__name__
        'JSONDecodeError'
    """
    modules = {name: module for module, names in sources.items() for name in names}

    def attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}; dir({package}) lists its names"
            )
        if modules[name] == package:
            value = importlib.import_module(f"{package}.{name}")
        else:
            value = getattr(importlib.import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return attribute, names
