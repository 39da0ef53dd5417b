"""The options that a class declares, read from its source: help needs no import, so no JAX."""

import ast
import dataclasses
import functools
import gc
import importlib.util
import inspect
import math
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from neorl_core.infrastructure._settings import Range, range_of, setting

T = TypeVar("T")
POSITIONAL = "positional"
Positional = Annotated[T, POSITIONAL]
"""Marks a field whose value is typed without the name of an option."""

REQUIRED = dataclasses.MISSING
"""Value of an option without a default."""

MARKUP = re.compile(r"(?::\w+:`~?|``)([^`]*)`+")
"""Names in docstrings: a role, and the text between backticks; or between two backticks."""
FUNCTION = re.compile(r"^( *)(?:async )?def .*\n(?:(?:\1[ )].*)?\n)*", re.MULTILINE)
"""A function: its first line, and all that are blank, further right or close its parentheses."""
ENDS = frozenset(field.name for field in dataclasses.fields(Range))
"""The arguments of ``setting`` that declare a range."""
BUILTIN: Mapping[str, Any] = {
    kind.__name__: kind for kind in (bool, dict, float, int, list, str, tuple, Path)
} | {"Any": Any, "Literal": Literal, POSITIONAL.title(): Positional}
"""The names that an annotation may use without its module."""


class Setting(NamedTuple):
    """One option of a class.

    Attributes:
        kind: Its type, as annotated.
        value: Its default; :data:`REQUIRED` if there is none.
        text: What it means; plain text.
        range: The numbers that it may be, if a range is declared.
    """

    kind: Any
    value: Any
    text: str
    range: Range | None = None


class Section(NamedTuple):
    """The options of a class.

    Attributes:
        summary: The first paragraph of its docstring, as plain text on one line.
        text: The docstring without the list of its attributes.
        fields: Every option by the name of its field; a nested class is a section of its own.
    """

    summary: str
    text: str
    fields: "dict[str, Setting | Section]"

    def replaced(self, values: Mapping[str, Any]) -> "Section":
        """The section with other defaults; mappings stand for nested sections."""
        fields = dict(self.fields)
        for name, value in values.items():
            field = fields[name]
            if isinstance(field, Section):
                fields[name] = value if isinstance(value, Section) else field.replaced(value)
            else:
                fields[name] = field._replace(value=value)
        return self._replace(fields=fields)


def section_of(options: Any) -> Section:
    """The options of a dataclass, or of an object whose values are the defaults.

    Args:
        options: A dataclass or an instance of one.
    """
    kind = options if isinstance(options, type) else type(options)
    hints = typing.get_type_hints(kind, include_extras=True)
    docs = [inspect.cleandoc(base.__dict__.get("__doc__") or "") for base in kind.__mro__]
    texts = {name: text for doc in reversed(docs) for name, text in _attributes(doc).items()}
    fields: dict[str, Setting | Section] = {}
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        if options is not kind:
            value = getattr(options, field.name)
        else:
            factory = field.default_factory
            value = field.default if factory is dataclasses.MISSING else factory()
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields[field.name] = section_of(value)
        else:
            text, range_ = texts.get(field.name, ""), range_of(kind, field.name)
            fields[field.name] = Setting(hints[field.name], value, text, range_)
    return _section(kind.__name__, kind.__doc__ or "", fields)


def declared_section(module: str, name: str) -> Section:
    """The options of a class, read from the source of its module without importing anything.

    Reads what such classes consist of: annotations of plain types, literals and their aliases,
    and defaults that are literals, constants, other such classes, ``field(...)`` and ``replace``.

    Args:
        module: Full name of a module that defines or imports the class.
        name: Name of the class.

    Raises:
        LookupError: If the source is missing, or uses something else.
    """
    return _of_class(*_class(module, name))


def declared_table(module: str, name: str) -> dict[str, Callable[[], Section]]:
    """The entries of a table of classes by name, such as the learners; nothing is imported.

    Args:
        module: Full name of a module that defines or imports the table.
        name: Name of a mapping, or of a registry made with one.

    Returns:
        For every key, a function that reads the options of its class.
    """
    return {
        key: functools.partial(declared_section, home, ast.unparse(value))
        for key, home, value in _items(*_found(module, name))
    }


