"""The safety report: honest about a plant and a log, failing where a constraint is broken."""

import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest

from neorl_core import as_arrays
from neorl_core.control import ConstantPolicy
from neorl_envs import collect_log
from neorl_safety.constraints import Tier, action_constraints, requirement
from neorl_safety.filters import Flag
from neorl_safety.guards import guard
from neorl_train.judging import (
    assess_on_log,
    assess_on_plant,
    episodes_of,
    rollouts,
    rollouts_in_chunks,
)
from neorl_train.judging._safety_findings import FLAG_TEXTS, LOGGED, WITH, WITHOUT
from neorl_train.pages import write_safety_report

STARTS = 24


def near_the_top(parameters, obs, action):
    return obs[0] - parameters


@pytest.fixture(scope="module")
def setting(toy):
    plant = toy.Line(noise=toy.NOISE, peak_limit=2.0)
    return {
        "environment": plant,
        "policy": toy.proportional(0.6, bias=3.0),
        "name": "wild-0",
        "constraints": action_constraints(plant.spec, [0.005], low=[-0.5], high=[0.5]),
        "fallbacks": {"fallback": ConstantPolicy(jnp.zeros(1))},
        "requirements": [
            requirement("top", near_the_top, 1.5, unit="m", tier=Tier.PREFERENCE),
        ],
        "key": jax.random.key(4),
        "n_starts": STARTS,
    }


@pytest.fixture(scope="module")
def assessment(setting):
    return assess_on_plant(**setting)


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The page and the numbers of a report, without its figures."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    def write(assessment):
        page = write_safety_report(assessment, tmp_path)
        return page.read_text(), json.loads(page.with_name("safety.json").read_text())

    return write


def by_name(assessment):
    return {one.name: one for one in assessment.constraints}


def test_with_the_filter_no_constraint_of_the_action_is_broken_and_without_it_some_are(assessment):
    constraints = by_name(assessment)
    for name in ("valve: range", "valve: rate"):
        one = constraints[name]
        assert one.tier == "hard"
        assert one.violations[WITH].steps == 0
        assert one.violations[WITHOUT].episodes == STARTS
        share = one.violations[WITH].episode_fraction
        exact = binomtest(0, STARTS).proportion_ci(0.95, "exact")
        assert (share.value, share.low) == (0.0, 0.0)
        assert share.high == pytest.approx(exact.high, rel=1e-5)
    assert constraints["valve: range"].violations[WITHOUT].largest > 1
    assert constraints["top"].tier == "preference"
    assert constraints["cost load"].tier == "soft"
    assert constraints["cost peak"].tier == "hard"


def test_every_metric_has_its_interval_and_both_columns_the_same_keys(assessment):
    assert list(assessment.metrics) == [WITHOUT, WITH]
    for one in assessment.metrics.values():
        assert one.n_episodes == STARTS
        for share in (one.satisfaction, one.trips, one.success):
            assert 0 <= share.low <= share.value <= share.high <= 1
        for mean in (one.returns, one.length, one.violations_per_episode):
            assert mean.low <= mean.value <= mean.high
        assert one.return_min <= one.returns.value <= one.return_max
        assert one.violations_per_episode.value == pytest.approx(one.violations / STARTS)
        assert one.critical_violations <= one.violations


def test_the_metrics_are_those_of_an_evaluation_of_the_same_episodes(setting, assessment):
    plant, policy = setting["environment"], as_arrays(setting["policy"])
    rows = jax.device_get(rollouts(plant, policy, setting["key"], jnp.arange(STARTS)))
    returns = np.where(rows.mask, rows.reward, 0).sum(axis=1, dtype=np.float64)
    one = assessment.metrics[WITHOUT]
    assert one.returns.value == pytest.approx(returns.mean(), rel=1e-5)
    assert one.return_std == pytest.approx(returns.std(ddof=1), rel=1e-4)
    assert one.length.value == pytest.approx(rows.mask.sum() / STARTS)
    trips = (rows.terminated & ~rows.success & rows.mask).any(axis=1)
    assert one.trips.value == pytest.approx(trips.mean())


def test_one_by_one_gives_the_same_numbers_as_side_by_side(setting, assessment):
    """Row N22: sequential and vmapped evaluation give identical numbers, to the bit."""
    plant, alone = setting["environment"], as_arrays(setting["policy"])
    fallback = setting["fallbacks"]["fallback"]
    returns = []
    for policy in (alone, as_arrays(guard(alone, setting["constraints"], fallback, plant.spec))):
        common = plant, policy, setting["key"]
        (together,) = rollouts_in_chunks(*common, np.arange(STARTS))
        singles = [next(rollouts_in_chunks(*common, np.array([i]))) for i in range(STARTS)]
        joined = jax.tree.map(lambda *columns: np.concatenate(columns), *singles)
        jax.tree.map(np.testing.assert_array_equal, joined, together)
        returns.append(episodes_of(joined, plant.spec).returns)
    one = assessment.metrics[WITHOUT]
    assert (one.return_min, one.return_max) == (returns[0].min(), returns[0].max())
    assert one.return_std == returns[0].std(ddof=1)
    assert not np.array_equal(*returns)


