"""A griffe extension for the reference pages: it turns our docstrings into what griffe renders.

Named in docs/mkdocs.yml. We write `Example:`, griffe knows `Examples:`; without the change the
lines of an example are read as prose, and `[[1.0]]` in a result as a broken link. We write the
roles that Python's own documentation uses, such as :func:`guard`; a reader of the site gets a link
to the public name where a reference page shows it, and the name as code otherwise.
"""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod|obj):`(~?)([\w.]+)`")


class Docstrings(griffe.Extension):
    """Renames the sections of examples and replaces the roles of every docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for every object that it has read."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Called by griffe once all modules of a package are read, so names can be looked up."""
        public = _public_names(pkg)
        for obj in _objects(pkg):
            if obj.docstring is not None:
                text = obj.docstring.value
                obj.docstring.value = ROLE.sub(lambda match, at=obj: _link(match, at, public), text)


def _public_names(pkg: griffe.Module) -> dict[str, str]:
    """From the path where an object is written to the path under which the pages show it.

    The shortest public path comes last and wins: that of the package over that of a namespace.
    """
    namespaces = [module for module in _objects(pkg) if module.is_module and _is_public(module)]
    found = {}
    for module in sorted(namespaces, key=lambda module: -module.path.count(".")):
        for name in module.exports or ():
            if str(name) in module.members:
                found[_written_at(module.members[str(name)])] = f"{module.path}.{name}"
        found[module.path] = module.path
    return found


def _objects(parent: griffe.Object) -> list[griffe.Object]:
    """The object and all that is written below it; what is imported is written elsewhere."""
    below = [member for member in parent.members.values() if not member.is_alias]
    return [parent, *(obj for member in below for obj in _objects(member))]


def _is_public(module: griffe.Object) -> bool:
    return not any(part.startswith("_") for part in module.path.split("."))


def _written_at(member: griffe.Object | griffe.Alias) -> str:
    return member.target_path if member.is_alias else member.path


def _link(match: re.Match[str], at: griffe.Object, public: dict[str, str]) -> str:
    """A link where the name is public in the package of the docstring, else code."""
    short, name = match.groups()
    shown = name.rpartition(".")[2] if short else name
    path = _resolved(at, name)
    owner, _, last = path.rpartition(".")
    target = public.get(path) or (f"{public[owner]}.{last}" if owner in public else None)
    return f"[`{shown}`][{target}]" if target and _has_docstring(at, path) else f"`{shown}`"


def _resolved(at: griffe.Object, name: str) -> str:
    """The path where the object of this name is written, or the name itself."""
    if name.startswith(at.package.path + "."):
        try:
            return at.package[name.removeprefix(at.package.path + ".")].canonical_path
        except (KeyError, griffe.GriffeError):
            return name
    head, _, rest = name.partition(".")
    try:
        path = at.resolve(head).removeprefix(f"{at.package.path}.")
        return at.package[path].canonical_path + (rest and f".{rest}")
    except (KeyError, griffe.GriffeError):
        return name


def _has_docstring(at: griffe.Object, path: str) -> bool:
    """The pages show what has a docstring."""
    try:
        return at.package[path.removeprefix(at.package.path + ".")].has_docstring
    except (KeyError, griffe.GriffeError):
        return path == at.package.path
