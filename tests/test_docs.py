"""The pages lead somewhere, and what they show runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
READMES = [ROOT / "README.md", *sorted(ROOT.glob("packages/*/README.md"))]
PAGES = sorted((ROOT / "docs/pages").rglob("*.md"))


def links(page: Path) -> list[str]:
    """Targets of the relative links of a page, fragments aside."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)", text)
    return [target for target in targets if "://" not in target]


@pytest.mark.parametrize("page", [*READMES, *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        assert (page.parent / target).exists(), target


def test_every_page_can_be_reached_from_the_first() -> None:
    reached, waiting = set(), [ROOT / "docs/pages/index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            waiting += [(page.parent / target).resolve() for target in links(page)]
    assert {*PAGES} <= reached, {*PAGES} - reached


def test_every_decision_is_listed_and_has_a_heading() -> None:
    folder = ROOT / "docs/pages/decisions"
    listed = {*links(folder / "index.md")}
    assert listed == {page.name for page in folder.glob("*.md")} - {"index.md"}


@pytest.mark.parametrize("page", READMES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_readme_run(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    blocks = re.findall(r"```python\n(.+?)```", text, flags=re.DOTALL)
    assert blocks or "```console" in text, "a README shows how its package is used"
    command = [sys.executable, "-W", "error", "-c", "\n".join(blocks)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
