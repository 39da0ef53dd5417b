import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import linalg

from neorl_core.linear_systems import (
    ArxModel,
    LinearModel,
    identify_arx,
    identify_linear,
    identify_subspace,
)
from neorl_core.testing import ROWS as DRAWS
from neorl_core.testing import Refusal, Row, assert_close, mapped, seeds

FLOATS = ("float32", "float64")


def random_log(seed):
    """Three noisy logs of two episodes each, cut at random."""
    rng = np.random.default_rng(seed)
    columns = [rng.normal(size=(DRAWS, 24, n)).astype(np.float32) for n in (2, 2, 2)]
    ends = np.zeros((2, DRAWS, 24), bool)
    for row in range(DRAWS):
        ends[rng.integers(2), row, rng.integers(6, 18)] = True
    return (*columns, *ends)


def rows_inside(terminated, truncated, before):
    inside, start = [], 0
    for row in range(len(terminated)):
        if row and (terminated[row - 1] or truncated[row - 1]):
            start = row
        if row - before >= start:
            inside.append(row)
    return np.asarray(inside)


def model_by_rows(obs, action, next_obs, terminated, truncated, *, delay, before=None):
    before = max(delay) if before is None else before
    kept = rows_inside(terminated, truncated, before)
    design = np.asarray(
        [np.r_[obs[t], [action[t - d, i] for i, d in enumerate(delay)], 1.0] for t in kept]
    )
    fit, *_ = np.linalg.lstsq(design, next_obs[kept], rcond=None)
    left = np.sqrt(np.mean((next_obs[kept] - design @ fit) ** 2, axis=0))
    return LinearModel(
        fit[:2].T,
        fit[2:4].T,
        fit[4],
        left,
        np.asarray(5, np.int32),
        np.asarray(len(kept), np.int32),
    )


def follows_the_units(obs, action, next_obs, terminated, truncated, *, delay):
    ends = terminated, truncated
    plain = mapped(identify_linear, obs, action, next_obs, *ends, delay=delay)
    moved = mapped(identify_linear, 4 * obs + 3, 0.5 * action, 4 * next_obs + 3, *ends, delay=delay)
    assert_close(moved.a, plain.a, rtol=1e-3, atol=1e-4)
    assert_close(moved.b, 8 * np.asarray(plain.b), rtol=1e-3, atol=1e-4)
    assert_close(moved.residual, 4 * np.asarray(plain.residual), rtol=1e-3, atol=1e-4)


def arx_by_rows(obs, action, next_obs, terminated, truncated, *, output_lags, input_lags, delay):
    before = max(output_lags - 1, max(delay) + input_lags - 1)
    kept = rows_inside(terminated, truncated, before)
    design = []
    for t in kept:
        outputs = [obs[t - lag] for lag in range(output_lags)]
        inputs = [action[t - d - lag, i] for lag in range(input_lags) for i, d in enumerate(delay)]
        design.append(np.r_[(*outputs, np.asarray(inputs), 1.0)])
    fit, *_ = np.linalg.lstsq(np.asarray(design), next_obs[kept], rcond=None)
    left = np.sqrt(np.mean((next_obs[kept] - np.asarray(design) @ fit) ** 2, axis=0))
    split = 2 * output_lags
    return ArxModel(
        np.stack([fit[2 * lag : 2 * lag + 2].T for lag in range(output_lags)]),
        np.stack([fit[split + 2 * lag : split + 2 * lag + 2].T for lag in range(input_lags)]),
        fit[-1],
        left,
        np.asarray(len(fit), np.int32),
        np.asarray(len(kept), np.int32),
    )


def one_lag_of_each_is_the_linear_model(*log, output_lags, input_lags, delay):
    linear = mapped(identify_linear, *log, delay=delay)
    arx = mapped(identify_arx, *log, output_lags=1, input_lags=1, delay=delay)
    assert_close(arx.a[:, 0], linear.a, rtol=1e-4, atol=1e-5)
    assert_close(arx.b[:, 0], linear.b, rtol=1e-4, atol=1e-5)


