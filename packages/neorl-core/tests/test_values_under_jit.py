"""Shares outside their range, known only while the program runs: NaN, and never a silent clip.

Where they are known before tracing they are refused; ``refuses`` in the table tests that.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neorl_core as core

SERIES, FLAGS = jnp.arange(1.0, 6.0), jnp.zeros(5, bool)
EPISODE, LOG = (SERIES, SERIES, FLAGS), (SERIES, SERIES, FLAGS, FLAGS)
ONE = core.LoggedTrajectories(0 * SERIES, SERIES, None, SERIES, SERIES)
SHORT = jax.tree.map(lambda leaf: leaf[:1], ONE)
MANY = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), ONE)
FIRST_STEPS = jax.tree.map(lambda leaf: leaf[:, :1], MANY)
KEY = jax.random.key(0)
PAIR = jnp.stack([SERIES, SERIES])
ACTIONS = jnp.ones((5, 1))
COUNTS = jnp.asarray([0.0, 1.0, 3.0])
STATE = core.pid_multiplier_init(jnp.asarray(1.0), delay=1)
SHARES = jnp.full(5, 0.5)


def limits(function, *args, **options):
    """Of an interval only the limits hang on the level; the estimate stays."""

    def ends(*, level):
        return function(*args, level=level, **options)[1:]

    return ends


def of_magic(trajectories, **options):
    return core.magic(trajectories, KEY, resamples=20, **options).estimate


def multiplier(**options):
    one = jnp.asarray(1.0)
    return core.pid_multiplier_step(STATE, one, one, kp=1.0, ki=1.0, kd=1.0, **options)[1]


def of_levels(*, level):
    return core.quantile_huber_loss(SERIES, SERIES, SHARES.at[2].set(level))


CASES = {
    "discounted_returns": (core.discounted_returns, "discount", (SERIES,), {}),
    "segment_discounted_returns": (core.segment_discounted_returns, "discount", LOG, {}),
    "n_step_returns": (core.n_step_returns, "discount", EPISODE, {"n": 2}),
    "segment_n_step_returns": (core.segment_n_step_returns, "discount", LOG, {"n": 2}),
    "td_lambda_returns": (core.td_lambda_returns, "discount", EPISODE, {"decay": 0.5}),
    "td_lambda_returns, decay": (core.td_lambda_returns, "decay", EPISODE, {"discount": 0.5}),
    "segment_td_lambda_returns": (core.segment_td_lambda_returns, "decay", LOG, {"discount": 0.0}),
    "generalised_advantages": (
        core.generalised_advantages, "discount", (SERIES, *EPISODE), {"decay": 0.0},
    ),
    "segment_generalised_advantages": (
        core.segment_generalised_advantages, "decay", (SERIES, *LOG), {"discount": 0.5},
    ),
    "td_target": (core.td_target, "discount", (SERIES, SERIES, ~FLAGS), {}),
    "clipped_double_td_target": (
        core.clipped_double_td_target, "discount", (SERIES, PAIR, FLAGS), {},
    ),
    "double_td_target": (core.double_td_target, "discount", (SERIES, PAIR.T, PAIR.T, FLAGS), {}),
    "regularised_td_target": (
        core.regularised_td_target, "discount", (SERIES, PAIR, ACTIONS, ACTIONS, FLAGS, FLAGS),
        {"weight": 1.0},
    ),
    "discounted_cost_target": (core.discounted_cost_target, "discount", (SERIES, PAIR, FLAGS), {}),
    "reachability_target": (core.reachability_target, "discount", (SERIES, SERIES, FLAGS), {}),
    "discounted_cost_limit": (core.discounted_cost_limit, "discount", (SERIES,), {"horizon": 9}),
    "expectile_loss": (core.expectile_loss, "expectile", (SERIES, SERIES), {}),
    "pinball_loss": (core.pinball_loss, "level", (SERIES, SERIES), {}),
    "quantile_huber_loss": (of_levels, "level", (), {}),
    "tanh_gaussian_log_density": (
        core.tanh_gaussian_log_density, "margin", (0 * SERIES, SERIES, SERIES), {},
    ),
    "polyak": (core.polyak, "rate", (SERIES, SERIES), {}),
    "pid_multiplier_step": (multiplier, "smoothing", (), {}),
    "priority_weights": (core.priority_weights, "exponent", (SHARES,), {"size": 2}),
    "tis_return": (core.tis_return, "discount", (ONE,), {}),
    "tis_return of one step": (core.tis_return, "discount", (SHORT,), {}),
    "pdis_return": (core.pdis_return, "discount", (SHORT,), {}),
    "doubly_robust_return": (core.doubly_robust_return, "discount", (SHORT,), {}),
    "wis": (core.wis, "discount", (FIRST_STEPS,), {}),
    "wpdis": (core.wpdis, "discount", (FIRST_STEPS,), {}),
    "weighted_doubly_robust": (core.weighted_doubly_robust, "discount", (FIRST_STEPS,), {}),
    "magic": (of_magic, "discount", (MANY,), {}),
    "magic, level": (of_magic, "level", (MANY,), {"discount": 0.5}),
    "marginalised_return": (core.marginalised_return, "discount", (SERIES, SERIES), {}),
    "marginalised_doubly_robust": (
        core.marginalised_doubly_robust, "discount", (SERIES,) * 5 + (~FLAGS,), {},
    ),
    "weighted_quantile": (core.weighted_quantile, "probability", (SERIES,), {}),
    "conditional_value_at_risk": (core.conditional_value_at_risk, "share", (SERIES,), {}),
    "conformal_quantile": (core.conformal_quantile, "alpha", (SERIES,), {}),
    "weighted_conformal_quantile": (
        core.weighted_conformal_quantile, "alpha", (SERIES, SERIES, 1.0), {},
    ),
    "hcope_lower_bound": (core.hcope_lower_bound, "delta", (SERIES,), {"threshold": 1.0}),
    "hcope_threshold": (core.hcope_threshold, "delta", (SERIES,), {"size": 9}),
    "student_interval": (limits(core.student_interval, SERIES), "level", (), {}),
    "paired_difference_interval": (
        limits(core.paired_difference_interval, SERIES, SERIES**2), "level", (), {},
    ),
    "crossed_interval": (limits(core.crossed_interval, PAIR), "level", (), {}),
    "bootstrap_interval": (
        limits(core.bootstrap_interval, SERIES, KEY, resamples=9), "level", (), {},
    ),
    "bootstrap_interval, percentile": (
        limits(core.bootstrap_interval, SERIES, KEY, resamples=9, method="percentile"),
        "level", (), {},
    ),
    "stratified_bootstrap_interval": (
        limits(core.stratified_bootstrap_interval, PAIR, KEY, resamples=9), "level", (), {},
    ),
    "hoeffding_interval": (
        limits(core.hoeffding_interval, SERIES, low=0.0, high=5.0), "level", (), {},
    ),
    "empirical_bernstein_interval": (
        limits(core.empirical_bernstein_interval, SERIES, low=0.0, high=5.0), "level", (), {},
    ),
    "wilson_interval": (limits(core.wilson_interval, COUNTS, 3 + 0 * COUNTS), "level", (), {}),
    "clopper_pearson_interval": (
        limits(core.clopper_pearson_interval, COUNTS, 3 + 0 * COUNTS), "level", (), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_traced_share_outside_its_range_gives_nan(name):
    function, option, args, rest = CASES[name]

    @jax.jit
    def call(share):
        return function(*args, **rest, **{option: share})

    for outside in (1.5, -0.5, np.nan):
        for leaf in jax.tree.leaves(call(outside)):
            assert np.isnan(leaf).all(), outside
    inside = jax.tree.leaves(call(0.5))
    assert all(np.isfinite(leaf).all() for leaf in inside)


def test_an_integer_share_is_judged_like_any_other():
    returns = jax.jit(lambda discount: core.discounted_returns(SERIES, discount=discount))
    assert returns(1).tolist() == [15.0, 14.0, 12.0, 9.0, 5.0]
    assert np.isnan(returns(2)).all()


def test_half_open_ranges_leave_out_their_open_end():
    occupancy = functools.partial(core.marginalised_return, SERIES, SERIES)
    assert np.isnan(jax.jit(lambda discount: occupancy(discount=discount))(1.0))
    tail = functools.partial(core.conditional_value_at_risk, SERIES)
    assert np.isnan(jax.jit(lambda share: tail(share=share))(0.0))
    for call, words in (
        (lambda: occupancy(discount=jnp.asarray(1.0)), r"\[0, 1\)"),
        (lambda: tail(share=jnp.asarray(0.0)), r"\(0, 1\]"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
