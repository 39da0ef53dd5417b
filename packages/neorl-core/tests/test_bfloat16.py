"""Every function of floats in bfloat16: the dtype that came, near the value in float64.

The rows are so many that a sum carried in bfloat16 stops growing: at 256 ones.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neorl_core as core

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
    return core.pad_graph(d["ones"][:, None], senders, receivers, node_count=1003, edge_count=1200)


def edges(d):
    return jnp.pad(d["series"], (0, 200))


def trajectories(d):
    return core.LoggedTrajectories(
        d["table"] / 8, d["table"], jnp.ones((8, 3), bool), d["table"], d["table"]
    )


def one_step(d):
    return jax.tree.map(lambda leaf: leaf[0], trajectories(d))


SERIES = {
    "discounted_returns": lambda d: core.discounted_returns(d["ones"], discount=0.99),
    "segment_discounted_returns": lambda d: core.segment_discounted_returns(
        d["series"], d["ones"], ENDS, NO_END, discount=0.99
    ),
    "n_step_returns": lambda d: core.n_step_returns(
        d["ones"], d["series"], NO_END, n=300, discount=0.999
    ),
    "segment_n_step_returns": lambda d: core.segment_n_step_returns(
        d["series"], d["ones"], ENDS, NO_END, n=300, discount=0.999
    ),
    "td_lambda_returns": lambda d: core.td_lambda_returns(
        d["ones"], d["series"], NO_END, discount=0.99, decay=0.99
    ),
    "segment_td_lambda_returns": lambda d: core.segment_td_lambda_returns(
        d["series"], d["ones"], ENDS, NO_END, discount=0.99, decay=0.95
    ),
    "generalised_advantages": lambda d: core.generalised_advantages(
        d["ones"], d["series"], d["ones"], NO_END, discount=0.99, decay=0.95
    ),
    "segment_generalised_advantages": lambda d: core.segment_generalised_advantages(
        d["ones"], d["series"], d["ones"], ENDS, NO_END, discount=0.99, decay=0.95
    ),
    "masked_mean": lambda d: core.masked_mean(d["series"], ~ENDS),
}
GRAPHS = {
    "in_degrees": lambda d: core.in_degrees(graph(d, ALL, HUB)),
    "graph_convolution": lambda d: core.graph_convolution(graph(d, ALL, HUB)),
    "edge_softmax": lambda d: core.edge_softmax(edges(d), graph(d, ALL, HUB)),
    "pool_edges": lambda d: [
        core.pool_edges(edges(d), graph(d, ALL, HUB), reduction=word)
        for word in ("sum", "mean", "max")
    ],
    "pool_nodes": lambda d: [
        core.pool_nodes(graph(d, [], []), reduction=word) for word in ("sum", "mean", "max")
    ],
}
STATISTICS = {
    "student_interval": lambda d: core.student_interval(d["series"]),
    "student_quantile": lambda d: core.student_quantile(d["shares"], 5 + d["shares"]),
    "beta_quantile": lambda d: core.beta_quantile(d["shares"], 5 + d["shares"], 2 + d["shares"]),
    "crossed_interval": lambda d: core.crossed_interval(d["cells"]),
    "paired_t_test": lambda d: core.paired_t_test(d["pairs"], 0.9 * d["least"]),
    "wilcoxon_test": lambda d: core.wilcoxon_test(d["pairs"], d["least"] - 0.25),
    "wilcoxon_test, exact": lambda d: core.wilcoxon_test(d["few"], d["other"]),
    "sign_flip_test": lambda d: core.sign_flip_test(d["few"], d["other"] - 1, KEY),
    "rank_correlation": lambda d: core.rank_correlation(d["series"], d["series"] ** 2),
    "midranks": lambda d: core.midranks(d["few"]),
    "regret_at_k": lambda d: core.regret_at_k(d["few"], d["other"], k=2),
    "wilson_interval": lambda d: core.wilson_interval(100 * d["small"], 100 * d["ones"][:8]),
    "normalised_score": lambda d: core.normalised_score(d["few"], low=0.0, high=3.0),
    "holm": lambda d: core.holm(d["small"]),
}
LOSSES = {
    "squared_loss": lambda d: core.squared_loss(d["few"], d["other"]),
    "huber_loss": lambda d: core.huber_loss(d["few"], d["other"], threshold=1.0),
    "pinball_loss": lambda d: core.pinball_loss(d["few"], d["other"], level=0.75),
    "expectile_loss": lambda d: core.expectile_loss(d["few"], d["other"], expectile=0.75),
    "quantile_huber_loss": lambda d: core.quantile_huber_loss(d["few"], d["other"], d["small"]),
    "gaussian_nll": lambda d: core.gaussian_nll(d["few"], d["other"], d["small"]),
    "gumbel_loss": lambda d: core.gumbel_loss(d["few"], d["other"], temperature=2.0),
    "td_target": lambda d: core.td_target(d["few"], d["other"], ENDS[:8], discount=0.5),
    "penalised_reward": lambda d: core.penalised_reward(d["few"], d["table"], d["few"][:3] ** 2),
    "project_box": lambda d: core.project_box(d["few"], -d["small"], d["small"]),
    "limit_rate": lambda d: core.limit_rate(d["few"], d["other"], d["small"], dt=0.5),
    "clip_update": lambda d: core.clip_update(d["series"], limit=2.0),
    "weighted_mean": lambda d: core.weighted_mean(d["table"], d["small"]).value,
    "trimmed_mean": lambda d: core.trimmed_mean(d["table"], faulty=1).value,
    "gossip_step": lambda d: core.gossip_step(d["table"], np.full((8, 8), 0.125)).value,
}
DISTRIBUTIONS = {
    "diagonal_gaussian_log_density": lambda d: core.diagonal_gaussian_log_density(
        d["table"], d["shares"], d["shares"]
    ),
    "diagonal_gaussian_entropy": lambda d: core.diagonal_gaussian_entropy(d["table"]),
    "diagonal_gaussian_kl": lambda d: core.diagonal_gaussian_kl(
        d["table"], d["shares"], d["shares"], d["table"]
    ),
    "tanh_gaussian_log_density": lambda d: core.tanh_gaussian_log_density(
        d["shares"], d["table"], d["shares"]
    ),
    "categorical_entropy": lambda d: core.categorical_entropy(d["table"]),
    "categorical_kl": lambda d: core.categorical_kl(d["table"], d["shares"]),
    "tis_return": lambda d: core.tis_return(one_step(d), discount=0.9),
    "pdis_return": lambda d: core.pdis_return(one_step(d), discount=0.9),
    "effective_sample_size": lambda d: core.effective_sample_size(d["small"]),
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
    returns = core.discounted_returns(ones["ones"], discount=0.99)
    np.testing.assert_allclose(float(returns[0]), (1 - 0.99**LONG) / 0.01, rtol=1 / 256)
    assert core.pool_nodes(graph(ones, [], []), reduction="mean").tolist() == [1.0]
    star = core.graph_convolution(graph(ones, ALL[1:], HUB[1:]))[0, 0]
    # Each leaf has degree one, the hub a thousand: 999 / sqrt(1000) + 1 / 1000.
    np.testing.assert_allclose(float(star), 999 / LONG**0.5 + 1e-3, rtol=1 / 128)


def test_moments_count_in_float32_and_refuse_less():
    ones = jnp.ones((LONG, 2), jnp.bfloat16)
    moments = core.sample_moments(ones)
    assert {leaf.dtype for leaf in moments} == {jnp.dtype("float32")}
    assert moments.count.tolist() == [LONG, LONG]
    more = core.update_moments(moments, ones[0])
    assert more.count.tolist() == [LONG + 1, LONG + 1]
    short = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), moments)
    for call in (
        lambda: core.update_moments(short, ones[0]),
        lambda: core.merge_moments(moments, short),
        lambda: core.merge_moments(short, moments),
        lambda: core.empty_moments((2,), jnp.bfloat16),
    ):
        with pytest.raises(ValueError, match="got bfloat16, which cannot count beyond 256"):
            call()


def log(dtype):
    columns = (jnp.ones((3, 2), dtype), jnp.ones((3, 1), dtype), jnp.ones((3, 2), dtype))
    return *columns, *jnp.zeros((2, 3), bool)


LINEAR_ALGEBRA = {
    "zero_order_hold": lambda one: core.zero_order_hold(one, one, dt=0.1),
    "discrete_riccati": lambda one: core.discrete_riccati(one, one, one, one),
    "lq_regulator": lambda one: core.lq_regulator(one, one, one, one),
    "finite_horizon_regulator": lambda one: core.finite_horizon_regulator(
        one, one, one, one, one, horizon=2
    ),
    "kalman_filter": lambda one: core.kalman_filter(one, one, one, one),
    "discrete_lyapunov": lambda one: core.discrete_lyapunov(one, one),
    "spectral_radius": core.spectral_radius,
    "controllability_matrix": lambda one: core.controllability_matrix(one, one),
    "controllable": lambda one: core.controllable(one, one),
    "observable": lambda one: core.observable(one, one),
    "mixing_rate": core.mixing_rate,
    "identify_linear": lambda one: core.identify_linear(*log(one.dtype)),
    "delay_residuals": lambda one: core.delay_residuals(*log(one.dtype), longest=1),
}


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("name", LINEAR_ALGEBRA)
def test_linear_algebra_is_refused_in_one_line(name, dtype):
    words = rf"float32 or float64, got {dtype.__name__}; cast with \w+\.astype\(jnp\.float32\)$"
    with pytest.raises(ValueError, match=words):
        LINEAR_ALGEBRA[name](jnp.eye(2, dtype=dtype))


def test_hyperparameters_leave_the_dtype_of_the_array():
    short, wide = jnp.arange(3, dtype=jnp.bfloat16), np.float64(0.5)
    assert core.optimality_gap(short, target=jnp.float32(1)).dtype == jnp.bfloat16
    assert core.scaled_advantage(short, epsilon=jnp.float32(1e-6)).dtype == jnp.bfloat16
    with jax.enable_x64(True):
        single = jnp.arange(3, dtype=jnp.float32)
        assert core.optimality_gap(single, target=wide).dtype == jnp.float32
        assert core.scaled_advantage(single, epsilon=wide).dtype == jnp.float32
        assert core.advantage_weights(single, temperature=wide, ceiling=wide).dtype == jnp.float32
        np.testing.assert_allclose(core.optimality_gap(single, target=wide), 1 / 6, rtol=1e-6)
