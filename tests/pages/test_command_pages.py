"""The command-line reference has every command, and every option that `--help` prints."""

import re

import pytest

import command_pages


@pytest.mark.parametrize("program", ["neorl-train", "neorl-envs", "neorl-deploy"])
def test_every_command_has_its_part(program: str) -> None:
    page = (command_pages.PAGES / f"{program}.md").read_text()
    assert tuple(re.findall(r"(?m)^## (.+)$", page)) == command_pages.programs()[program][1]


@pytest.mark.parametrize("program", ["neorl-train", "neorl-envs", "neorl-deploy"])
def test_the_options_are_those_of_the_commands(program: str) -> None:
    assert command_pages.differing(program) == []


def test_an_option_that_the_page_lacks_is_named(tmp_path, monkeypatch) -> None:
    page = (command_pages.PAGES / "neorl-deploy.md").read_text()
    (tmp_path / "neorl-deploy.md").write_text(page.replace("--self-test", "--selftest"))
    monkeypatch.setattr(command_pages, "PAGES", tmp_path)
    assert "verify" in command_pages.differing("neorl-deploy")
