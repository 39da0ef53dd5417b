"""Public names stand in one namespace and are documented; README and folders name the same."""

import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import neorl_train
from neorl_core.testing import functions_of_arrays, namespaces

NAMESPACES = namespaces(neorl_train)
README = Path(__file__).resolve().parent.parent / "README.md"


@pytest.mark.parametrize("module", NAMESPACES, ids=lambda module: module.__name__)
def test_a_name_is_public_in_one_namespace_and_says_what_it_is(module):
    assert len((module.__doc__ or "").strip().splitlines()) == 1
    assert len(module.__all__) == len(set(module.__all__))
    others = {name for other in NAMESPACES if other is not module for name in other.__all__}
    assert set(module.__all__) & others == set()
    for name in module.__all__:
        entry = getattr(module, name)
        if inspect.isroutine(entry) or inspect.isclass(entry):
            assert entry.__doc__, name
            assert entry.__module__.startswith("neorl_train."), f"{name} is public elsewhere"


@pytest.mark.parametrize("module", NAMESPACES[1:], ids=lambda module: module.__name__)
def test_what_a_namespace_is_made_of_is_private(module):
    leaves = [m.name for m in pkgutil.iter_modules(module.__path__) if not m.ispkg]
    assert leaves
    assert [name for name in leaves if not name.startswith("_")] == []


def test_the_map_of_the_readme_is_the_list_of_namespaces():
    _, _, section = README.read_text().partition("## Namespaces")
    named = re.findall(r"^\| `(\w+)` \|", section.partition("\n## ")[0], flags=re.MULTILINE)
    public = [module.__name__.rpartition(".")[2] for module in NAMESPACES[1:]]
    assert sorted(named) == public


def test_what_takes_arrays_is_a_whole_program_and_no_function_for_the_table_of_arrays():
    """Each runs episodes or a training, and has its own tests of equal results compiled."""
    assert functions_of_arrays(neorl_train) == {
        "assess_on_plant", "evaluate", "paired_starts", "play_episode", "rollouts", "run_epochs",
    }  # fmt: skip
