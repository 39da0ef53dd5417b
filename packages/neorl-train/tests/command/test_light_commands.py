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
from neorl_train._command.main import SUBCOMMANDS, main
from neorl_train._command.subcommands.list import known_names
from neorl_train.configuration import config_type
from neorl_train.runs import create_run


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_help_has_the_options_that_the_command_takes(command):
    """Names, types, defaults and texts of a class that is read, and of the one that is imported."""
    module, name = SUBCOMMANDS[command].place()[0], SUBCOMMANDS[command].options
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


GUEST = """
from neorl_agents import IQL

class MyIQL(IQL):
    \"\"\"Another one.

    Attributes:
        boldness: How bold.
    \"\"\"

    boldness: float = 2.5
"""


def test_a_learner_of_another_distribution_has_a_section_for_which_alone_it_is_imported(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "bold_guest.py").write_text(GUEST)
    info = tmp_path / "bold_guest-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bold-guest\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[neorl.algorithms]\nbold_iql = bold_guest:MyIQL\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    pages = {}
    for words in ([], ["iql"], ["training"]):
        assert main(["run", "--help", *words]) == 0
        pages[tuple(words)] = capsys.readouterr().out
    assert "bold_iql" in pages[()]
    assert "bold" not in pages["iql",]
    assert "bold_guest" not in sys.modules
    assert main(["run", "--help", "bold-iql"]) == 0
    page = capsys.readouterr().out
    assert "Another one." in page
    assert "--algorithms.bold-iql.boldness FLOAT\n" in page
    assert "How bold. (default: 2.5)" in page
    # The defaults are those of a run for the learner that it varies.
    assert "the target critics move. (in (0, 1]; default: 0.02)" in " ".join(page.split())
    assert main(["list"]) == 0
    assert "\n  bold_iql       Another one.\n" in capsys.readouterr().out


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