def declared_keys(module: str, name: str) -> list[str]:
    """The keys of a table; see :func:`declared_table`."""
    return [key for key, _, _ in _items(*_found(module, name))]


def declared_value(module: str, name: str) -> Any:
    """The value of a constant of a module, read from its source; see :func:`declared_section`."""
    return _value(*_found(module, name))


def summary_of(kind: type) -> str:
    """The first paragraph of a docstring on one line, without markup; else the class name.

    Args:
        kind: A class.

    Returns:
        One line of plain text.

    Example:
        >>> class Cost:
        ...     "A :class:`Cost` in ``GBP``."
        >>> summary_of(Cost)
        'A Cost in GBP.'
    """
    return _section(kind.__name__, kind.__doc__ or "", {}).summary


def _section(name: str, doc: str, fields: "dict[str, Setting | Section]") -> Section:
    doc = inspect.cleandoc(doc)
    if not doc or (doc.startswith(f"{name}(") and doc.endswith(")")):
        doc = name  # Python gives a dataclass without a docstring its signature as one.
    return Section(_plain(doc.split("\n\n")[0]), doc.partition("\n\nAttributes:\n")[0], fields)


def _plain(text: str) -> str:
    """A paragraph of a docstring on one line and without markup."""
    return " ".join(MARKUP.sub(r"\1", text).split())


def _attributes(doc: str) -> dict[str, str]:
    """The descriptions under *Attributes* of a docstring, by name."""
    block = doc.partition("\nAttributes:\n")[2]
    texts: dict[str, str] = {}
    name = ""
    for line in block.splitlines():
        if line and not line.startswith(" "):
            break
        if match := re.match(r"    (\w+): +(.*)", line):
            name, texts[match[1]] = match[1], match[2]
        elif name:
            texts[name] += f" {line.strip()}"
    return {name: _plain(text) for name, text in texts.items()}


