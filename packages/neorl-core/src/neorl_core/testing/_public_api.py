"""The public namespaces of a package, and their API as text, so that a change shows in review."""

import ast
import importlib
import inspect
import pkgutil
import sys
from types import ModuleType
from typing import Any, get_args

import jax
from jaxtyping import PRNGKeyArray

# The public namespaces of a package, and the single namespace of every name.


def namespaces(package: ModuleType) -> list[ModuleType]:
    """The package itself and its public namespaces: folders and files without an underscore.

    Args:
        package: An imported package.

    Returns:
        The package, then its namespaces by name, all imported.
    """
    names = sorted(
        module.name
        for module in pkgutil.iter_modules(package.__path__)
        if not module.name.startswith("_")
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


def functions_of_arrays(package: ModuleType) -> set[str]:
    """The names of the public functions of a package that take arrays of JAX, other than keys.

    They may be traced, so a table of rows can check them under every transformation.

    Args:
        package: An imported package whose namespaces have ``__all__``.
    """
    named = ((name, getattr(m, name)) for m in namespaces(package) for name in m.__all__)
    return {
        name
        for name, value in named
        if not inspect.isclass(value)
        and inspect.isfunction(function := inspect.unwrap(value))
        and any(_takes_array(p.annotation) for p in inspect.signature(function).parameters.values())
    }


def _takes_array(annotation: Any) -> bool:
    if annotation == PRNGKeyArray:
        return False
    return any(
        part is jax.Array or getattr(part, "array_type", None) is jax.Array
        for part in (annotation, *get_args(annotation))
    )


# The public API of a module as text, so that a change shows in review.


def public_api(module: ModuleType) -> str:
    """One line per export, and one per public field and method of a class, sorted.

    A namespace in the list takes one line without its names.

    Signatures are those in the source, including annotations and defaults.

    Args:
        module: Module with ``__all__``.

    Returns:
        The lines, ending with a newline.
    """
    lines = []
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if inspect.ismodule(value):
            lines.append(f"namespace {name}")
        elif inspect.isclass(value):
            lines += _class_lines(name, value)
        elif inspect.isfunction(inspect.unwrap(value)):  # also a cached function
            lines.append(name + _signature(_definition(value)))
        else:
            lines.append(f"{name} = {value!r}")
    return "\n".join(lines) + "\n"


def _class_lines(name: str, value: type) -> list[str]:
    body = _definition(value).body
    lines = [f"class {name}"]
    for node in body:
        if isinstance(node, ast.AnnAssign):
            lines.append(f"{name}.{ast.unparse(node)}")
        elif isinstance(node, ast.FunctionDef) and (
            not node.name.startswith("_") or node.name in ("__init__", "__call__")
        ):
            lines.append(f"{name}.{node.name}{_signature(node)}")
    return [lines[0], *sorted(lines[1:])]


def _definition(value: Any) -> Any:
    # Not inspect.getsource, which loses functions that a decorator replaced (Hypothesis'
    # composites).
    source = inspect.getsource(sys.modules[value.__module__])
    for node in ast.parse(source).body:
        if getattr(node, "name", None) == value.__name__:
            return node
    raise ValueError(f"{value.__name__} is not defined at the top level of {value.__module__}")


def _signature(node: ast.FunctionDef) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(node.args)}){returns}"
