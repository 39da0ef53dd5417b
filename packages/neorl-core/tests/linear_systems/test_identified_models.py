"""Plants that are found again in logs without noise, and logs that say too little."""

import jax
import numpy as np
import pytest

from neorl_core.linear_systems import (
    ArxModel,
    SubspaceModel,
    identify_arx,
    identify_linear,
    identify_subspace,
)

# The double mass-spring-damper of the public data set; its positions are measured, in millimetres.
A = np.asarray(
    [[1, 0, 0.2, 0], [0, 1, 0, 0.2], [-0.04, 0.02, 0.92, 0.04], [0.02, -0.04, 0.04, 0.92]]
)
B = np.asarray([[0, 0], [0, 0], [0.3, 0], [0, 0.3]])
C = 1e3 * np.eye(4)[:2]
INTEGRATOR = np.asarray([[1.0, 0.1], [0.0, 0.9]]), np.asarray([[0.0], [1.0]]), np.eye(2)[:1]


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def log_of(a, b, c, *, drift=0.0, level=0.0, rows=300):
    """Outputs and inputs of three episodes, of which one terminates."""
    rng = np.random.default_rng(5)
    action = rng.normal(size=(rows, b.shape[1])) + 2
    obs, state = [], rng.normal(size=len(a))
    ends = np.zeros(rows, bool)
    ends[[rows // 3, rows // 2]] = True
    for row in range(rows):
        obs.append(c @ state + level)
        state = a @ state + b @ action[row] + drift
        if ends[row]:
            state = rng.normal(size=len(a))
    return np.asarray(obs), action, ends & (np.arange(rows) < rows // 2), ends


def foretold(model, obs, action):
    """Outputs of the model from the state that fits the first rows best."""
    outputs, order = model.c.shape
    free, forced, power = [], [], np.eye(order)
    state = np.zeros(order)
    for row in range(len(obs)):
        free.append(model.c @ power)
        forced.append(model.c @ state + model.d @ action[row] + model.output_offset)
        state = model.a @ state + model.b @ action[row] + model.state_offset
        power = model.a @ power
    free, forced = np.concatenate(free), np.concatenate(forced)
    seen = 10 * outputs
    start = np.linalg.lstsq(free[:seen], (obs.ravel() - forced)[:seen], rcond=None)[0]
    return (free @ start + forced).reshape(obs.shape)


def test_the_masses_are_found_in_their_positions():
    log = log_of(A, B, C, drift=0.3, level=-50.0)
    model = identify_subspace(*log, order=4, horizon=5)
    assert isinstance(model, SubspaceModel)
    poles = np.sort_complex(np.linalg.eigvals(model.a))
    np.testing.assert_allclose(poles, np.sort_complex(np.linalg.eigvals(A)), atol=1e-9)
    for k in range(8):
        expected = C @ np.linalg.matrix_power(A, k) @ B
        actual = model.c @ np.linalg.matrix_power(model.a, k) @ model.b
        np.testing.assert_allclose(actual, expected, atol=1e-7)
    np.testing.assert_allclose(model.d, 0, atol=1e-7)
    assert int(model.rank) == 1 + 5 * 2
    assert int(model.windows) == 101 + 50 + 149 - 3 * 9
    values = np.asarray(model.singular_values)
    assert values[3] > 1e6 * values[4]
    obs, action = log[0][:100], log[1][:100]
    np.testing.assert_allclose(foretold(model, obs, action), obs, rtol=1e-7, atol=1e-5)


def test_a_plant_that_integrates_a_constant_is_foretold():
    obs, action, *ends = log_of(*INTEGRATOR, drift=np.asarray([0.05, 0.0]), level=20.0)
    model = identify_subspace(obs, action, *ends, order=2, horizon=4)
    np.testing.assert_allclose(
        foretold(model, obs[:100], action[:100]), obs[:100], rtol=1e-8, atol=1e-8
    )


def test_a_short_float_and_a_compiled_program_find_it_too():
    log = log_of(*INTEGRATOR)
    narrow = [part.astype(np.float32) if part.dtype == float else part for part in log]
    model = jax.jit(identify_subspace, static_argnames=("order", "horizon"))(
        *narrow, order=2, horizon=4
    )
    assert model.a.dtype == np.float32
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(model.a)), [0.9, 1.0], atol=1e-4)
    answer = model.c @ model.a @ model.b
    np.testing.assert_allclose(answer, [[0.1]], atol=1e-4)


def test_a_log_that_says_too_little_is_reported():
    obs, action, *ends = log_of(*INTEGRATOR)
    still = identify_subspace(obs, 0 * action + 2, *ends, order=2, horizon=4)
    assert int(still.rank) == 1
    short = identify_subspace(obs, action, np.arange(300) % 7 == 0, ends[1], order=2, horizon=4)
    assert int(short.windows) == 0
    assert all(np.isnan(part).all() for part in short[:7])
    corrupted = obs.copy()
    corrupted[20] = np.nan
    broken = identify_subspace(corrupted, action, *ends, order=2, horizon=4)
    assert all(np.isnan(part).all() for part in broken[:7])
    assert (int(broken.rank), int(broken.windows)) == (0, 300 - 3 * 7)
    # Cut out as an episode of its own it spoils nothing.
    cut = ends[1].copy()
    cut[[19, 20]] = True
    model = identify_subspace(corrupted, action, ends[0], cut, order=2, horizon=4)
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(model.a)), [0.9, 1.0], atol=1e-9)


