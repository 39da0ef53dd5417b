"""A griffe extension for the reference pages: it turns our docstrings into what griffe renders.

Named in docs/mkdocs.yml. We write `Example:`, griffe knows `Examples:`; without the change the
lines of an example are read as prose, and `[[1.0]]` in a result as a broken link. We write the
roles that Python's own documentation uses, such as :func:`guard`; a reader of the site gets a link
to the public name where a reference page shows it, and the name as code otherwise. The examples use
what their file imports; on a page they begin with these imports, so that they run when copied.
"""

import ast
import builtins
import dataclasses
import importlib
import re
from collections.abc import Mapping
from typing import Any

import griffe

from neorl_core.infrastructure import range_of

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
                text = ROLE.sub(lambda match, at=obj: _link(match, at, public), text)
                if obj.is_class:
                    text = with_notes(text, _notes(obj))
                obj.docstring.value = with_imports(text, _scope(obj, public))


def with_imports(text: str, scope: Mapping[str, str]) -> str:
    """A docstring whose example imports every name that it uses and does not make itself.

    Args:
        text: The docstring.
        scope: From the names that the example may use to the paths to import them from.
    """
    prompts = re.findall(r"(?m)^( *)(?:>>>|\.\.\.) ?(.*)$", text)
    names = _undefined("\n".join(line for _, line in prompts))
    modules: dict[str, list[str]] = {}
    lines = []
    for name in sorted(names & {*scope}):
        module, _, last = scope[name].rpartition(".")
        if last == name and module:
            modules.setdefault(module, []).append(name)
        else:
            lines.append(f"import {scope[name]}" + (f" as {name}" if last != name else ""))
    lines += [f"from {module} import {', '.join(modules[module])}" for module in sorted(modules)]
    if not lines:
        return text
    indent, first = prompts[0][0], re.search(r"(?m)^ *>>>", text)
    assert first is not None  # there is no name without a prompt
    block = "".join(f"{indent}>>> {line}\n" for line in lines)
    return text[: first.start()] + block + text[first.start() :]


def with_notes(text: str, notes: Mapping[str, str]) -> str:
    """A docstring whose section of attributes says the range and the default of each.

    Args:
        text: The docstring of a class.
        notes: Sentences about an attribute, by name.
    """
    head, title, rest = text.partition("Attributes:\n")
    end = re.search(r"(?m)^(?=\S)", rest)
    section, tail = (rest[: end.start()], rest[end.start() :]) if end else (rest, "")
    # An entry is a line `    name: text` and all lines that are indented further.
    for name, note in notes.items():
        entry = re.compile(rf"(?m)^(    {name}: (?:.*)(?:\n {{5,}}.*)*)$")
        section = entry.sub(lambda match, note=note: f"{match[1]} {note}", section, 1)
    return head + title + section + tail


def _notes(obj: griffe.Class) -> dict[str, str]:
    """Ranges of the fields of a dataclass, and defaults that are literals or names of literals."""
    ranges = {}
    if "setting" in obj.module.members:
        ranges = declared_ranges(getattr(importlib.import_module(obj.module.path), obj.name))
    notes = {name: f"Must be {text}." for name, text in ranges.items()}
    for name, member in obj.members.items():
        if member.is_attribute and member.value is not None:
            value = _literal(str(member.value), obj.module)
            if value is not None:
                notes[name] = f"{notes.get(name, '')} Default: `{value}`.".lstrip()
    return notes


def declared_ranges(kind: type) -> dict[str, str]:
    """The ranges that a class declares with ``setting``, by field."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    ranges = {field.name: range_of(kind, field.name) for field in fields}
    return {name: declared.text for name, declared in ranges.items() if declared}


def _literal(source: str, module: griffe.Module) -> str | None:
    """The literal that an expression stands for; the first argument of a call with one."""
    node = ast.parse(source, mode="eval").body
    if isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    if isinstance(node, ast.Name) and node.id in module.members:
        member = module.members[node.id]
        value = None if member.is_alias else getattr(member, "value", None)
        if value is None:
            return None
        node = ast.parse(str(value), mode="eval").body
    try:
        return repr(ast.literal_eval(node))
    except ValueError:
        return None


def _undefined(code: str) -> set[str]:
    """Names that a piece of code uses without making them; none if it is no code."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError:
        return set()
    names = [node for node in nodes if isinstance(node, ast.Name)]
    made = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    made |= {
        (alias.asname or alias.name).partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return {node.id for node in names} - made - {*dir(builtins)}


def _scope(obj: griffe.Object, public: dict[str, str]) -> dict[str, str]:
    """The names in the file of an object, with the path to import each from, where there is one."""
    scope = {}
    for name, member in obj.module.members.items():
        written = _written_at(member)
        outside = member.is_alias and not written.startswith(f"{obj.package.path}.")
        if path := public.get(_resolved(obj, written)) or (written if outside else ""):
            scope[name] = path
    return scope


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