@functools.cache
def _names(module: str) -> dict[str, Any]:
    """The names at the top of a module: a class, a value, or the module and name it comes from."""
    package, _, rest = module.partition(".")
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise LookupError(f"{module} has no source")
    path = Path(found.origin).parent.joinpath(*rest.split(".")) if rest else Path(found.origin)
    # A folder that a branch has left behind may hold caches alone.
    face = path / "__init__.py"
    path = face if face.is_file() else path.with_suffix(".py")
    try:
        body = _parsed(path.read_text(encoding="utf-8")).body
    except (OSError, SyntaxError) as error:
        raise LookupError(f"{module} has no source that can be read") from error
    names: dict[str, Any] = {}
    for node in (*body, *(inner for one in body if isinstance(one, ast.If) for inner in one.body)):
        if isinstance(node, ast.ClassDef):
            names[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = node.value
        elif isinstance(node, ast.ImportFrom):
            names |= {one.asname or one.name: (node.module, one.name) for one in node.names}
    return names


def _parsed(source: str) -> ast.Module:
    """The tree of a source without the bodies of its functions, which would take most of the time.

    Raises:
        SyntaxError: If it is no Python.
    """
    collects = gc.isenabled()
    gc.disable()  # A tree is thousands of objects and no garbage; collections took a third.
    try:
        return ast.parse(FUNCTION.sub(r"\1def _(): ...\n", source))
    except SyntaxError:  # a text in a function, for example, reaches further left than its code
        return ast.parse(source)
    finally:
        if collects:
            gc.enable()


def _found(module: str, name: str) -> tuple[str, ast.AST]:
    """The class or value of a name, and the module that defines it."""
    node = _names(module).get(name)
    if isinstance(node, tuple):
        return _found(*node)
    if node is None:
        raise LookupError(f"{module} defines no {name}")
    return module, node


@functools.cache
def _of_class(module: str, node: ast.ClassDef) -> Section:
    """The section of a class, with the fields of its bases first."""
    fields: dict[str, Setting | Section] = {}
    for base in reversed(node.bases):  # the last base is the first in the order of a dataclass
        if isinstance(base, ast.Name):
            fields |= _of_class(*_class(module, base.id)).fields
    doc = ast.get_docstring(node) or ""
    texts = _attributes(doc)
    for name, text in texts.items():
        field = fields.get(name)
        if isinstance(field, Setting):
            fields[name] = field._replace(text=text)
    for line in node.body:
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        if isinstance(line.annotation, ast.Subscript) and _is(line.annotation.value, "ClassVar"):
            continue
        name, before = line.target.id, fields.get(line.target.id)
        value = REQUIRED if line.value is None else _value(module, line.value)
        if isinstance(value, Section):
            fields[name] = value
        else:
            text, range_ = texts.get(name, ""), _range(module, line.value)
            if isinstance(before, Setting):
                text, range_ = text or before.text, range_ or before.range
            fields[name] = Setting(_kind(module, line.annotation), value, text, range_)
    return _section(node.name, doc, fields)


def _range(module: str, node: ast.AST | None) -> Range | None:
    """The range that a call of ``setting`` declares; none for any other default."""
    if not (isinstance(node, ast.Call) and _is(node.func, setting.__name__)):
        return None
    ends = {one.arg: one.value for one in node.keywords if one.arg in ENDS}
    return Range(**{end: _value(module, value) for end, value in ends.items() if end})


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _class(module: str, name: str) -> tuple[str, ast.ClassDef]:
    home, node = _found(module, name)
    if not isinstance(node, ast.ClassDef):
        raise LookupError(f"{module}.{name} is not a class")
    return home, node


def _value(module: str, node: ast.AST) -> Any:
    """The value of an expression; an object of a class is its section."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _value(*_found(module, name))
        case ast.Tuple(elts=items):
            return tuple(_value(module, item) for item in items)
        case ast.Attribute(value=ast.Name(id="math"), attr="inf"):
            return math.inf
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return _attribute(module, owner, name)
        case ast.Call():
            return _called(module, node)
    try:
        return ast.literal_eval(typing.cast(Any, node))
    except ValueError:
        raise LookupError(f"{module} has a value that cannot be read: {ast.dump(node)}") from None


def _attribute(module: str, owner: str, name: str) -> Any:
    """The value of a name of a class or of an imported module."""
    where = _names(module).get(owner)
    if isinstance(where, tuple) and where[1] not in _names(where[0]):
        return _value(*_found(".".join(where), name))
    home, node = _class(module, owner)
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and _is(line.target, name) and line.value is not None:
            return _value(home, line.value)
    raise LookupError(f"{module} has {owner}.{name}, which cannot be read")


def _called(module: str, node: ast.Call) -> Any:
    """The value of a call: of a field or setting, a container, ``replace``, an object."""
    name = ast.unparse(node.func).rpartition(".")[2]
    given = {one.arg or "": one.value for one in node.keywords}
    if name == "field":
        if "default_factory" in given:
            return _called(module, ast.Call(given["default_factory"], [], []))
        return _value(module, given["default"]) if "default" in given else REQUIRED
    if name == setting.__name__:
        return _value(module, node.args[0])
    if name in ("dict", "tuple", "Path"):
        return BUILTIN[name](*(_value(module, one) for one in node.args))
    values = {field: _value(module, one) for field, one in given.items()}
    if name == "replace":
        return _value(module, node.args[0]).replaced(values)
    return _of_class(*_class(module, name)).replaced(values)


def _kind(module: str, node: ast.AST) -> Any:
    """The type of an annotation; aliases are replaced by what they stand for."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return BUILTIN[name] if name in BUILTIN else _kind(*_found(module, name))
        case ast.BinOp(left=left, right=right):
            return _kind(module, left) | _kind(module, right)
        case ast.Subscript(value=ast.Name(id=name), slice=inner):
            items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            kinds = tuple(_kind(module, item) for item in items)
            return BUILTIN[name][kinds[0] if len(kinds) == 1 else kinds]
    raise LookupError(f"{module} has an annotation that cannot be read: {ast.dump(node)}")


def _items(module: str, node: ast.AST) -> Iterator[tuple[str, str, ast.AST]]:
    """The entries of a table: key, module and value; a registry's are those that it is made of."""
    if isinstance(node, ast.Name):
        module, node = _found(module, node.id)
    if isinstance(node, ast.Call):
        node = next(argument for argument in node.args if isinstance(argument, ast.Dict))
    if not isinstance(node, ast.Dict):
        raise LookupError(f"{module} has a table that cannot be read: {ast.dump(node)}")
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            yield from _items(module, value)
        else:
            yield _value(module, key), module, value
