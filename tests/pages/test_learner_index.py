"""The table of learners on their index says what the code needs and what was measured."""

import json
import re
from pathlib import Path

import pytest

import documentation
from learner_numbers import with_times
from neorl_agents import ALGORITHMS
from neorl_agents.sampling import Rows

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/pages/learners/index.md"
STORED = ROOT / "tools/studies/benchmarks/results/learner_times.json"
TIMES = json.loads(STORED.read_text())["learners"]
ON_PLANT = {"sac", "td3", "dqn", "ppo", "ppo_lag", "reinforce", "reinforce_lag"}


def test_the_index_and_the_menu_have_every_learner_in_one_of_four_groups() -> None:
    """The tree of questions has a leaf for each of them."""
    text = PAGE.read_text()
    groups = documentation.groups_of_learners(text)
    leaves = re.findall(r"(?m)^ +- \*(?:Yes|No)\b.+?\]\(#([\w-]+)\)", text)
    assert sorted(leaves) == sorted(title.lower().replace(" ", "-") for title in groups)
    assert len(groups) == 4
    pages = [page for group in groups.values() for page in group]
    others = {"index.md", "memory.md", "graphs.md"}
    assert sorted(pages) == sorted({page.name for page in PAGE.parent.glob("*.md")} - others)
    (menu,) = (
        entry["Learners"]
        for entry in documentation.navigation(PAGE.parents[1])
        if "Learners" in entry
    )
    shown = {title: of for entry in menu[1:] for title, of in entry.items()}
    assert menu[0] == "learners/index.md"
    for title, group in groups.items():
        assert [path for entry in shown[title] for path in entry.values()] == [
            f"learners/{page}" for page in group
        ]


def needs() -> dict[str, str]:
    """What a learner needs, by its name, from the table."""
    rows = re.findall(r"(?m)^\| (`[^|]+) \| \[[^|]+ \|[^|]+\| ([^|]+) \|[^|]*\|$", PAGE.read_text())
    return {name: need for names, need in rows for name in re.findall(r"`(\w+)`", names)}


def needed(name: str) -> str:
    """From the class of a learner."""
    kind = ALGORITHMS[name]
    if name in ON_PLANT:
        return "a simulated plant with cost limits" if kind.keeps_limits else "a simulated plant"
    # Returns to go of CalQL come from whole episodes too, but pieces of them do.
    parts = ["costs"] * kind.keeps_limits
    parts += ["whole episodes"] * (type(kind().sampler) is not Rows and name != "cal_ql")
    return f"{' and '.join(parts)} in the log" if parts else "a log"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_index_says_what_a_learner_needs(name: str) -> None:
    assert needs()[name] == needed(name)


def test_the_times_of_the_index_are_current() -> None:
    text = PAGE.read_text()
    assert text == with_times(text), "learner_numbers.py of the studies writes them anew"
    assert set(TIMES) == set(ALGORITHMS)
