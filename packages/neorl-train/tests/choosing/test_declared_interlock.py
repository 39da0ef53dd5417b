"""An interlock that ``plant.toml`` declares acts in the plant model as a built-in one does.

The log is one of the batch reactor, whose recipe ends the feed by an interlock, exported as a
historian would write it.
"""

import dataclasses
import datetime as dt

import jax
import numpy as np
import pytest

pytest.importorskip("polars", reason="interlocks of plant.toml need neorl-envs[etl]")

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import RetuneSettings, learned_plants, replayed
from neorl_envs import collect_log, make, write_dataset
from neorl_envs.plant_logs import convert_log, read_plant_log
from neorl_train._command.main import main
from neorl_train._job.plant_model import log_context
from neorl_train.choosing import ChooseOptions, ChosenCandidate, check_plant_model, mark, page

REACTOR = make("ChemicalReactor-v0")
FED = 8
"""Index of the accumulated feed in the observation."""
FEED = "least(greatest(feed, 4000), greatest(30000 - m_acc, 0) / 0.013888888888888888)"
HEAD = """
name = "reactor"
[log]
files = ["log.csv"]
timestamp = "time"
[sampling]
period_s = 50
[episodes]
gap_s = 500
[reward]
expression = "m_P - before_m_P"
unit = "kg"
[[interlock]]
name = "end of the recipe"
when = "m_acc > 27000"
"""


def export(folder, log):
    """Writes a log as CSV, with a gap of 1,000 s between episodes."""
    rows, spec = log.transitions, log.spec
    columns = np.concatenate([np.asarray(rows.obs), np.asarray(rows.action)], axis=1)
    last = np.concatenate([np.asarray(rows.next_obs), np.asarray(rows.action)], axis=1)
    ends = np.asarray(rows.terminated) | np.asarray(rows.truncated)
    names = [channel.name for channel in (*spec.obs, *spec.action)]
    lines, now = [",".join(["time", *names])], dt.datetime(2026, 1, 1)
    for row, following, end in zip(columns, last, ends, strict=True):
        for values in (row, following) if end else (row,):
            # The shortest text of a float32 that reads back as the same number.
            lines.append(",".join([now.isoformat(), *map(str, values)]))
            now += dt.timedelta(seconds=50)
        now += dt.timedelta(seconds=1000 if end else 0)
    (folder / "log.csv").write_text("\n".join(lines) + "\n")


def tables(spec):
    """The tables of the tags."""
    return "".join(
        f'[[tag]]\nname = "{channel.name}"\nrole = "{role}"\nunit = "{channel.unit}"\n'
        f"low = {channel.low}\nhigh = {channel.high}\n"
        for role, channels in (("observation", spec.obs), ("manipulated", spec.action))
        for channel in channels
    )


@pytest.fixture(scope="module")
def log():
    return collect_log(REACTOR, n_steps=3_000, key=jax.random.key(0))


@pytest.fixture(scope="module")
def known(log, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    export(folder, log)
    (folder / "plant.toml").write_text(f'{HEAD}set = {{ feed = "{FEED}" }}\n{tables(REACTOR.spec)}')
    dataset = convert_log(read_plant_log(folder / "plant.toml"), folder=folder)
    write_dataset(folder / "log.h5", dataset)
    return log_context(folder / "log.h5")


@pytest.fixture(scope="module")
def plants(known):
    quick = RetuneSettings(model=HistoryModelSettings(updates=20), evaluation_episodes=6)
    return learned_plants(known.dataset.transitions, known.dataset.spec, 0, known.facts, quick)


def test_the_declared_interlock_is_the_built_in_one(known, log):
    """Bit for bit, on the logged rows and on drawn ones around the end of the recipe."""
    rows, declared = known.dataset.transitions, known.facts.interlock
    np.testing.assert_array_equal(rows.obs, np.asarray(log.transitions.obs))
    np.testing.assert_array_equal(rows.action, np.asarray(log.transitions.action))
    rng = np.random.default_rng(0)
    drawn = np.asarray(rows.obs)[rng.integers(0, len(rows.obs), 4_000)].copy()
    drawn[:, FED] = rng.uniform(25_000, 31_000, len(drawn))
    actions = np.stack([rng.uniform(c.low, c.high, len(drawn)) for c in REACTOR.spec.action], 1)
    for obs, action in ((rows.obs, rows.action), (drawn, actions.astype(np.float32))):
        expected = jax.vmap(REACTOR.interlock)(obs, action)
        np.testing.assert_array_equal(jax.vmap(declared)(obs, action), expected)
    assert np.abs(np.asarray(expected) - actions).max() > 10_000


def test_rollouts_are_those_of_the_built_in_interlock(known, plants):
    """And without an interlock the feed goes on beyond the recipe."""
    policy = REACTOR.tunings()[REACTOR.reference]
    plant = plants.evaluation_plant
    assert plant.interlock == known.facts.interlock
    results = {
        name: replayed(dataclasses.replace(plant, interlock=interlock), policy)
        for name, interlock in (
            ("declared", plant.interlock),
            ("built in", REACTOR.interlock),
            ("none", None),
        )
    }
    for declared, built_in in zip(results["declared"], results["built in"], strict=True):
        np.testing.assert_array_equal(declared, built_in)
    more = np.asarray(results["none"].returns) - np.asarray(results["declared"].returns)
    assert np.abs(more).max() > 100  # kg of polymer


def test_the_model_page_shows_the_interlock(known, plants, tmp_path, monkeypatch):
    learned = "neorl_train.choosing._options.learned_plants"
    # A second fit would show nothing new.
    monkeypatch.setattr(learned, lambda *arguments, **options: plants)
    options = ChooseOptions(updates=20, episodes=6)
    check = check_plant_model(known.dataset, "log.h5", options, known.facts)
    (one,) = check.interlocks
    found = check.checks[-1]
    assert (found.name, found.decides) == ("interlocks", False)
    # The noise of the totaliser makes the last doses of the log differ from the declared ones.
    assert mark(found) == "!"
    assert found.sentence.startswith("the log contradicts end of the recipe in ")
    text = page(ChosenCandidate(None, check))
    assert "The declared interlocks" in text
    assert f"{one['active']} of {one['rows']}" in text
    assert known.notes[-1].startswith("interlock 'end of the recipe' overrides every action")


def test_a_condition_that_always_holds_ends_the_command(known, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    always = [{"name": "always", "when": "m_acc >= 0", "set": {"feed": 0.0}}]
    attributes = {**known.dataset.attributes, "interlocks": always}
    write_dataset(tmp_path / "log.h5", dataclasses.replace(known.dataset, attributes=attributes))
    assert main(["choose", "log.h5"]) == 2
    message = capsys.readouterr().err
    assert "[[interlock]] 'always': its condition holds in all" in message
