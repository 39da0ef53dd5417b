"""Risks against exact ones, their calibration on fresh episodes, units, bad input."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.critics import (
    SafetyCriticLearner,
    assess_safety_critic,
    fit_safety_critic,
    horizon_curve,
    largest_risk,
    limit_risks,
)
from neorl_agents.critics._log_rows import checked_columns
from neorl_agents.critics._safety_critic_fit import _calibrate
from neorl_agents.testing import sized
from neorl_core import Channel, CostChannel, InputError, Spec, Transition
from neorl_core.control import ConstantPolicy

from . import chain

FEW = sized(
    SafetyCriticLearner(horizon=5, members=2, learning_rate=5e-3, tau=0.05),
    hidden=(32,),
    batch_size=128,
)
UPDATES = 1500
KEY = jax.random.key(0)
OBS = jnp.asarray(chain.flags(np.repeat(np.arange(5), 2)))
ACTION = jnp.asarray(np.tile([0.0, 1.0], 5)[:, None], jnp.float32)


def asked(function, critic):
    """What a critic says of every level and action."""
    return np.asarray(jax.vmap(function, in_axes=(None, 0, 0))(critic, OBS, ACTION))


@pytest.fixture(scope="module")
def fitted():
    """On the log's own behaviour, a fair coin."""
    log = chain.episodes(400, seed=0)
    return fit_safety_critic(log, chain.SPEC, KEY, learner=FEW, updates=UPDATES)


@pytest.mark.parametrize("quantity", ["violation", "cost"])
def test_the_risk_of_a_policy_is_that_of_dynamic_programming(quantity):
    """Rows are truncated or terminated: right only if the one bootstraps, the other not.

    Row N17: a critic that learns from costs gives the risk of a chain that is known exactly.
    """
    always_on = ConstantPolicy(jnp.ones(1))
    learner, log = replace(FEW, quantity=quantity), chain.proportional_rows()
    actual = fit_safety_critic(
        log, chain.SPEC, KEY, learner=learner, updates=UPDATES, policy=always_on
    )
    expected = chain.exact(5, quantity, (0.0, 1.0))
    curves = asked(horizon_curve, actual.critic)[:, 0].reshape(5, 2, 5)
    error = np.abs(curves - expected)
    most, mean = (0.04, 0.015) if quantity == "violation" else (0.08, 0.025)
    assert error.max() < most
    assert error.mean() < mean
    assert not actual.report["calibrated"]


def test_the_risk_of_the_log_is_near_the_exact_one_and_grows_with_the_horizon(fitted):
    expected = chain.exact(5, "violation", (0.5, 0.5))
    curves = asked(horizon_curve, fitted.critic)[:, 0].reshape(5, 2, 5)
    assert (np.diff(curves, axis=-1) >= 0).all()
    assert np.abs(curves - expected).mean() < 0.04
    risks = asked(limit_risks, fitted.critic).reshape(5, 2)
    assert np.abs(risks - expected[..., -1]).max() < 0.1
    np.testing.assert_array_equal(asked(largest_risk, fitted.critic), risks.ravel())


def test_it_is_calibrated_on_fresh_episodes(fitted):
    """Row N17: on fresh episodes its probabilities are right within 0.05."""
    result = assess_safety_critic(
        fitted.critic, chain.episodes(300, seed=9), chain.SPEC, replicates=100
    )["full"]
    error, low, high = result["calibration_error"]
    assert error <= 0.05
    assert low <= high
    # The exact risks reach 0.83 here: more is not to be had.
    assert result["area_under_roc"][0] > 0.8
    assert result["brier_skill"][0] > 0.25
    assert 0.3 < result["rate"] < 0.7


@pytest.mark.nightly
def test_one_that_says_twice_the_odds_is_mapped_to_what_was_counted(fitted):
    bold = replace(fitted.critic, shift=fitted.critic.shift + np.float32(np.log(2)))
    held = checked_columns(chain.episodes(100, seed=8), chain.SPEC, cost=True)
    errors = [
        assess_safety_critic(one, chain.episodes(300, seed=9), chain.SPEC, replicates=2)["full"][
            "calibration_error"
        ][0]
        for one in (bold, _calibrate(bold, held, chain.SPEC, discount=1.0))
    ]
    assert errors[1] < 0.05 < 2 * errors[1] < errors[0]
    assert fitted.critic.calibration.x.shape[1] > 1


