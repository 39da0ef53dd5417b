"""Every function of floats in bfloat16: the dtype that came, near the value in float64.

The rows are so many that a sum carried in bfloat16 stops growing: at 256 ones.
"""

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
    off_policy_evaluation,
    projections,
    returns,
    statistics,
    targets,
)

KEY = jax.random.key(0)
LONG = 1000
ENDS = np.arange(LONG) % 400 == 399
NO_END = np.zeros(LONG, bool)
HUB = np.zeros(LONG, np.int32)
ALL = np.arange(LONG, dtype=np.int32)
# Compiling is what costs here, not running.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def _data(dtype):
    """The same numbers, all exact in bfloat16."""

    def make(shape, low, high):
        values = np.random.default_rng(7).uniform(low, high, shape)
        return jnp.asarray(values, jnp.bfloat16).astype(dtype)

    return {
        "ones": jnp.ones(LONG, dtype),
        "few": make((8,), -2, 2),
        "other": make((8,), -2, 2)[::-1],
        "small": make((8,), 0.1, 0.9),
        "table": make((8, 3), -2, 2),
        "shares": make((8, 3), 0.1, 0.9),
        "series": make((LONG,), 0.5, 1.5),
        "pairs": make((200,), -1, 2),
        "least": make((200,), -1, 2)[::-1],
        "cells": make((40, 30), 0, 1),
    }


def graph(d, senders, receivers):
    return graphs.pad_graph(
        d["ones"][:, None], senders, receivers, node_count=1003, edge_count=1200
    )


def edges(d):
    return jnp.pad(d["series"], (0, 200))


def trajectories(d):
    return off_policy_evaluation.LoggedTrajectories(
        d["table"] / 8, d["table"], jnp.ones((8, 3), bool), d["table"], d["table"]
    )


def one_step(d):
    return jax.tree.map(lambda leaf: leaf[0], trajectories(d))


