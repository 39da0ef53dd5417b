"""Whether a log shows that its plant is unstable while the actions are constant."""

import numpy as np
import pytest

from neorl_core import Channel, Spec
from neorl_envs.datasets import dataset_from_columns
from neorl_train.data import constant_fallback_warnings, doubling_steps

SPEC = Spec(
    (Channel("x", "K", -99.0, 99.0), Channel("y", "1", -99.0, 99.0)),
    (Channel("u", "%", -99.0, 99.0),),
    (),
    30.0,
    horizon=200,
)


def logged(pole, *, gain=0.3, noise=0.1, probing=1.0, still=False):
    """Forty episodes of ``x' = pole x + u / 2`` in a loop, with a lag of the input beside it."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(40):
        x, y = rng.normal(size=2)
        for _ in range(200):
            u = -gain * x + probing * rng.normal()
            x_next = pole * x + 0.5 * u + noise * rng.normal()
            y_next = 1.0 if still else 0.5 * y + 0.5 * u
            rows.append((1.0 if still else y, x, u, x_next, y_next))
            x, y = x_next, y_next
    y, x, u, x_next, y_next = np.asarray(rows).T
    return dataset_from_columns(
        SPEC, obs=np.stack([x, y], 1), action=u[:, None], reward=-(x**2),
        next_obs=np.stack([x_next, y_next], 1), terminated=np.zeros(len(x), bool),
        truncated=np.arange(len(x)) % 200 == 199,
    )  # fmt: skip


@pytest.mark.parametrize("still", [False, True])
def test_an_unstable_plant_in_a_loop_is_recognised_with_its_time(still):
    """By hand: 1.05^14.2 = 2, also beside a measurement that never moves."""
    log = logged(1.05, still=still)
    steps = doubling_steps(log)
    assert steps == pytest.approx(14.2, rel=0.1)
    (sentence,) = constant_fallback_warnings(log)
    assert f"a deviation doubles in about {steps:.0f} steps ({30 * steps:.3g} s)" in sentence
    assert "--fallback.kind classical" in sentence


@pytest.mark.parametrize("pole", [0.0, 0.9, 0.99, 1.0])
def test_a_plant_that_stays_or_drifts_is_not(pole):
    assert constant_fallback_warnings(logged(pole)) == []


def test_growth_that_hardly_matters_within_an_episode_is_not():
    assert doubling_steps(logged(1.01, probing=3.0)) is None


def test_too_few_rows_give_no_result(monkeypatch):
    monkeypatch.setattr("neorl_train.data._data_warnings.ROWS_PER_COEFFICIENT", 501)
    assert doubling_steps(logged(1.05)) is None
