import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, Spec
from neorl_core.control import ConstantPolicy
from neorl_envs import make, read_dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_train import evaluate_offline, verdict
from neorl_train._job.evaluation import write_results
from neorl_train.candidates import Candidate, Pool
from neorl_train.judging import action_fits, line_warnings, read_evaluation

SPEC = Spec(
    obs=(Channel("x", "m", -9.0, 9.0),),
    action=(Channel("u", "%", -9.0, 9.0),),
    cost=(),
    dt=1.0,
    horizon=40,
)


@pytest.fixture(scope="module")
def log(toy):
    """Episodes of different lengths under a proportional controller."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 40, 30)
    n = int(lengths.sum())
    obs = rng.normal(size=(n, 1)).astype(np.float32)
    return dataset_from_columns(
        SPEC,
        obs=obs,
        action=-0.5 * obs,
        reward=rng.normal(size=n),
        next_obs=obs,
        terminated=np.isin(np.arange(n), np.cumsum(lengths) - 1),
        truncated=np.zeros(n, bool),
    )


def test_shadow_actions_are_compared_channel_by_channel(toy, log):
    policies = {
        "same-0": toy.proportional(0.5),
        "off-0": toy.proportional(0.5, bias=0.25),
        "mean-0": ConstantPolicy(jnp.asarray(log.transitions.action.mean(axis=0))),
    }
    same, off, mean = action_fits(policies, log, level=0.95)
    assert (same.channel, same.unit, same.n_rows) == ("u", "%", log.n_rows)
    assert same.difference.high == pytest.approx(0, abs=1e-6)
    assert same.explained == pytest.approx(1)
    assert off.difference.value == pytest.approx(0.25, rel=1e-5)
    assert off.explained == pytest.approx(1 - 0.25**2 / off.deviation**2, rel=1e-4)
    assert mean.explained == pytest.approx(0, abs=1e-6)
    assert same.deviation == pytest.approx(float(log.transitions.action.std()), rel=1e-5)


def test_only_what_is_surely_worse_than_a_straight_line_is_called_so(toy, log):
    rng = np.random.default_rng(1)
    gains = {
        ("better", "learner", 0): 0.5,
        ("worse", "learner", 0): 0.2,
        ("worse", "learner", 1): 0.1,
        # Controllers were not trained, and a retuned one is meant to act otherwise.
        ("pid", "fitted", 0): 0.2,
        ("retuned", "retuned", 0): 0.1,
        ("residual", "residual", 0): 0.1,
    }
    pool = Pool(
        tuple(
            Candidate(name, family, toy.proportional(gain), (seed,))
            for (name, family, seed), gain in gains.items()
        )
    )
    controllers = {
        "linear feedback": toy.proportional(0.6),
        "mean action": ConstantPolicy(jnp.zeros(1)),
        "pid": toy.proportional(0.2),
    }
    noise = rng.normal(scale=2.0, size=log.transitions.action.shape).astype(np.float32)
    noisy = dataclasses.replace(log, transitions=log.transitions._replace(action=noise))
    assert line_warnings(action_fits(pool, noisy, level=0.95, controllers=controllers)) == []
    fits = action_fits(pool, log, level=0.95, controllers=controllers)
    assert line_warnings(fits, "retuned-0") == []
    (warning,) = line_warnings(fits, "better-0")
    assert [warning] == line_warnings(fits)
    assert warning.startswith("worse-0 is worse than a straight line: ")
    assert "% of u" in warning


def test_without_a_simulator_there_is_the_log_and_no_verdict(log, toy, tmp_path):
    result = evaluate_offline(
        {"iql-0": toy.proportional(0.3)},
        dataset=log,
        held_out=log,
        training=log.transitions,
        candidate="iql-0",
    )
    (row,) = result.tables.rows
    assert (row.name, row.role, row.n_episodes) == ("log", "log", 30)
    assert row.returns.value == pytest.approx(log.episode_returns().mean())
    assert result.score is None
    assert [fit.policy for fit in result.imitation] == ["mean action", "linear feedback", "iql-0"]
    linear = result.imitation[1]
    assert linear.explained == pytest.approx(1), "the log is linear"
    assert linear.beyond_line is None
    worse = result.imitation[2]
    away = 0.2 * np.abs(log.transitions.obs[:, 0])  # the line has a gain of 0.5, the policy 0.3
    by_episode = [part.mean() for part in np.split(away, log.episode_starts[1:])]
    assert worse.beyond_line.value == pytest.approx(np.mean(by_episode), rel=1e-4)
    assert worse.worse_than_line
    judged = verdict(result.tables)
    assert judged.answer == "cannot tell"
    assert "no simulator" in judged.reason
    assert "name a simulator with --evaluation.environment NAME, or, for an" in judged.sentence
    assert "today's controller with --retuning.controller pid_imitation" in judged.sentence
    write_results(tmp_path, result, judged)
    assert read_evaluation(tmp_path).imitation == result.imitation
    with pytest.raises(ValueError, match="candidate 'x' is not among"):
        evaluate_offline({}, dataset=log, held_out=log, training=log.transitions, candidate="x")
    with pytest.raises(ValueError, match="at least two episodes"):
        evaluate_offline(
            {"a-0": toy.proportional(0.3)},
            dataset=log.select_episodes(np.array([0])),
            held_out=log,
            training=log.transitions,
            candidate="a-0",
        )


def test_a_log_of_a_known_plant_names_its_simulator(toy):
    spec, rows = make("CSTR-v0").spec, 4
    log = dataset_from_columns(
        spec,
        obs=np.full((rows, spec.n_obs), 0.5),
        action=np.full((rows, spec.n_action), 300.0),
        reward=np.zeros(rows),
        cost=np.zeros((rows, spec.n_cost)),
        next_obs=np.full((rows, spec.n_obs), 0.5),
        terminated=np.zeros(rows, bool),
        truncated=np.arange(rows) % 2 == 1,
        attributes={"provenance": {"environment": "CSTR-v0"}},
    )
    policy = {"iql-0": ConstantPolicy(jnp.full(spec.n_action, 300.0))}
    result = evaluate_offline(policy, dataset=log, held_out=log, training=log.transitions)
    assert "with --evaluation.environment CSTR-v0, or" in verdict(result.tables).sentence


@pytest.mark.parametrize(
    ("name", "episodes", "mean_return", "low", "high"),
    [("DMSD", 1000, 494.45, 30.60, 849.51), ("Simglucose", 280, None, 9.75, 475.0)],
)
def test_third_party_logs_are_scored_by_their_own_formula(
    name, episodes, mean_return, low, high, shared_data
):
    train = read_dataset(shared_data("neorl2", f"{name}-high-100000-train.npz"))
    held_out = read_dataset(shared_data("neorl2", f"{name}-high-20000-val.npz"))
    policy = ConstantPolicy(jnp.zeros(train.spec.n_action))
    result = evaluate_offline(
        {"zero-0": policy},
        dataset=train,
        held_out=held_out,
        training=train.transitions,
        candidate="zero-0",
    )
    (row,) = result.tables.rows
    assert row.n_episodes == episodes
    if mean_return:
        assert row.returns.value == pytest.approx(mean_return, abs=0.01)
    assert result.score.benchmark == f"NeoRL-2 {name}"
    assert result.score.log.value == pytest.approx(100 * (row.returns.value - low) / (high - low))
    assert result.source.attribution.startswith("NeoRL-2")
    by_name = {(fit.policy, fit.channel): fit.explained for fit in result.imitation}
    assert len(by_name) == 3 * train.spec.n_action
    for channel in train.spec.action:
        assert by_name["linear feedback", channel.name] > by_name["mean action", channel.name]
    assert verdict(result.tables).answer == "cannot tell"


@pytest.mark.parametrize(
    ("expression", "unit", "shown"),
    [
        ("-abs(x - 1) - 0.1 * abs(u)", "m", "m · rows"),
        ("3 * x", "$", "$"),
        ("x - before_x", "m", "m"),
        ("-abs(xx)", "m", "m"),
        ("-abs(x)", "", "reward"),
    ],
)
def test_a_return_of_levels_is_a_sum_over_rows(log, expression, unit, shown):
    attributes = {**log.attributes, "reward": {"expression": expression, "unit": unit}}
    declared = dataclasses.replace(log, attributes=attributes)
    rows = {"held_out": declared, "training": declared.transitions}
    assert evaluate_offline({}, dataset=declared, **rows).tables.reward_unit == shown