SERIES = {
    "discounted_returns": lambda d: returns.discounted_returns(d["ones"], discount=0.99),
    "segment_discounted_returns": lambda d: returns.segment_discounted_returns(
        d["series"], d["ones"], ENDS, NO_END, discount=0.99
    ),
    "n_step_returns": lambda d: returns.n_step_returns(
        d["ones"], d["series"], NO_END, n=300, discount=0.999
    ),
    "segment_n_step_returns": lambda d: returns.segment_n_step_returns(
        d["series"], d["ones"], ENDS, NO_END, n=300, discount=0.999
    ),
    "td_lambda_returns": lambda d: returns.td_lambda_returns(
        d["ones"], d["series"], NO_END, discount=0.99, lam=0.99
    ),
    "segment_td_lambda_returns": lambda d: returns.segment_td_lambda_returns(
        d["series"], d["ones"], ENDS, NO_END, discount=0.99, lam=0.95
    ),
    "generalised_advantages": lambda d: returns.generalised_advantages(
        d["ones"], d["series"], d["ones"], NO_END, discount=0.99, lam=0.95
    ),
    "segment_generalised_advantages": lambda d: returns.segment_generalised_advantages(
        d["ones"], d["series"], d["ones"], ENDS, NO_END, discount=0.99, lam=0.95
    ),
    "masked_mean": lambda d: losses.masked_mean(d["series"], ~ENDS),
}
GRAPHS = {
    "in_degrees": lambda d: graphs.in_degrees(graph(d, ALL, HUB)),
    "graph_convolution": lambda d: graphs.graph_convolution(graph(d, ALL, HUB)),
    "edge_softmax": lambda d: graphs.edge_softmax(edges(d), graph(d, ALL, HUB)),
    "pool_edges": lambda d: [
        graphs.pool_edges(edges(d), graph(d, ALL, HUB), reduction=word)
        for word in ("sum", "mean", "max")
    ],
    "pool_nodes": lambda d: [
        graphs.pool_nodes(graph(d, [], []), reduction=word) for word in ("sum", "mean", "max")
    ],
}
STATISTICS = {
    "student_interval": lambda d: statistics.student_interval(d["series"]),
    "student_quantile": lambda d: statistics.student_quantile(d["shares"], 5 + d["shares"]),
    "beta_quantile": lambda d: statistics.beta_quantile(
        d["shares"], 5 + d["shares"], 2 + d["shares"]
    ),
    "crossed_interval": lambda d: statistics.crossed_interval(d["cells"]),
    "paired_t_test": lambda d: statistics.paired_t_test(d["pairs"], 0.9 * d["least"]),
    "wilcoxon_test": lambda d: statistics.wilcoxon_test(d["pairs"], d["least"] - 0.25),
    "wilcoxon_test, exact": lambda d: statistics.wilcoxon_test(d["few"], d["other"]),
    "sign_flip_test": lambda d: statistics.sign_flip_test(d["few"], d["other"] - 1, KEY),
    "rank_correlation": lambda d: statistics.rank_correlation(d["series"], d["series"] ** 2),
    "midranks": lambda d: statistics.midranks(d["few"]),
    "regret_at_k": lambda d: statistics.regret_at_k(d["few"], d["other"], k=2),
    "wilson_interval": lambda d: statistics.wilson_interval(100 * d["small"], 100 * d["ones"][:8]),
    "normalised_score": lambda d: statistics.normalised_score(d["few"], low=0.0, high=3.0),
    "holm": lambda d: statistics.holm(d["small"]),
}
LOSSES = {
    "squared_loss": lambda d: losses.squared_loss(d["few"], d["other"]),
    "huber_loss": lambda d: losses.huber_loss(d["few"], d["other"], delta=1.0),
    "pinball_loss": lambda d: losses.pinball_loss(d["few"], d["other"], quantile=0.75),
    "expectile_loss": lambda d: losses.expectile_loss(d["few"], d["other"], expectile=0.75),
    "quantile_huber_loss": lambda d: losses.quantile_huber_loss(d["few"], d["other"], d["small"]),
    "gaussian_nll": lambda d: losses.gaussian_nll(d["other"], d["small"], d["few"]),
    "gumbel_loss": lambda d: losses.gumbel_loss(d["few"], d["other"], temperature=2.0),
    "td_target": lambda d: targets.td_target(d["few"], d["other"], ENDS[:8], discount=0.5),
    "penalised_reward": lambda d: costs.penalised_reward(d["few"], d["table"], d["few"][:3] ** 2),
    "project_box": lambda d: projections.project_box(d["few"], -d["small"], d["small"]),
    "limit_rate": lambda d: projections.limit_rate(d["few"], d["other"], d["small"], dt=0.5),
    "clip_update": lambda d: federated.clip_update(d["series"], clip_norm=2.0),
    "weighted_mean": lambda d: federated.weighted_mean(d["table"], d["small"]).value,
    "trimmed_mean": lambda d: federated.trimmed_mean(d["table"], num_byzantine=1).value,
    "gossip_step": lambda d: federated.gossip_step(d["table"], np.full((8, 8), 0.125)).value,
}
DISTRIBUTIONS = {
    "diagonal_gaussian_log_density": lambda d: distributions.diagonal_gaussian_log_density(
        d["table"], d["shares"], d["shares"]
    ),
    "diagonal_gaussian_entropy": lambda d: distributions.diagonal_gaussian_entropy(d["table"]),
    "diagonal_gaussian_kl": lambda d: distributions.diagonal_gaussian_kl(
        d["table"], d["shares"], d["shares"], d["table"]
    ),
    "tanh_gaussian_log_density": lambda d: distributions.tanh_gaussian_log_density(
        d["shares"], d["table"], d["shares"]
    ),
    "categorical_entropy": lambda d: distributions.categorical_entropy(d["table"]),
    "categorical_kl": lambda d: distributions.categorical_kl(d["table"], d["shares"]),
    "tis_return": lambda d: off_policy_evaluation.tis_return(one_step(d), discount=0.9),
    "pdis_return": lambda d: off_policy_evaluation.pdis_return(one_step(d), discount=0.9),
    "effective_sample_size": lambda d: off_policy_evaluation.effective_sample_size(d["small"]),
}
CASES = SERIES | GRAPHS | STATISTICS | LOSSES | DISTRIBUTIONS


def _run(dtype):
    """All calls as one program, since compiling is what costs; what fails fails in its own test."""
    failures = {}

    def program(data):
        results = {}
        for name, call in CASES.items():
            try:
                results[name] = call(data)
            except Exception as error:
                failures[name] = error
        return results

    return jax.jit(program, compiler_options=QUICK)(_data(dtype)) | failures


@pytest.fixture(scope="module")
def results():
    short = _run(jnp.bfloat16)
    with jax.enable_x64(True):
        return short, jax.tree.map(np.asarray, _run(jnp.float64))


@pytest.mark.parametrize("name", CASES)
def test_the_dtype_stays_and_the_value_is_near(name, results):
    short, wide = (part[name] for part in results)
    for failure in (short, wide):
        if isinstance(failure, Exception):
            raise failure
    for got, want in zip(jax.tree.leaves(short), jax.tree.leaves(wide), strict=True):
        if not jnp.issubdtype(got.dtype, jnp.floating):
            continue
        assert got.dtype == jnp.bfloat16
        scale = max(1.0, np.abs(want).max(initial=0))
        np.testing.assert_allclose(np.asarray(got, np.float64), want, atol=scale / 32)


