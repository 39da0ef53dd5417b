"""Which tests `hatch test` runs every day, by a rule over stored durations.

A test is daily if it is not nightly and

1. a pattern under ``always`` of ``tests/gates/time_budget.toml`` names it, or
2. ``tests/gates/durations.json`` names it as the test of something that has no cheaper one, or
3. it costs at most ``seconds_per_test``, with the shared set-ups that it needs. A set-up that a
   test of 1 or 2 needs anyway is free. A test that is not stored, such as a new one, is cheap.

``python -m hatch run tests:record`` measures all tests and writes the file of durations.
:func:`without_daily_test` says what has no daily test at all: a public function, a plant, a
learner, a command, or a promised behaviour, which is a row such as N04 that the docstring of a test
names.
"""

import fnmatch
import functools
import importlib
import inspect
import json
import pkgutil
import re
import sys
import tomllib
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent.parent
DURATIONS, BUDGET = TESTS / "gates/durations.json", TESTS / "gates/time_budget.toml"
PACKAGES = ("core", "envs", "safety", "agents", "train", "deploy")
ROW = re.compile(r"\b[Rr]ows? ((?:[NPSRE]\d\d(?:, | and )?)+)")
SETUP = "setup:"
"""What the property of a test that made a shared set-up begins with."""


def stored(file: Path = DURATIONS) -> dict[str, Any]:
    """The stored durations: ``tests``, ``setups`` and ``chosen``; empty where there is no file."""
    if not file.is_file():
        return {"tests": {}, "setups": {}, "chosen": {}}
    return json.loads(file.read_text())


def rule(file: Path = BUDGET) -> dict[str, Any]:
    """The table ``daily`` of the budget."""
    return tomllib.loads(file.read_text())["daily"]


def duration(item: pytest.Item, durations: Mapping[str, Any]) -> float:
    """Stored processor seconds of a test, without shared set-ups."""
    file, _, test = item.nodeid.partition("::")
    return durations["tests"].get(file, {}).get(test, 0.0)


def setup_key(definition: Any, index: int) -> str:
    """The name under which the duration of a shared set-up is stored; 0 is a single parameter."""
    return f"{definition.baseid}::{definition.argname}[{index}]"


def setups(item: pytest.Item) -> Iterator[str]:
    """The shared set-ups that a test needs: its fixtures of a wider scope than one test."""
    indices = getattr(getattr(item, "callspec", None), "indices", {})
    for name, definitions in item._fixtureinfo.name2fixturedefs.items():
        if definitions and definitions[-1].scope != "function":
            yield setup_key(definitions[-1], indices.get(name, 0))


def daily(
    items: Iterable[pytest.Item], durations: Mapping[str, Any], settings: Mapping[str, Any]
) -> list[pytest.Item]:
    """The daily tests among some, in their order."""
    candidates = [item for item in items if not item.get_closest_marker("nightly")]
    named = {item.nodeid for item in candidates if _is_named(item, durations, settings)}
    paid = {key for item in candidates if item.nodeid in named for key in setups(item)}

    def is_cheap(item: pytest.Item) -> bool:
        return _cost(item, durations, paid) <= settings["seconds_per_test"]

    return [item for item in candidates if item.nodeid in named or is_cheap(item)]


def total(items: Iterable[pytest.Item], durations: Mapping[str, Any]) -> dict[str, float]:
    """Stored seconds of some tests with their set-ups, by package."""
    seconds: dict[str, float] = {}
    made: set[str] = set()
    for item in items:
        package = package_of(item.nodeid)
        new = set(setups(item)) - made
        made |= new
        cost = duration(item, durations) + sum(durations["setups"].get(key, 0.0) for key in new)
        seconds[package] = seconds.get(package, 0.0) + cost
    return seconds


def package_of(test: str) -> str:
    """The package of a test by its name, or ``workspace``."""
    parts = test.split("/")
    return parts[1].removeprefix("neorl-") if parts[0] == "packages" else "workspace"


def write_chosen(items: Collection[pytest.Item]) -> None:
    """Chooses anew what rule 2 adds, and writes it to the file of durations."""
    durations = stored()
    choose(items, durations, rule())
    write(durations)


