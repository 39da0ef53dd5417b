"""Values outside their range, known only while the program runs: NaN, and never a silent clip.

Where they are known before tracing they are refused; ``refuses`` in the table tests that.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import (
    costs,
    distributions,
    federated,
    graphs,
    linear_systems,
    losses,
    projections,
    replay,
    returns,
    standardiser,
    statistics,
    targets,
)
from neorl_core import off_policy_evaluation as ope

SERIES, FLAGS = jnp.arange(1.0, 6.0), jnp.zeros(5, bool)
EPISODE, LOG = (SERIES, SERIES, FLAGS), (SERIES, SERIES, FLAGS, FLAGS)
ONE = ope.LoggedTrajectories(0 * SERIES, SERIES, None, SERIES, SERIES)
SHORT = jax.tree.map(lambda leaf: leaf[:1], ONE)
MANY = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), ONE)
FIRST_STEPS = jax.tree.map(lambda leaf: leaf[:, :1], MANY)
KEY = jax.random.key(0)
PAIR = jnp.stack([SERIES, SERIES])
ACTIONS = jnp.ones((5, 1))
COUNTS = jnp.asarray([0.0, 1.0, 3.0])
STATE = costs.pid_multiplier_init(jnp.asarray(1.0), delay=1)
SHARES = jnp.full(5, 0.5)
COLUMN = SERIES[:, None]
COLUMNS = (COLUMN, COLUMN[::-1] ** 2, COLUMN + 1, FLAGS, FLAGS)
RING = graphs.pad_graph(COLUMN[:3], [0, 1, 2], [1, 2, 0], node_count=4, edge_count=5)


def limits(function, *args, **options):
    """Of an interval only the limits hang on the level; the estimate stays."""

    def ends(*, level):
        return function(*args, level=level, **options)[1:]

    return ends


def of_magic(trajectories, **options):
    return ope.magic(trajectories, KEY, resamples=20, **options).estimate


def multiplier(**options):
    one = jnp.asarray(1.0)
    gains = {"kp": 1.0, "ki": 1.0, "kd": 1.0, **options}
    return costs.pid_multiplier_step(STATE, one, one, **gains)[1]


def of_levels(*, quantile):
    return losses.quantile_huber_loss(SERIES, SERIES, SHARES.at[2].set(quantile))


CASES = {
    "discounted_returns": (returns.discounted_returns, "discount", (SERIES,), {}),
    "segment_discounted_returns": (returns.segment_discounted_returns, "discount", LOG, {}),
    "n_step_returns": (returns.n_step_returns, "discount", EPISODE, {"n": 2}),
    "segment_n_step_returns": (returns.segment_n_step_returns, "discount", LOG, {"n": 2}),
    "td_lambda_returns": (returns.td_lambda_returns, "discount", EPISODE, {"lam": 0.5}),
    "td_lambda_returns, lam": (returns.td_lambda_returns, "lam", EPISODE, {"discount": 0.5}),
    "segment_td_lambda_returns": (
        returns.segment_td_lambda_returns, "lam", LOG, {"discount": 0.0},
    ),
    "generalised_advantages": (
        returns.generalised_advantages, "discount", (SERIES, *EPISODE), {"lam": 0.0},
    ),
    "segment_generalised_advantages": (
        returns.segment_generalised_advantages, "lam", (SERIES, *LOG), {"discount": 0.5},
    ),
    "td_target": (targets.td_target, "discount", (SERIES, SERIES, ~FLAGS), {}),
    "clipped_double_td_target": (
        targets.clipped_double_td_target, "discount", (SERIES, PAIR, FLAGS), {},
    ),
    "double_td_target": (targets.double_td_target, "discount", (SERIES, PAIR.T, PAIR.T, FLAGS), {}),
    "regularised_td_target": (
        targets.regularised_td_target, "discount", (SERIES, PAIR, ACTIONS, ACTIONS, FLAGS, FLAGS),
        {"weight": 1.0},
    ),
    "discounted_cost_target": (costs.discounted_cost_target, "discount", (SERIES, PAIR, FLAGS), {}),
    "reachability_target": (costs.reachability_target, "discount", (SERIES, SERIES, FLAGS), {}),
    "discounted_cost_limit": (costs.discounted_cost_limit, "discount", (SERIES,), {"horizon": 9}),
    "expectile_loss": (losses.expectile_loss, "expectile", (SERIES, SERIES), {}),
    "polyak": (targets.polyak, "step_size", (SERIES, SERIES**2), {}),
    "pinball_loss": (losses.pinball_loss, "quantile", (SERIES, SERIES), {}),
    "quantile_huber_loss": (of_levels, "quantile", (), {}),
    "tanh_gaussian_log_density": (
        distributions.tanh_gaussian_log_density, "margin", (0 * SERIES, SERIES, SERIES), {},
    ),
    "pid_multiplier_step": (multiplier, "smoothing", (), {}),
    "priority_weights": (replay.priority_weights, "exponent", (SHARES,), {"size": 2}),
    "tis_return": (ope.tis_return, "discount", (ONE,), {}),
    "tis_return of one step": (ope.tis_return, "discount", (SHORT,), {}),
    "pdis_return": (ope.pdis_return, "discount", (SHORT,), {}),
    "doubly_robust_return": (ope.doubly_robust_return, "discount", (SHORT,), {}),
    "wis": (ope.wis, "discount", (FIRST_STEPS,), {}),
    "wpdis": (ope.wpdis, "discount", (FIRST_STEPS,), {}),
    "weighted_doubly_robust": (ope.weighted_doubly_robust, "discount", (FIRST_STEPS,), {}),
    "magic": (of_magic, "discount", (MANY,), {}),
    "magic, level": (of_magic, "level", (MANY,), {"discount": 0.5}),
    "marginalised_return": (ope.marginalised_return, "discount", (SERIES, SERIES), {}),
    "marginalised_doubly_robust": (
        ope.marginalised_doubly_robust, "discount", (SERIES,) * 5 + (~FLAGS,), {},
    ),
    "weighted_quantile": (statistics.weighted_quantile, "probability", (SERIES,), {}),
    "conditional_value_at_risk": (statistics.conditional_value_at_risk, "fraction", (SERIES,), {}),
    "conformal_quantile": (statistics.conformal_quantile, "alpha", (SERIES,), {}),
    "weighted_conformal_quantile": (
        statistics.weighted_conformal_quantile, "alpha", (SERIES, SERIES, 1.0), {},
    ),
    "hcope_lower_bound": (statistics.hcope_lower_bound, "delta", (SERIES,), {"threshold": 1.0}),
    "hcope_threshold": (statistics.hcope_threshold, "delta", (SERIES,), {"size": 9}),
    "student_interval": (limits(statistics.student_interval, SERIES), "level", (), {}),
    "paired_difference_interval": (
        limits(statistics.paired_difference_interval, SERIES, SERIES**2), "level", (), {},
    ),
    "crossed_interval": (limits(statistics.crossed_interval, PAIR), "level", (), {}),
    "bootstrap_interval": (
        limits(statistics.bootstrap_interval, SERIES, KEY, resamples=9), "level", (), {},
    ),
    "bootstrap_interval, percentile": (
        limits(statistics.bootstrap_interval, SERIES, KEY, resamples=9, method="percentile"),
        "level", (), {},
    ),
    "stratified_bootstrap_interval": (
        limits(statistics.stratified_bootstrap_interval, PAIR, KEY, resamples=9), "level", (), {},
    ),
    "hoeffding_interval": (
        limits(statistics.hoeffding_interval, SERIES, low=0.0, high=5.0), "level", (), {},
    ),
    "empirical_bernstein_interval": (
        limits(statistics.empirical_bernstein_interval, SERIES, low=0.0, high=5.0), "level", (), {},
    ),
    "wilson_interval": (
        limits(statistics.wilson_interval, COUNTS, 3 + 0 * COUNTS), "level", (), {},
    ),
    "clopper_pearson_interval": (
        limits(statistics.clopper_pearson_interval, COUNTS, 3 + 0 * COUNTS), "level", (), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_traced_share_outside_its_range_gives_nan(name):
    function, option, args, rest = CASES[name]

    @jax.jit
    def call(fraction):
        return function(*args, **rest, **{option: fraction})

    for outside in (1.5, -0.5, np.nan):
        for leaf in jax.tree.leaves(call(outside)):
            assert np.isnan(leaf).all(), outside
    inside = jax.tree.leaves(call(0.5))
    assert all(np.isfinite(leaf).all() for leaf in inside)


def test_an_integer_share_is_judged_like_any_other():
    sums = jax.jit(lambda discount: returns.discounted_returns(SERIES, discount=discount))
    assert sums(1).tolist() == [15.0, 14.0, 12.0, 9.0, 5.0]
    assert np.isnan(sums(2)).all()


def test_half_open_ranges_leave_out_their_open_end():
    occupancy = functools.partial(ope.marginalised_return, SERIES, SERIES)
    assert np.isnan(jax.jit(lambda discount: occupancy(discount=discount))(1.0))
    tail = functools.partial(statistics.conditional_value_at_risk, SERIES)
    assert np.isnan(jax.jit(lambda fraction: tail(fraction=fraction))(0.0))
    for call, words in (
        (lambda: occupancy(discount=jnp.asarray(1.0)), r"\[0, 1\)"),
        (lambda: tail(fraction=jnp.asarray(0.0)), r"\(0, 1\]"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def state_of_multiplier(*, ki):
    one = jnp.asarray(1.0)
    return costs.pid_multiplier_step(STATE, one, one, kp=0.0, ki=ki, kd=0.0)[0].integral


def mean(updates, **options):
    return federated.private_mean(
        updates, KEY, **{"clip_norm": 1.0, "noise_multiplier": 1.0, **options}
    ).value


def centre(*, radius):
    return federated.centred_clipping({"a": COLUMN, "b": SERIES}, FIRST, radius=radius).value


def identified(**options):
    model = linear_systems.identify_linear(*COLUMNS, **options)
    return model.a, model.b, model.offset, model.residual


def at_an_end(*, weight):
    return targets.regularised_td_target(
        SERIES, PAIR, ACTIONS, 0 * ACTIONS, ~FLAGS, FLAGS, discount=0.5, weight=weight
    )


def scaled(**options):
    return standardiser(SERIES, **{"std": SERIES, "span": SERIES, **options}).scale


def of_clients(*, weight):
    return federated.weighted_mean(SERIES, jnp.ones(5).at[1].set(weight)).value


def convolved(*, weight):
    weights = jnp.full(5, weight).at[3:].set(-1.0)  # Padding may hold anything.
    return graphs.graph_convolution(RING, weights)[:3]


def penalised(*, penalty):
    return costs.penalised_reward(SERIES, PAIR.T, jnp.ones(2).at[1].set(penalty))


def of_masked_rows(**options):
    return losses.gumbel_loss(SERIES, -SERIES, FLAGS.at[0].set(True), **options)


FIRST = {"a": COLUMN[0], "b": SERIES[0]}
POSITIVE = {
    "gumbel_loss": (of_masked_rows, "temperature", (), {}),
    "gumbel_loss, max_exponent": (of_masked_rows, "max_exponent", (), {"temperature": 1.0}),
    "cql_regulariser": (losses.cql_regulariser, "temperature", (SERIES, PAIR.T), {}),
    "cql_regulariser, corrected": (
        losses.cql_regulariser, "temperature", (SERIES, PAIR.T, PAIR.T), {},
    ),
    "advantage_weights": (
        losses.advantage_weights, "max_weight", (SERIES - 3,), {"inverse_temperature": 1.0},
    ),
    "scaled_advantage": (losses.scaled_advantage, "min_std", (SERIES,), {}),
    "huber_loss": (losses.huber_loss, "delta", (SERIES, -SERIES), {}),
    "quantile_huber_loss": (
        losses.quantile_huber_loss, "delta", (SERIES, -SERIES, SHARES), {},
    ),
    "ppo_clipped_loss": (losses.ppo_clipped_loss, "epsilon", (SERIES, SERIES, SERIES - 3), {}),
    "pid_multiplier_step, max_integral": (multiplier, "max_integral", (), {}),
    "pid_multiplier_step, max_multiplier": (multiplier, "max_multiplier", (), {}),
    "priority_weights": (replay.priority_weights, "size", (SHARES,), {"exponent": 0.5}),
    "priority_weights, exponent 0": (replay.priority_weights, "size", (SHARES,), {"exponent": 0.0}),
    "standardiser": (scaled, "epsilon", (), {}),
    "standardiser, span": (scaled, "span", (), {}),
    "hcope_lower_bound": (statistics.hcope_lower_bound, "threshold", (SERIES,), {}),
    "beta_quantile": (statistics.beta_quantile, "a", (SHARES,), {"b": 2 * SHARES}),
    "beta_quantile, b": (statistics.beta_quantile, "b", (SHARES,), {"a": 2 * SHARES}),
    "student_quantile": (statistics.student_quantile, "degrees", (SHARES,), {}),
    "limit_rate": (projections.limit_rate, "dt", (SERIES, SERIES, SERIES), {}),
    "zero_order_hold": (linear_systems.zero_order_hold, "dt", (-jnp.eye(2), jnp.ones((2, 1))), {}),
    "clip_update, short": (federated.clip_update, "clip_norm", (FIRST,), {}),
    "clip_update, long": (federated.clip_update, "clip_norm", (SERIES,), {}),
    "private_mean": (mean, "clip_norm", (PAIR,), {}),
    "private_mean, expected_clients": (mean, "expected_clients", (PAIR,), {}),
    "centred_clipping": (centre, "radius", (), {}),
}  # fmt: skip
OR_ZERO = {
    "advantage_weights": (losses.advantage_weights, "inverse_temperature", (SERIES - 3,), {}),
    "pid_multiplier_step, kp": (multiplier, "kp", (), {}),
    "pid_multiplier_step, ki": (multiplier, "ki", (), {}),
    "pid_multiplier_step, ki in the state": (state_of_multiplier, "ki", (), {}),
    "pid_multiplier_step, kd": (multiplier, "kd", (), {}),
    "standardiser": (scaled, "std", (), {}),
    "limit_rate": (projections.limit_rate, "rate", (SERIES, SERIES), {"dt": 1.0}),
    "regularised_td_target": (at_an_end, "weight", (), {}),
    "td3_bc_policy_loss": (losses.td3_bc_policy_loss, "alpha", (SERIES, ACTIONS, ACTIONS), {}),
    "td3_bc_policy_loss of zeros": (
        losses.td3_bc_policy_loss, "alpha", (0 * SERIES, ACTIONS, ACTIONS), {},
    ),
    "private_mean": (mean, "noise_multiplier", (PAIR,), {}),
    "step_cost_limit": (costs.step_cost_limit, "limit", (), {"horizon": 9}),
    "discounted_cost_limit": (
        costs.discounted_cost_limit, "limit", (), {"horizon": 9, "discount": 0.5},
    ),
    "identify_linear": (identified, "ridge", (), {}),
    "delay_residuals": (linear_systems.delay_residuals, "ridge", COLUMNS, {"longest": 1}),
    "penalised_reward": (penalised, "penalty", (), {}),
    "weighted_mean": (of_clients, "weight", (), {}),
    "graph_convolution": (convolved, "weight", (), {}),
}  # fmt: skip
ARRAYS = {("standardiser", "std"), ("limit_rate", "rate")}
MAY_BE_INFINITE = {("limit_rate", "rate")}
OF_ANY_SHAPE = {
    "pinball_loss", "quantile_huber_loss", "beta_quantile", "beta_quantile, b", "student_quantile",
    *(f"{name} or zero" for name in (
        "standardiser", "limit_rate", "step_cost_limit", "discounted_cost_limit",
        "penalised_reward", "weighted_mean", "graph_convolution",
    )),
}  # fmt: skip
POSITIVE_CASES = {name: (False, case) for name, case in POSITIVE.items()} | {
    f"{name} or zero": (True, case) for name, case in OR_ZERO.items()
}


@pytest.mark.parametrize("name", POSITIVE_CASES)
def test_a_traced_number_outside_its_range_gives_nan(name):
    or_zero, (function, option, args, rest) = POSITIVE_CASES[name]
    kind = (name.removesuffix(" or zero"), option)

    @jax.jit
    def call(number):
        number = jnp.full(5, number) if kind in ARRAYS else number
        return function(*args, **rest, **{option: number})

    outside = [-1.0, np.nan] + [0.0] * (not or_zero) + [np.inf] * (kind not in MAY_BE_INFINITE)
    for number in outside:
        for leaf in jax.tree.leaves(call(number)):
            assert np.isnan(leaf).all(), number
    for number in [1.0] + [0.0] * or_zero:
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(call(number)))


@pytest.mark.parametrize("name", sorted({*CASES, *POSITIVE_CASES} - OF_ANY_SHAPE))
def test_an_array_is_refused_where_one_number_is_to_be_given(name):
    """Broadcast, it would enlarge the result without a word."""
    function, option, args, rest = CASES[name] if name in CASES else POSITIVE_CASES[name][1]
    for shape in ((1,), (4, 1)):
        message = f"{option} must be one number, got shape {shape}; index it, or use jax.vmap"
        with pytest.raises(ValueError, match=f"^{re.escape(message)} for several$"):
            function(*args, **rest, **{option: jnp.full(shape, 0.5)})


def test_a_ratio_that_is_negative_only_while_the_program_runs_gives_nan():
    plain = jax.jit(lambda ratio: ope.marginalised_return(ratio, SERIES, discount=0.5))
    robust = jax.jit(
        lambda ratio: ope.marginalised_doubly_robust(
            SERIES, ratio, *[SERIES] * 3, FLAGS, discount=0.5
        )
    )
    for call in (plain, robust):
        assert np.isfinite(call(SERIES))
        for wrong in (-1.0, np.nan, np.inf):
            assert np.isnan(call(SERIES.at[2].set(wrong)))


def test_ends_that_cross_only_while_the_program_runs_give_nan():
    box = jax.jit(projections.project_box)(
        jnp.zeros(3), jnp.asarray([-1.0, 1.0, 0.0]), jnp.zeros(3)
    )
    assert np.isnan(box).tolist() == [False, True, False]
    clamp = jax.jit(losses.soft_clamp)
    assert np.isnan(clamp(SERIES, 1.0, -1.0)).all()
    assert np.isnan(clamp(SERIES, 1.0, 1.0)).all()
    assert np.isfinite(clamp(SERIES, -1.0, 1.0)).all()


@pytest.mark.parametrize("rank_test", [linear_systems.controllable, linear_systems.observable])
def test_no_pair_passes_a_rank_test_of_negative_tolerance(rank_test):
    seen = jax.jit(lambda tolerance: rank_test(jnp.eye(2), jnp.eye(2), tolerance=tolerance))
    assert [bool(seen(number)) for number in (0.0, -1.0, np.nan, np.inf)] == [True] + [False] * 3


@pytest.mark.parametrize("name", ["huber_loss", "hcope_lower_bound", "zero_order_hold"])
def test_jax_with_debug_nans_says_which_traced_number_was_wrong(name):
    """A NaN makes JAX run the call again uncompiled, where the number is known and refused."""
    function, option, args, rest = POSITIVE[name]
    call = jax.jit(lambda number: function(*args, **rest, **{option: number}))
    with jax.debug_nans(True):
        call(1.0)
        with pytest.raises(ValueError, match=f"^{option} must be finite and positive, got -2.0; "):
            jax.block_until_ready(call(-2.0))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_a_traced_value_keeps_the_dtype_and_the_gradient(dtype):
    """What judges the value neither widens the result nor puts NaN into its slope."""
    data = SERIES.astype(dtype)

    def loss(delta):
        return jnp.sum(losses.huber_loss(data, -data, delta=delta))

    value, slope = jax.jit(jax.value_and_grad(loss))(jnp.asarray(3.0, dtype))
    assert value.dtype == slope.dtype == dtype
    # d(t |d| - t^2 / 2) = |d| - t beyond it, 0 before: |d| is 2, 4, 6, 8, 10.
    assert float(slope) == 16.0
    assert jax.jit(loss)(3.0).dtype == jax.jit(loss)(3).dtype == dtype
