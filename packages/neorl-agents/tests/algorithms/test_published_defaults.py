"""Our defaults beside those of the scripts of published results, argument by argument."""

import dataclasses
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


def settings_of(value, where=""):
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if dataclasses.is_dataclass(part):
            yield from settings_of(part, f"{where}{field.name}.")
        else:
            yield where + field.name


@pytest.mark.parametrize("name", LEARNERS)
def test_a_default_is_the_published_one_or_the_table_says_why_not(name):
    """A default of ours that moves fails here, whether it was the published one or another."""
    for argument, theirs, field, *rest in LEARNERS[name]["arguments"]:
        own = [own_default(name, field)] if field else []
        why, *recorded = rest or ["", theirs]
        assert own == recorded, f"{name}: {argument} is {theirs}, {field} {own}, not {recorded}"
        assert not (why and own == [theirs]), f"{name}: {argument} is the same, and has a reason"


@pytest.mark.parametrize("name", LEARNERS)
def test_a_setting_of_ours_is_compared_or_named_as_one_without_an_argument(name):
    compared = {field for _, _, field, *_ in LEARNERS[name]["arguments"]}
    left = set(settings_of(ALGORITHMS[name]())) - compared - set(FACTS["alone"]["every"])
    assert left == set(FACTS["alone"].get(name, ()))


def test_every_table_names_its_source_and_the_code_whose_defaults_were_taken_for_ours_is_here():
    assert {one["source"] for one in LEARNERS.values()} == set(FACTS["sources"])
    assert all(len(source["commit"]) == 40 for source in FACTS["sources"].values())
    assert all(one["file"].endswith(".py") for one in LEARNERS.values())
    assert {*LEARNERS, *FACTS["without"]} == set(ALGORITHMS)
    assert not set(LEARNERS) & set(FACTS["without"])
    # What a check by hand had missed.
    fields = {(name, row[0]) for name, one in LEARNERS.items() for row in one["arguments"]}
    assert {("mobile", "deterministic-backup"), ("cdt", "target_returns")} <= fields