def responses(model):
    """What does not depend on the coordinates of the state."""
    powers = [model.d, model.c @ model.b, model.c @ model.a @ model.b]
    steady = jnp.linalg.solve(jnp.eye(2, dtype=model.a.dtype) - model.a, model.state_offset)
    return (
        jnp.stack(powers),
        model.output_offset + model.c @ steady,
        model.singular_values,
        model.rank,
        model.windows,
    )


def identified_responses(obs, action, terminated, truncated, *, order: int, horizon: int):
    return responses(
        identify_subspace(obs, action, terminated, truncated, order=order, horizon=horizon)
    )


def noisy_log(seed):
    """Three logs of two episodes of a plant of two states with noise, in units of its own."""
    rng = np.random.default_rng(seed)
    a, b = np.asarray([[0.8, 0.3], [-0.3, 0.6]]), np.asarray([[1.0], [-0.5]])
    c, d = np.asarray([[1.0, 0.0], [0.5, 1.0]]), np.asarray([[0.0], [0.3]])
    u = rng.normal(size=(DRAWS, 80, 1))
    y = np.zeros((DRAWS, 80, 2))
    ends = np.zeros((2, DRAWS, 80), bool)
    for row in range(DRAWS):
        ends[rng.integers(2), row, rng.integers(20, 60)] = True
        x = rng.normal(size=2)
        for t in range(80):
            y[row, t] = c @ x + d @ u[row, t] + 0.05 * rng.normal(size=2)
            x = a @ x + b @ u[row, t] + 0.1
            if ends[:, row, t].any():
                x = rng.normal(size=2)
    return (20 * y + 300).astype(np.float32), (0.1 * u + 2).astype(np.float32), *ends


def subspace_by_projections(obs, action, terminated, truncated, *, order, horizon):
    """Projections of the data themselves, by pseudo-inverses; B and D from all rows at once."""
    starts = [
        t
        for t in range(len(obs) - 2 * horizon + 1)
        if not (terminated | truncated)[t : t + 2 * horizon - 1].any()
    ]
    now = np.asarray(starts) + horizon
    y_mean, y_scale = obs[now].mean(axis=0), obs[now].std(axis=0)
    u_mean, u_scale = action[now].mean(axis=0), action[now].std(axis=0)
    y, u = (obs - y_mean) / y_scale, (action - u_mean) / u_scale

    def hankel(data, low, high):
        return np.vstack([data[np.asarray(starts) + k].T for k in range(low, high)])

    past = np.vstack([hankel(u, 0, horizon), hankel(y, 0, horizon)])
    ones = np.ones((1, len(starts)))
    inputs = np.vstack([ones, hankel(u, horizon, 2 * horizon)])
    outputs = hankel(y, horizon, 2 * horizon)
    away = np.eye(len(starts)) - np.linalg.pinv(inputs) @ inputs
    free = past @ away
    explained = outputs @ away @ np.linalg.pinv(free) @ free
    left, values, _ = np.linalg.svd(explained, full_matrices=True)
    a, c = np.linalg.pinv(left[:-2, :order]) @ left[2:, :order], left[:2, :order]
    seen = np.vstack([c @ np.linalg.matrix_power(a, k) for k in range(horizon)])
    unseen = linalg.null_space(seen.T)
    response = unseen.T @ outputs @ np.linalg.pinv(inputs)
    width = u.shape[1]

    def answer(parameters):
        """The response of inputs and a constant for given B, D and offsets, by simulation."""
        b, d = parameters[: order * width].reshape(order, width), parameters[order * width :]
        d = d.reshape(2, width)
        blocks = [
            np.vstack([
                np.zeros((2 * k, width)), d,
                *[c @ np.linalg.matrix_power(a, j) @ b for j in range(horizon - k - 1)],
            ])
            for k in range(horizon)
        ]  # fmt: skip
        return unseen.T @ np.hstack(blocks)

    count = (order + 2) * width
    basis = np.stack([answer(row).ravel() for row in np.eye(count)], axis=1)
    result = np.linalg.lstsq(basis, response[:, 1:].ravel(), rcond=None)[0]
    b, d = result[: order * width].reshape(order, width), result[order * width :].reshape(2, width)
    # A constant in the outputs alone: shifting the state takes up any other.
    constant = unseen.T @ np.vstack([np.eye(2)] * horizon)
    level = np.linalg.lstsq(constant, response[:, 0], rcond=None)[0]
    c, d, b = y_scale[:, None] * c, y_scale[:, None] * d / u_scale, b / u_scale
    steady = np.linalg.solve(np.eye(order) - a, -b @ u_mean)
    rest = y_mean + y_scale * level - d @ u_mean + c @ steady
    return (
        np.stack([d, c @ b, c @ a @ b]),
        rest,
        values / np.sqrt(len(starts)),
        np.asarray(1 + horizon * width, np.int32),
        np.asarray(len(starts), np.int32),
    )