def test_lags_are_found_in_their_log():
    rng = np.random.default_rng(2)
    action, ends = rng.normal(size=(200, 2)), np.zeros(200, bool)
    ends[[70, 71, 120]] = True
    # Two outputs on two lags; the first input acts after one period and the one before, the other
    # after three and four.
    lags = np.asarray([[[0.5, 0.1], [0.0, 0.6]], [[0.2, 0.0], [-0.1, 0.1]]])
    gains = np.asarray([[[1.0, 0.3], [0.0, -2.0]], [[0.4, 0.0], [0.5, 1.5]]])
    obs, after, begin = np.zeros((200, 2)), np.zeros((200, 2)), 0
    for row in range(200):
        if row == begin:
            obs[row] = rng.normal(size=2)
        result = np.full(2, 7.0)
        for lag in range(2):
            result = result + lags[lag] @ (obs[row - lag] if row - lag >= begin else np.zeros(2))
            late = [action[max(row - d - lag, 0), i] for i, d in enumerate((1, 3))]
            result = result + gains[lag] @ late
        after[row] = result
        if ends[row]:
            begin = row + 1
        elif row < 199:
            obs[row + 1] = result
    options = {"output_lags": 2, "input_lags": 2, "delay": (1, 3)}
    model = identify_arx(obs, action, after, ends, 0 * ends, **options)
    assert isinstance(model, ArxModel)
    np.testing.assert_allclose(model.a, lags, atol=1e-10)
    np.testing.assert_allclose(model.b, gains, atol=1e-10)
    np.testing.assert_allclose(model.offset, 7.0, atol=1e-10)
    assert int(model.rank) == 9
    assert int(model.rows) == 200 - 4 * 3 - 1
    after[50] = np.inf
    broken = identify_arx(obs, action, after, ends, 0 * ends, **options)
    assert all(np.isnan(part).all() for part in broken[:4])
    assert int(broken.rank) == 0


def test_a_model_without_inputs_is_found():
    obs = np.asarray([1.0, 0.5, 2.0, 1.0, -1.0, 3.0])[:, None]
    ends, nothing = np.zeros(6, bool), np.zeros((6, 0))
    after = 0.5 * obs + 0.25 * np.roll(obs, 1, axis=0)
    model = identify_arx(obs, nothing, after, ends, ends, output_lags=2, input_lags=1)
    np.testing.assert_allclose(model.a.ravel(), [0.5, 0.25], atol=1e-12)
    assert model.b.shape == (1, 1, 0)
    linear = identify_linear(obs, nothing, 0.5 * obs, ends, ends)
    np.testing.assert_allclose(linear.a, [[0.5]], atol=1e-12)