def write(durations: Mapping[str, Any], file: Path = DURATIONS) -> None:
    """Writes the file of durations, sorted, one test a line."""
    file.write_text(json.dumps(durations, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def choose(
    items: Collection[pytest.Item], durations: dict[str, Any], settings: Mapping[str, Any]
) -> dict[str, str]:
    """The cheapest test of everything that would have none, by what it is."""
    durations["chosen"] = chosen = {}
    for subject, tests in subjects(items).items():
        selected = daily(tests, durations, settings)
        if tests and not selected:
            cheapest = min(tests, key=lambda item: (_cost(item, durations, set()), item.nodeid))
            chosen[subject] = cheapest.nodeid
    return chosen


def without_daily_test(
    concerned: Mapping[str, Iterable[pytest.Item]], selected: Iterable[pytest.Item]
) -> list[str]:
    """What none of the selected tests concerns, of what :func:`subjects` gives."""
    names = {item.nodeid for item in selected}
    return [
        subject
        for subject, tests in concerned.items()
        if not any(item.nodeid in names for item in tests)
    ]


def subjects(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """What must have a daily test, with the tests that concern it.

    A test concerns a public function if its own code or a helper in its file names it, or if its
    identifier carries the name; a plant, a learner or a command if it names it; a row if its
    docstring does. A function that no test names has the tests of what calls it. Nightly tests do
    not count.
    """
    exists = _what_exists()
    named: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("nightly"):
            continue
        for subject in _subjects_of(item):
            named.setdefault(subject, []).append(item)
    concerned = {name: named.get(name, []) for name in sorted(exists)}
    concerned.update({name: tests for name, tests in named.items() if name.startswith("row ")})
    for name in [name for name, tests in concerned.items() if not tests and "." in name]:
        concerned[name] = _tests_of_callers(name, named)
    return concerned


def _is_named(item: pytest.Item, durations: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    if item.nodeid in set(durations["chosen"].values()):
        return True
    # Brackets of a parametrised test are plain characters here.
    patterns = (pattern.replace("[", "[[]") for pattern in settings["always"])
    return any(fnmatch.fnmatchcase(item.nodeid, pattern) for pattern in patterns)


def _cost(item: pytest.Item, durations: Mapping[str, Any], paid: Collection[str]) -> float:
    unpaid = (durations["setups"].get(key, 0.0) for key in setups(item) if key not in paid)
    return duration(item, durations) + sum(unpaid)


@functools.cache
def _what_exists() -> frozenset[str]:
    """Every public function, plant, learner and command of the checkout."""
    from neorl_core.testing import namespaces
    from neorl_envs import environment_names

    names = {
        f"{package}.{name}"
        for package in PACKAGES
        for module in namespaces(importlib.import_module(f"neorl_{package}"))
        if not module.__name__.endswith(".testing")
        for name in module.__all__
        if inspect.isroutine(inspect.unwrap(getattr(module, name)))
    }
    plants = {f"plant {name}" for name in environment_names()}
    learners = {f"learner {name}" for name in _learners()}
    commands = {
        f"neorl-{package} {name}" for package, names in _commands().items() for name in names
    }
    return frozenset(names | plants | learners | commands)


def _tests_of_callers(function: str, named: Mapping[str, list[pytest.Item]]) -> list[pytest.Item]:
    """Tests that name what calls a function, or the nearest caller of its callers that has any."""
    package, _, name = function.partition(".")
    used = _names_used(package)
    seen, callers = {name}, {name}
    while callers:
        callers = {user for user, names in used.items() if names & callers} - seen
        # What is used where a module is loaded, such as by the fields of a class.
        callers = callers or (_beside(package, name) - seen if seen == {name} else set())
        seen |= callers
        # The name of a command has a space, and no package before it.
        keys = [caller if " " in caller else f"{package}.{caller}" for caller in callers]
        tests = [item for key in keys for item in named.get(key, ())]
        if tests:
            return list({item.nodeid: item for item in tests}.values())
    return []


@functools.cache
def _learners() -> dict[str, str]:
    """The class of every learner by its name."""
    from neorl_agents import ALGORITHMS

    return {name: ALGORITHMS[name].__name__ for name in ALGORITHMS}


@functools.cache
def _names_used(package: str) -> dict[str, set[str]]:
    """The names in the code of every function, class and command of a package, by its name."""
    used: dict[str, set[str]] = {}
    commands = importlib.import_module(f"neorl_{package}").__path__[0]
    for module in pkgutil.walk_packages([f"{commands}/_command"], f"neorl_{package}._command."):
        importlib.import_module(module.name)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != f"neorl_{package}":
            continue
        command = f"neorl-{package} {name.rpartition('.')[2].replace('_', '-')}"
        for key, value in vars(module).items():
            key = command if "._command." in name else key
            members = vars(value).values() if isinstance(value, type) else [value]
            for member in members:
                member = getattr(member, "method", member)  # as Equinox keeps those of a module
                member = inspect.unwrap(getattr(member, "__func__", member))
                if isinstance(member, types.FunctionType):
                    used.setdefault(key, set()).update(_in_code(member.__code__)[0])
    return used


def _beside(package: str, function: str) -> set[str]:
    """Names of everything that is defined in the modules that import a function."""
    return {
        key
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == f"neorl_{package}" and function in vars(module)
        for key, value in vars(module).items()
        if getattr(value, "__module__", "") == name
    }


def _commands() -> dict[str, list[str]]:
    """The subcommands of every program, by its package."""
    train, envs, deploy = (
        importlib.import_module(f"neorl_{package}._command.main")
        for package in ("train", "envs", "deploy")
    )
    return {
        "train": list(train.SUBCOMMANDS),
        "envs": list(envs.SUBCOMMANDS),
        "deploy": list(deploy.names()),
    }


def _subjects_of(item: pytest.Item) -> Iterator[str]:
    package = package_of(item.nodeid)
    names, texts = set(), set()
    for function in (item.function, *_fixtures(item)):  # type: ignore[attr-defined]
        used, written = _words(function)
        names |= used
        texts |= written
    identifier = re.findall(r"[\w.-]+", item.nodeid.partition("[")[2])
    # Of `[iql-law]` both the whole and the parts, since names of plants have a dash.
    texts |= {*identifier, *(part for word in identifier for part in word.split("-"))}
    for name in names | {word.rpartition(".")[2] for word in identifier}:
        for home in PACKAGES if package == "workspace" else (package,):
            yield f"{home}.{name}"
    learners = _learners()
    for text in texts:
        if text in learners:
            yield f"agents.{learners[text]}"
        yield f"plant {text}"
        yield f"learner {text}"
        for home in ("envs", "train", "deploy"):
            if package in (home, "workspace"):
                yield f"neorl-{home} {text}"
    for rows in ROW.findall(f"{item.module.__doc__}\n{item.function.__doc__}"):  # type: ignore[attr-defined]
        for row in re.findall(r"[NPSRE]\d\d", rows):
            yield f"row {row}"


def _fixtures(item: pytest.Item) -> Iterator[Any]:
    """The functions of the fixtures that a test needs and that stand beside tests."""
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        if definitions and definitions[-1].baseid:
            yield definitions[-1].func


@functools.cache
def _words(function: types.FunctionType) -> tuple[frozenset[str], frozenset[str]]:
    """Names and texts in the code of a function and of what it calls in its own file."""
    names: set[str] = set()
    texts: set[str] = set()
    seen: set[Any] = set()
    todo: list[Any] = [function]
    while todo:
        value = todo.pop()
        value = getattr(value, "__wrapped__", value)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, types.FunctionType):
            own = value.__globals__
            used, written = _in_code(value.__code__)
            names |= used
            texts |= written
            todo += [
                own[name]
                for name in used
                if isinstance(own.get(name), types.FunctionType | list | tuple | dict)
                and (getattr(own[name], "__module__", own["__name__"]) == own["__name__"])
            ]
        elif isinstance(value, dict):
            todo += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            todo += value
        elif isinstance(value, str):
            texts.add(value)
        elif callable(value):
            names.add(getattr(value, "__name__", ""))
    return frozenset(names), frozenset(texts)


def _in_code(code: types.CodeType) -> tuple[set[str], set[str]]:
    """Names that a code object uses, and the texts in it, those of nested code too."""
    names, texts = {*code.co_names, *code.co_freevars}, set()
    todo: list[Any] = list(code.co_consts)
    while todo:
        constant = todo.pop()
        if isinstance(constant, str):
            texts.update(constant.split())
        elif isinstance(constant, tuple | frozenset):
            todo += constant
        elif isinstance(constant, types.CodeType):
            names.update(constant.co_names)
            todo += constant.co_consts
    return names, texts