def units_of_inputs_change_the_gains(obs, action, terminated, truncated, *, order, horizon):
    options = {"order": order, "horizon": horizon}
    plain = mapped(identified_responses, obs, action, terminated, truncated, **options)
    small = mapped(identified_responses, obs, action / 64, terminated, truncated, **options)
    assert_close(small[0], 64 * plain[0], rtol=1e-3, atol=1e-4)


LOG = seeds().map(random_log)
# Few logs: each costs its simulation and large projections.
NOISY = st.integers(0, 4).map(noisy_log)
SHORT = jnp.ones((3, 2)), jnp.ones((3, 2)), jnp.ones((3, 2)), *jnp.zeros((2, 3), bool)
LAGS = {"output_lags": 2, "input_lags": 2, "delay": (0, 1)}
HALF = {"order": 2, "horizon": 3}
FLAT = jnp.ones((20, 2)), jnp.ones((20, 1)), *jnp.zeros((2, 20), bool)


def log_refusals(**options):
    obs, action, next_obs, *ends = SHORT
    return [
        Refusal("one shape", (obs, action, next_obs[:, :1], *ends), options),
        Refusal("as many rows", (obs, action[:2], next_obs, *ends), options),
        Refusal("(time, state)", (obs[0], action, next_obs, *ends), options),
        Refusal("3 rows", (obs, action, next_obs, *jnp.zeros((2, 4), bool)), options),
        Refusal("ridge", SHORT, {**options, "ridge": -1.0}),
    ]


ROWS = [
    Row(
        identify_linear,
        sample=LOG,
        options={"delay": (1, 3)},
        oracle=model_by_rows,
        laws=[follows_the_units],
        refuses=[
            *log_refusals(delay=0),
            Refusal("delay must be one for all", SHORT, {"delay": (1, 2, 3)}),
            Refusal("delay must be 0 or more", SHORT, {"delay": (0, -1)}),
        ],
        differentiable=False,
        dtypes=FLOATS,
    ),
    Row(
        identify_arx,
        sample=LOG,
        options=LAGS,
        oracle=arx_by_rows,
        laws=[one_lag_of_each_is_the_linear_model],
        refuses=[
            *log_refusals(output_lags=1, input_lags=1),
            Refusal("output_lags must be 1 or more", SHORT, {**LAGS, "output_lags": 0}),
            Refusal("input_lags must be 1 or more", SHORT, {**LAGS, "input_lags": 0}),
            Refusal("delay must be one for all", SHORT, {**LAGS, "delay": (1, 2, 3)}),
        ],
        differentiable=False,
        dtypes=FLOATS,
    ),
    Row(
        identified_responses,
        name="identify_subspace",
        sample=NOISY,
        options=HALF,
        oracle=subspace_by_projections,
        laws=[units_of_inputs_change_the_gains],
        refuses=[
            Refusal("order must be 1 or more", FLAT, {"order": 0, "horizon": 3}),
            Refusal("horizon must be 2 or more", FLAT, {"order": 1, "horizon": 1}),
            Refusal("give a longer horizon", FLAT, {"order": 5, "horizon": 3}),
            Refusal("a longer log or a shorter", FLAT, {"order": 2, "horizon": 4}),
            Refusal("as many rows", (FLAT[0], FLAT[1][:3], *FLAT[2:]), HALF),
            Refusal("20 rows", (*FLAT[:2], *jnp.zeros((2, 4), bool)), HALF),
        ],
        differentiable=False,
        dtypes=FLOATS,
    ),
]
