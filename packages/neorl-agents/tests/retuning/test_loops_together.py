"""Two equal loops that act on each other, against the closed form by their sum and difference."""

import jax
import numpy as np
import pytest

from neorl_agents.models import HistoryModelSettings, fit_history_model, log_rows
from neorl_agents.retuning._loops_together import sensitivity_together
from neorl_core import Channel, Spec, Transition
from neorl_core.control import ConstantPolicy, standard_pid

POLE, OWN, CROSS, PERIOD = 0.9, 2.0, 1.2, 5.0
SPEC = Spec(
    (Channel("left", "m", -50.0, 50.0), Channel("right", "m", -50.0, 50.0)),
    (Channel("one", "%", -50.0, 50.0), Channel("two", "%", -50.0, 50.0)),
    (), PERIOD, 50,
)  # fmt: skip
GAINS = np.array([[OWN, CROSS], [CROSS, OWN]])
"""The sum of the levels answers the sum of the outputs by ``OWN + CROSS``, the difference by
``OWN - CROSS``."""


@pytest.fixture(scope="module", params=[1, 3])
def model(request):
    """The model of a log without noise, so that its linear part is the plant."""
    rng = np.random.default_rng(0)
    n = 1_000
    action, obs = rng.normal(size=(n, 2)), np.zeros((n + 1, 2))
    for t in range(n):
        obs[t + 1] = POLE * obs[t] + (1 - POLE) * GAINS @ action[t]
    log = Transition(
        obs=obs[:-1], action=action, reward=np.zeros(n), cost=np.zeros((n, 0)), next_obs=obs[1:],
        terminated=np.zeros(n, bool), truncated=np.arange(n) % 50 == 49, mask=np.ones(n, bool),
    )  # fmt: skip
    settings = HistoryModelSettings(
        history=(request.param,), members=1, updates=1, width=4, ridge=1e-6
    )
    return fit_history_model(log_rows(log, SPEC), SPEC, jax.random.key(0), settings=settings)


def bank(gain, integral=np.inf, derivative=0.0):
    return standard_pid(
        gain=[gain, gain], integral_time=[integral] * 2, derivative_time=[derivative] * 2,
        setpoint=[0.0, 0.0], low=[-50.0] * 2, high=[50.0] * 2, dt=PERIOD, measured=[0, 1],
    )  # fmt: skip


def test_the_peak_is_that_of_sum_and_difference(model):
    gain, integral, derivative = 1.5, 40.0, 6.0
    loops = bank(gain, integral, derivative)
    z = np.exp(1j * np.geomspace(1e-3, np.pi, 5_000))
    rise, tau = 1 - 1 / z, float(loops.tau[0])
    controller = gain * (1 + PERIOD / integral / rise)
    controller += gain * derivative / (tau + PERIOD) * rise / (1 - tau / (tau + PERIOD) / z)
    both = [
        1 / (1 + controller * (1 - POLE) * own / (z - POLE)) for own in (OWN + CROSS, OWN - CROSS)
    ]
    expected = np.abs(sum(both) / 2).max()
    alone = np.abs(1 / (1 + controller * (1 - POLE) * OWN / (z - POLE))).max()
    assert expected > 1.05 * alone
    assert sensitivity_together(model, loops) == pytest.approx(expected, rel=5e-3)


def test_loops_that_are_stable_alone_are_unstable_together_from_the_gain_of_their_sum_on(model):
    """``P - (1 - P) (OWN + CROSS) k`` leaves the unit circle where ``k`` is ``limit``."""
    limit = (1 + POLE) / ((1 - POLE) * (OWN + CROSS))
    alone = (1 + POLE) / ((1 - POLE) * OWN)
    assert alone > 1.5 * limit
    assert np.isfinite(sensitivity_together(model, bank(0.99 * limit)))
    assert sensitivity_together(model, bank(1.01 * limit)) == np.inf


def test_what_is_no_bank_of_two_loops_is_not_judged(model):
    one = standard_pid(
        gain=[1.0, 0.0], setpoint=[0.0, 0.0], low=[-50.0] * 2, high=[50.0] * 2, dt=PERIOD,
        measured=[0, 1],
    )  # fmt: skip
    for policy in (one, ConstantPolicy(np.zeros(2))):
        assert np.isnan(sensitivity_together(model, policy))
