"""Our defaults beside those of the scripts of published results, argument by argument."""

import tomllib
from operator import attrgetter
from pathlib import Path

import pytest

from neorl_agents import ALGORITHMS

FACTS = tomllib.loads(
    (Path(__file__).parent / "fixtures/published_defaults.toml").read_text(encoding="utf-8")
)
LEARNERS = FACTS["learners"]


def own_default(name, field):
    value = attrgetter(field)(ALGORITHMS[name]())
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", LEARNERS)
def test_a_default_is_the_published_one_or_the_table_says_why_not(name):
    """A default that is changed, and a reason that no longer holds, both fail here."""
    for argument, theirs, field, *why in LEARNERS[name]["arguments"]:
        same = bool(field) and own_default(name, field) == theirs
        assert same or why, f"{name}: {argument} is {theirs}, {field} {own_default(name, field)}"
        assert not (same and why), f"{name}: {argument} is the same, so it needs no reason"


def test_every_table_names_its_source_and_the_code_whose_defaults_were_taken_for_ours_is_here():
    assert {one["source"] for one in LEARNERS.values()} == set(FACTS["sources"])
    assert all(len(source["commit"]) == 40 for source in FACTS["sources"].values())
    assert all(one["file"].endswith(".py") for one in LEARNERS.values())
    assert {*LEARNERS, *FACTS["without"]} == set(ALGORITHMS)
    assert not set(LEARNERS) & set(FACTS["without"])
    # What a check by hand had missed.
    fields = {(name, row[0]) for name, one in LEARNERS.items() for row in one["arguments"]}
    assert {("mobile", "deterministic-backup"), ("cdt", "target_returns")} <= fields
