"""The public namespaces of a package, and the single namespace of every name."""

import importlib
import pkgutil
from types import ModuleType
from typing import Any


def namespaces(package: ModuleType) -> list[ModuleType]:
    """The package itself and its public namespaces: sub-packages without an underscore.

    Args:
        package: An imported package.

    Returns:
        The package, then its namespaces by name, all imported.
    """
    names = sorted(
        module.name
        for module in pkgutil.iter_modules(package.__path__)
        if module.ispkg and not module.name.startswith("_")
    )
    return [
        package, *(importlib.import_module(f"{package.__name__}.{name}") for name in names)
    ]  # fmt: skip


def exports(package: ModuleType) -> dict[str, Any]:
    """Every public name of a package with its object, except those of its test kit.

    Args:
        package: An imported package whose namespaces have ``__all__``.

    Returns:
        Object by name, in the order of :func:`namespaces`.

    Raises:
        ValueError: If a name is in two namespaces, although each belongs in only one.
    """
    places: dict[str, str] = {}
    exported: dict[str, Any] = {}
    for module in namespaces(package):
        if module.__name__ == f"{package.__name__}.testing":
            continue
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, ModuleType):
                continue
            if name in places:
                raise ValueError(
                    f"{name} is exported by {places[name]} and by {module.__name__}; keep one"
                )
            places[name], exported[name] = module.__name__, value
    return exported