@pytest.mark.nightly
def test_units_change_nothing_and_masked_rows_are_inert(fitted):
    log, spec = chain.episodes(400, seed=0), chain.SPEC
    factor, part = np.float32(2.0**-9), np.float32(2.0**7)
    other = Spec(
        tuple(Channel(c.name, "km", 0.0, float(factor)) for c in spec.obs),
        (Channel("pump", "%", 0.0, float(part)),),
        (CostChannel("full", "h", 0.0, "step"),),
        spec.dt,
        spec.horizon,
    )
    converted = log._replace(
        obs=log.obs * factor, next_obs=log.next_obs * factor, action=log.action * part,
        cost=log.cost / 3600,
    )  # fmt: skip
    again = fit_safety_critic(converted, other, KEY, learner=FEW, updates=UPDATES).critic
    for one in (0, 5, 9):
        risk = limit_risks(fitted.critic, OBS[one], ACTION[one])
        converted_risk = limit_risks(again, OBS[one] * factor, ACTION[one] * part)
        np.testing.assert_allclose(converted_risk, risk, rtol=1e-4, atol=1e-5)
    mask = np.arange(len(log.reward)) % 97 != 5
    hidden = log._replace(mask=mask)
    ruined = jax.tree.map(
        lambda x: np.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, np.nan),
        hidden._replace(terminated=None, truncated=None, mask=None),
    )
    ruined = ruined._replace(terminated=log.terminated, truncated=log.truncated, mask=mask)
    first, second = (
        fit_safety_critic(one, spec, KEY, learner=FEW, updates=5).critic for one in (hidden, ruined)
    )
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_unknown_observation_has_no_risk(fitted):
    assert np.isnan(largest_risk(fitted.critic, OBS[0].at[1].set(jnp.nan), jnp.ones(1)))


def rows(count: int, cost, length: int = 10) -> Transition:
    """A log of random rows with these costs."""
    rng = np.random.default_rng(2)
    ends = np.arange(count) % length == length - 1
    obs = rng.uniform(0, 1, (count, 5))
    return Transition(
        obs, rng.uniform(0, 1, (count, 1)), np.zeros(count), cost=cost, next_obs=obs,
        terminated=np.zeros(count, bool), truncated=ends,
    )  # fmt: skip


NEVER = rows(200, np.zeros((200, 1)))
SOME = rows(200, (np.arange(200) % 7 == 3).astype(float)[:, None])
TWO = replace(chain.SPEC, cost=(*chain.SPEC.cost, CostChannel("leak", "1", 0.0, "step")))


@pytest.mark.parametrize(
    ("log", "spec", "learner", "words"),
    [
        (SOME._replace(cost=None), chain.SPEC, FEW, "column cost of the log is missing"),
        (
            SOME._replace(cost=np.zeros((200, 0))),
            replace(chain.SPEC, cost=()),
            FEW,
            "no cost channel.*fit an ensemble",
        ),
        (
            NEVER,
            chain.SPEC,
            FEW,
            r"0 of 20 episodes have a step that counts against full; among episodes like these, 0 "
            r"to 16\.8 % have one \(.*95 %\).*says nothing",
        ),
        (NEVER._replace(cost=np.ones((200, 1))), chain.SPEC, FEW, "every step counts against full"),
        (NEVER, chain.SPEC, replace(FEW, quantity="cost"), "the cost full is 0 in every step"),
        (
            rows(40, SOME.cost[:40], 40),
            chain.SPEC,
            FEW,
            "holds out whole episodes.*the log has 1",
        ),
        (SOME, chain.SPEC, replace(FEW, horizon=11), "contains a complete window of 11 steps"),
        (
            SOME._replace(cost=np.where(np.arange(200)[:, None] == 9, np.nan, SOME.cost)),
            chain.SPEC,
            FEW,
            "column cost of the log must be finite, got nan in row 9",
        ),
        (
            SOME._replace(mask=np.zeros(200, bool)),
            chain.SPEC,
            FEW,
            "all 200 rows of the log are masked",
        ),
    ],
)
def test_a_log_that_cannot_be_used_is_refused(log, spec, learner, words):
    with pytest.raises(InputError, match=words):
        fit_safety_critic(log, spec, KEY, learner=learner, updates=1)


@pytest.mark.parametrize(("field", "value"), [("horizon", 0), ("discount", 0.9)])
def test_a_bad_setting_is_named(field, value):
    with pytest.raises(ValueError, match=f"SafetyCriticLearner.{field} must be"):
        fit_safety_critic(SOME, chain.SPEC, KEY, learner=replace(FEW, **{field: value}))


def test_a_length_and_a_share_that_no_fit_has_are_refused():
    for words, given in (("updates must be", {"updates": 0}), ("share", {"calibration_share": 1})):
        with pytest.raises(ValueError, match=f"fit_safety_critic: .*{words}"):
            fit_safety_critic(SOME, chain.SPEC, KEY, learner=FEW, **given)


def test_a_limit_that_was_never_broken_is_said_to_be_unknown():
    log = SOME._replace(cost=np.concatenate([SOME.cost, np.zeros((200, 1))], axis=1))
    result = fit_safety_critic(log, TWO, KEY, learner=FEW, updates=2).report["limits"]
    assert [limit["learnable"] for limit in result] == [True, False]
    assert "does not show what leads to a violation" in result[1]["claim"]
