"""Registries: the package's own entries, those of a call, and entry points of distributions.

The distributions are folders with ``dist-info``, as an installer leaves them, on ``sys.path``.
"""

import sys
import textwrap

import pytest

from neorl_core import InputError
from neorl_core.infrastructure import Registry

GROUP = "neorl_test.colours"


class ColourError(InputError):
    """The error of a package that has its own."""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a distribution of one module and its entry points."""

    def install(distribution, points, code="", version="0.3"):
        module = distribution.replace("-", "_")
        folder = tmp_path / distribution
        info = folder / f"{module}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        lines = [f"{name} = {module}:{value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]) + "\n")
        (folder / f"{module}.py").write_text(textwrap.dedent(code))
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, module, raising=False)
        return module

    return install


def only_numbers(name, entry):
    if not isinstance(entry, int):
        raise TypeError(f"a colour is a number, got {entry!r}; give its number")


def colours(check=only_numbers):
    return Registry(GROUP, "colour", {"red": 1, "blue": 2}, check)


def test_its_own_entries_are_a_mapping():
    table = colours()
    assert dict(table) == {"red": 1, "blue": 2}
    assert len(table) == 2
    assert "red" in table
    assert "green" not in table
    assert table.find("blue") == 2
    assert table.origin("red") == ""
    assert repr(table) == "Registry(neorl_test.colours: red, blue)"
    with pytest.raises(KeyError):
        table["green"]


def test_a_registered_entry_is_one_of_them_in_this_table_alone():
    table = colours()
    table.register("green", 3)
    table.register("green", 3)
    assert (list(table), table["green"], table.origin("green")) == (
        ["red", "blue", "green"],
        3,
        "registered",
    )
    assert "green" not in colours()


@pytest.mark.parametrize("taken", ["red", "green"])
def test_another_object_under_a_taken_name_is_refused(taken):
    table = colours()
    table.register("green", 3)
    with pytest.raises(InputError, match=f"the colour '{taken}' exists already; choose another"):
        table.register(taken, 1000)
    assert dict(table) == {"red": 1, "blue": 2, "green": 3}


@pytest.mark.parametrize("name", ["", "light green", "a/b", "a\\b", "a.b", "a:b", "a=b", "a\n", 3])
def test_a_name_that_is_no_word_is_refused(name):
    table = colours()
    with pytest.raises(InputError, match="is not a plain word; leave out spaces"):
        table.register(name, 3)
    assert len(table) == 2


def test_an_entry_that_breaks_the_contract_is_refused():
    table = colours()
    words = r"the colour 'green' \(registered\) cannot be used; a colour is a number, got 'x'; give"
    with pytest.raises(InputError, match=words):
        table.register("green", "x")
    assert "green" not in table


def test_an_unknown_name_is_refused_with_the_nearest():
    table = colours()
    for ask in (table.find, table.origin):
        with pytest.raises(InputError, match="unknown colour 'bleu'; did you mean 'blue'"):
            ask("bleu")
    with pytest.raises(ColourError, match=r"known: red, blue$"):
        table.find("mauve", ColourError)
    with pytest.raises(InputError, match=r"a class of your own needs an entry point in .*colours$"):
        table.find("paints:Mauve")


def test_an_entry_point_is_listed_at_once_and_imported_when_it_is_used(install):
    module = install("more-colours", {"violet": "VIOLET", "green": "GREEN"}, "VIOLET, GREEN = 4, 3")
    table = colours()
    assert list(table) == ["red", "blue", "green", "violet"]
    assert (len(table), "violet" in table, table.origin("violet")) == (4, True, "more-colours 0.3")
    assert module not in sys.modules
    assert (table.find("violet"), table["green"]) == (4, 3)
    assert module in sys.modules
    # Importing moves nothing.
    assert list(table) == ["red", "blue", "green", "violet"]


def test_the_name_of_an_entry_point_is_taken(install):
    install("more-colours", {"green": "GREEN"}, "GREEN = 3")
    table = colours()
    for _ in range(2):  # Before it is imported, and after.
        with pytest.raises(InputError, match="'green' exists already"):
            table.register("green", 5)
        assert table["green"] == 3


def test_what_was_registered_before_a_distribution_came_stays(install):
    table = colours()
    table.register("green", 5)
    install("more-colours", {"green": "GREEN"}, "GREEN = 3")
    assert (table["green"], table.origin("green")) == (5, "registered")
    assert list(table) == ["red", "blue", "green"]


def test_a_distribution_cannot_replace_an_entry_of_the_package(install):
    module = install("other-colours", {"red": "RED"}, "RED = 100")
    table = colours()
    assert (table["red"], table.origin("red"), list(table)) == (1, "", ["red", "blue"])
    assert module not in sys.modules


def test_a_name_of_two_distributions_is_refused_when_it_is_used(install):
    install("some-colours", {"green": "GREEN"}, "GREEN = 3")
    install("more-colours", {"green": "GREEN"}, "GREEN = 4")
    table = colours()
    assert list(table) == ["red", "blue", "green"]
    words = "more-colours 0.3 and some-colours 0.3 both provide the colour 'green'; uninstall one"
    with pytest.raises(ColourError, match=words):
        table.find("green", ColourError)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named"),
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("VIOLET = 4", "AttributeError"),
        ("def", "SyntaxError"),
    ],
)
def test_a_broken_distribution_is_named_and_harms_nobody_else(install, code, problem):
    install("more-colours", {"green": "GREEN"}, code)
    table = colours()
    assert "green" in table
    assert table["red"] == 1
    words = "the colour 'green' of more-colours 0.3 cannot be imported from more_colours:GREEN"
    with pytest.raises(ColourError, match=words) as caught:
        table.find("green", ColourError)
    assert problem in str(caught.value)
    assert str(caught.value).endswith("; update or remove that distribution")
    assert caught.value.__cause__ is not None


def test_an_entry_point_that_breaks_the_contract_is_refused_every_time(install):
    install("more-colours", {"green": "GREEN"}, "GREEN = 'x'")
    table = colours()
    words = r"the colour 'green' \(more-colours 0.3\) cannot be used; a colour is a number, got 'x'"
    for _ in range(2):
        with pytest.raises(ColourError, match=words):
            table.find("green", ColourError)
    assert colours(check=None).find("green") == "x"