def test_the_report_fails_where_a_constraint_is_deliberately_broken(setting, assessment):
    """Row N36: judged by a tighter box than the guard keeps."""
    assert [one.name for one in assessment.broken] in ([], ["cost peak"])
    tighter = action_constraints(setting["environment"].spec, [0.005], low=[-0.5], high=[0.2])
    judged = assess_on_plant(**{**setting, "judged_by": tighter})
    assert "valve: range" in [one.name for one in judged.broken]
    assert by_name(judged)["valve: range"].violations[WITH].largest == pytest.approx(0.3, abs=1e-3)


def test_beside_a_log_the_headline_speaks_of_actions_only(assessment, written):
    unseen = "This applies only to its actions: a log does not show which costs, states and trips"
    kept = tuple(one for one in assessment.constraints if "cost" not in one.name)
    beside = dataclasses.replace(assessment, simulated=False, constraints=kept)
    page, numbers = written(beside)
    assert "no hard constraint of the action was broken; a log does not show costs" in page
    headline = numbers["sentence"]
    assert "broke no hard constraint of the action in the situations" in headline
    assert f"2 of the {len(kept) - 1} active hard constraints were broken" in headline
    assert f"exact). {unseen} they would have led to." in headline
    on_plant = dataclasses.replace(assessment, constraints=kept)
    page, numbers = written(on_plant)
    assert "no hard constraint was broken" in page
    assert unseen not in numbers["sentence"]
    one = by_name(assessment)["valve: range"]
    one = dataclasses.replace(one, violations={WITH: one.violations[WITHOUT]})
    broken = dataclasses.replace(beside, constraints=(one,))
    page, numbers = written(broken)
    assert "a hard constraint was broken" in page
    assert "broke hard constraints with the filter on: valve: range" in numbers["sentence"]
    assert unseen in numbers["sentence"]


def test_every_decision_of_a_guard_has_words():
    assert set(FLAG_TEXTS) == set(Flag)


def test_interventions_and_their_reasons_are_those_of_the_filter(assessment):
    (one,) = assessment.interventions
    assert one.changed > 0.5
    assert {"high", "rate_up"} & set(one.limits)
    assert one.mean <= one.largest
    flags = {reason.flag: reason for reason in assessment.reasons}
    assert "box_active" in flags or "rate_active" in flags
    assert 0 < assessment.changed <= 1
    (monitor,) = assessment.monitors
    assert monitor.name == "range"
    assert monitor.episodes.high < 1


def test_page_pictures_and_numbers_are_written_and_say_the_same(assessment, tmp_path):
    page = write_safety_report(assessment, tmp_path / "safety").read_text()
    numbers = json.loads((tmp_path / "safety" / "safety.json").read_text())
    assert numbers["sentence"] in page.replace("&#x27;", "'")
    assert numbers["passed"] == (not assessment.broken)
    assert numbers["metrics"].keys() == {WITHOUT, WITH}
    for words in (
        "What is guaranteed, and under which conditions", "state of the plant is not guaranteed",
        "valve: rate", "no other program or person writes", "The worst without the filter",
    ):  # fmt: skip
        assert words in page
    assert page.count("<svg") >= 2
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    pictures = sorted(path.name for path in (tmp_path / "safety").glob("*.png"))
    assert pictures[-1] == "safety.png"
    assert len(pictures) == len(assessment.cases) + 1
    assert all((tmp_path / "safety" / name).stat().st_size > 5000 for name in pictures)


def test_beside_a_log_costs_are_the_logs_alone_and_the_report_says_what_nobody_can(
    setting, toy, tmp_path
):
    plant = setting["environment"]
    log = collect_log(plant, n_steps=16 * plant.horizon, key=jax.random.key(5), spread=0.1)
    shared = {k: setting[k] for k in ("name", "policy", "constraints", "fallbacks")}
    assessment = assess_on_log(log, **shared)
    constraints = by_name(assessment)
    assert constraints["valve: range"].violations[WITH].steps == 0
    assert constraints["valve: range"].violations[WITHOUT].steps > 0
    assert list(constraints["cost load"].violations) == [LOGGED]
    assert list(assessment.metrics) == [LOGGED]
    assert assessment.metrics[LOGGED].success is None
    rows = log.transitions
    expected = float(np.asarray(rows.reward).sum()) / log.n_episodes
    assert assessment.metrics[LOGGED].returns.value == pytest.approx(expected, rel=1e-4)
    page = write_safety_report(assessment, tmp_path / "safety").read_text()
    assert "It cannot show the costs, states, trips or return" in page
    assert "the effects of the proposals were not" in page
