"""The build of the site writes every table and every page that is not committed."""

import re
from pathlib import Path

import pytest

import built
import command_pages

MARKS = {
    (match[1], match[2])
    for page in built.sources()
    if page.suffix == ".md"
    for match in built.MARK.finditer(page.read_text(encoding="utf-8"))
}


def test_every_table_has_its_place_on_a_page_and_no_place_is_without_a_table() -> None:
    assert {name for name, _ in MARKS} == set(built.BLOCKS)
    assert not {Path(name) for name in built.PAGES} & {
        built.place(path) for path in built.sources()
    }


@pytest.mark.parametrize("name", built.BLOCKS)
def test_a_table_is_made_from_the_stored_results(name: str) -> None:
    argument = min(argument or "" for marked, argument in MARKS if marked == name)
    mark = f"<!-- built: {name} {argument} -->" if argument else f"<!-- built: {name} -->"
    text = built.filled(f"Before.\n\n{mark}\n\nAfter.\n")
    assert text.startswith("Before.\n\n")
    assert text.endswith("\n\nAfter.\n")
    assert len(text) > 200
    assert "built:" not in text


def test_a_mark_that_no_table_has_is_an_error() -> None:
    with pytest.raises(KeyError, match="no_such_table"):
        built.filled("<!-- built: no_such_table -->\n")


@pytest.mark.parametrize("program", ["neorl-train", "neorl-envs", "neorl-deploy"])
def test_the_page_of_a_program_has_every_command(program: str) -> None:
    page = command_pages.page_of(program)
    assert tuple(re.findall(r"(?m)^## (.+)$", page)) == command_pages.programs()[program][1]


@pytest.mark.nightly
def test_the_pages_are_copied_filled_in(tmp_path: Path) -> None:
    (tmp_path / "old.md").write_text("A page that is gone.\n")
    built.copy_pages(tmp_path)
    wanted = {built.place(path) for path in built.sources()}
    wanted |= {Path(name) for name in built.PAGES}
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")} == wanted
    for path in tmp_path.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert not built.MARK.search(text), path
        in_results = path.is_relative_to(tmp_path / "results")
        assert text.startswith("---\nsearch:\n  exclude: true\n") == in_results, path
        for target in re.findall(r"\]\(([^)#\s]+\.md)[^)]*\)", text):
            assert "://" in target or (path.parent / target).is_file(), (path, target)
