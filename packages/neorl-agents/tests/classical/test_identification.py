"""Dead times, lags and orders of an identified plant against its difference equation."""

import numpy as np
import pytest

from neorl_agents.classical import identify_plant
from neorl_agents.classical._design import delayed
from neorl_agents.classical._identification import Log, Units, arx_errors, fit_arx

ONE = Units(np.zeros(1), np.ones(1))
EPISODES, LENGTH = 6, 60


def recorded(a, b, delay, *, noise=0.0, seed=0):
    """``y_{t+1} = sum_i a_i y_{t-i} + sum_j b_j u_{t-delay-j} + noise e_t``, in scaled units."""
    rng = np.random.default_rng(seed)
    u, e = rng.uniform(-1, 1, (EPISODES, LENGTH)), noise * rng.normal(size=(EPISODES, LENGTH))
    before = delay + len(b)
    sent = np.concatenate([np.zeros((EPISODES, before)), u], axis=1)
    y = np.zeros((EPISODES, LENGTH + 2))
    for t in range(LENGTH):
        now = t + 1
        driven = sum(b[j] * sent[:, before + t - delay - j] for j in range(len(b)))
        y[:, now + 1] = sum(a[i] * y[:, now - i] for i in range(len(a))) + driven + e[:, t]
    flat, number = (-1, 1), np.arange(EPISODES * LENGTH)
    return Log(
        y[:, 1:-1].reshape(flat),
        u.reshape(flat),
        y[:, 2:].reshape(flat),
        number // LENGTH * LENGTH,
        number % LENGTH == LENGTH - 1,
    )


def test_errors_of_a_model_with_lags_are_those_of_its_equation():
    rows = recorded((1.2, -0.4), (0.3, 0.2), 1)
    model = fit_arx(rows, 2, (1,))
    np.testing.assert_allclose(np.ravel(model.a), (1.2, -0.4), atol=1e-6)
    np.testing.assert_allclose(np.ravel(model.b), (0.3, 0.2), atol=1e-6)
    assert np.abs(arx_errors(rows, model, (1,), 4)).max() < 1e-6


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_the_plant_with_inputs_on_their_way_moves_as_the_plant(delay):
    rows = recorded((0.8,), (0.5,), delay)
    model = identify_plant(rows, ONE, ONE, method="arx", orders=1, longest_delay=3)
    plant = delayed(model, 1)
    assert (model.delay, plant.chain) == ((delay,), (max(delay, 1),))
    state = np.zeros(len(plant.a))
    for t in range(LENGTH):
        np.testing.assert_allclose(plant.controlled @ state, rows.obs[t], atol=1e-6)
        state = plant.a @ state + plant.b @ rows.action[t]
        np.testing.assert_array_equal(plant.previous @ state, rows.action[t])


def test_noise_of_the_plant_asks_for_no_higher_order():
    """Of every order the rule of one standard error takes the smallest that is no worse."""
    for seed in range(5):
        rows = recorded((0.8,), (0.5,), 0, noise=0.3, seed=seed)
        model = identify_plant(rows, ONE, ONE, method="arx", orders=3, longest_delay=0)
        assert model.order == 1