def test_ones_are_summed_beyond_256():
    """By hand, not by the same program in another dtype."""
    ones = {"ones": jnp.ones(LONG, jnp.bfloat16)}
    sums = returns.discounted_returns(ones["ones"], discount=0.99)
    np.testing.assert_allclose(float(sums[0]), (1 - 0.99**LONG) / 0.01, rtol=1 / 256)
    assert graphs.pool_nodes(graph(ones, [], []), reduction="mean").tolist() == [1.0]
    star = graphs.graph_convolution(graph(ones, ALL[1:], HUB[1:]))[0, 0]
    # Each leaf has degree one, the hub a thousand: 999 / sqrt(1000) + 1 / 1000.
    np.testing.assert_allclose(float(star), 999 / LONG**0.5 + 1e-3, rtol=1 / 128)


def test_moments_count_in_float32_and_refuse_less():
    ones = jnp.ones((LONG, 2), jnp.bfloat16)
    moments = statistics.sample_moments(ones)
    assert {leaf.dtype for leaf in moments} == {jnp.dtype("float32")}
    assert moments.count.tolist() == [LONG, LONG]
    more = statistics.update_moments(moments, ones[0])
    assert more.count.tolist() == [LONG + 1, LONG + 1]
    short = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), moments)
    for call in (
        lambda: statistics.update_moments(short, ones[0]),
        lambda: statistics.merge_moments(moments, short),
        lambda: statistics.merge_moments(short, moments),
        lambda: statistics.empty_moments((2,), jnp.bfloat16),
    ):
        with pytest.raises(ValueError, match="got bfloat16, which cannot count beyond 256"):
            call()


def log(dtype):
    columns = (jnp.ones((3, 2), dtype), jnp.ones((3, 1), dtype), jnp.ones((3, 2), dtype))
    return *columns, *jnp.zeros((2, 3), bool)


LINEAR_ALGEBRA = {
    "zero_order_hold": lambda one: linear_systems.zero_order_hold(one, one, dt=0.1),
    "discrete_riccati": lambda one: linear_systems.discrete_riccati(one, one, one, one),
    "lq_regulator": lambda one: linear_systems.lq_regulator(one, one, one, one),
    "finite_horizon_regulator": lambda one: linear_systems.finite_horizon_regulator(
        one, one, one, one, one, horizon=2
    ),
    "kalman_filter": lambda one: linear_systems.kalman_filter(one, one, one, one),
    "discrete_lyapunov": lambda one: linear_systems.discrete_lyapunov(one, one),
    "spectral_radius": linear_systems.spectral_radius,
    "controllability_matrix": lambda one: linear_systems.controllability_matrix(one, one),
    "controllable": lambda one: linear_systems.controllable(one, one),
    "observable": lambda one: linear_systems.observable(one, one),
    "mixing_rate": federated.mixing_rate,
    "identify_linear": lambda one: linear_systems.identify_linear(*log(one.dtype)),
    "delay_residuals": lambda one: linear_systems.delay_residuals(*log(one.dtype), longest=1),
}


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("name", LINEAR_ALGEBRA)
def test_linear_algebra_is_refused_in_one_line(name, dtype):
    words = rf"float32 or float64, got {dtype.__name__}; cast with \w+\.astype\(jnp\.float32\)$"
    with pytest.raises(ValueError, match=words):
        LINEAR_ALGEBRA[name](jnp.eye(2, dtype=dtype))


def test_hyperparameters_leave_the_dtype_of_the_array():
    short, wide = jnp.arange(3, dtype=jnp.bfloat16), np.float64(0.5)
    assert statistics.optimality_gap(short, target=jnp.float32(1)).dtype == jnp.bfloat16
    assert losses.scaled_advantage(short, min_std=jnp.float32(1e-6)).dtype == jnp.bfloat16
    with jax.enable_x64(True):
        single = jnp.arange(3, dtype=jnp.float32)
        assert statistics.optimality_gap(single, target=wide).dtype == jnp.float32
        assert losses.scaled_advantage(single, min_std=wide).dtype == jnp.float32
        assert (
            losses.advantage_weights(single, inverse_temperature=wide, max_weight=wide).dtype
            == jnp.float32
        )
        np.testing.assert_allclose(statistics.optimality_gap(single, target=wide), 1 / 6, rtol=1e-6)
