"""Help and lists are read from source, and say what the imported classes are."""

import importlib
import subprocess
import sys

import pytest

from neorl_agents import ALGORITHMS
from neorl_core.infrastructure.command_line import declared_section, section_of
from neorl_envs import environment_names
from neorl_envs.plants import GRAPH_PLANTS
from neorl_train._command.learner_sections import learner_sections
from neorl_train._command.main import SUBCOMMANDS
from neorl_train._command.subcommands.list import known_names
from neorl_train.configuration import config_type
from neorl_train.runs import create_run


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_help_has_the_options_that_the_command_takes(command):
    """Names, types, defaults and texts of a class that is read, and of the one that is imported."""
    module, options = SUBCOMMANDS[command][:2]
    module, _, name = f"{module}:{options}".rpartition(":")
    module = module.rpartition(":")[2]
    kind = getattr(importlib.import_module(module), name)
    assert section_of(kind) == declared_section(module, name)


def test_the_first_page_names_options_that_exist():
    for command in SUBCOMMANDS.values():
        if command.first:
            assert len(command.first) <= 10
            assert "NAME is one of bc, " in command.help("neorl-train", [])


def test_every_learner_has_the_section_of_its_class():
    """With the defaults of a run, which are not those of the class."""
    default = config_type(ALGORITHMS)().algorithms
    read = {name: make() for name, make in learner_sections().items()}
    assert read == {name: section_of(getattr(default, name)) for name in ALGORITHMS}


def test_the_names_that_are_listed_are_those_of_the_tables():
    known = known_names()
    assert known["environments"] == [*environment_names()]
    assert known["networks"] == [*GRAPH_PLANTS]
    assert [*known["algorithms"]] == [*ALGORITHMS]


LIST = """
import sys
from neorl_train._command.main import main
code = main(sys.argv[1:])
sys.exit(code + 100 * ("jax" in sys.modules))
"""


def test_a_list_and_an_unknown_command_are_answered_without_importing_jax(tmp_path):
    record = {"started": "yesterday", "status": "finished", "algorithms": ["bc"], "seeds": [0]}
    create_run(tmp_path / "runs", "", record)
    command = [sys.executable, "-c", LIST]
    done = subprocess.run(
        [*command, "list", "runs"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "  CSTR-v0\n" in done.stdout
    assert "  bc             Behaviour cloning: " in done.stdout
    assert "  0001  yesterday  finished" in done.stdout
    assert subprocess.run([*command, "rnu"], capture_output=True, check=False).returncode == 2
