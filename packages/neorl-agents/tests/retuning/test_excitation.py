"""Logs that do not show what another action would do."""

import numpy as np
import pytest

from neorl_agents.models import log_rows
from neorl_agents.retuning import excitation
from neorl_core import Channel, Spec, Transition

SPEC = Spec(
    (Channel("level", "m", -30.0, 30.0), Channel("target", "m", -9.0, 9.0)),
    (Channel("valve", "%", -50.0, 50.0), Channel("pump", "%", 0.0, 100.0)),
    (),
    dt=1.0,
    horizon=50,
)


def recorded(valve, pump, *, moves=0.0, episodes=20):
    """Rows of ``x' = 0.9 x + 0.5 valve + 0.02 pump + w`` under two laws of level and target."""
    rng = np.random.default_rng(0)
    columns = []
    for _ in range(episodes):
        level = rng.normal()
        for t in range(SPEC.horizon):
            target = moves * (t // 10)
            u = [valve(level, target, rng), pump(level, target, rng)]
            after = 0.9 * level + 0.5 * u[0] + 0.02 * u[1] + 0.3 * rng.normal()
            columns.append(([level, target], u, [after, moves * ((t + 1) // 10)]))
            level = after
    obs, action, following = (np.asarray(x, np.float32) for x in zip(*columns, strict=True))
    n = len(obs)
    log = Transition(
        obs=obs, action=action, reward=np.zeros(n), cost=np.zeros((n, 0)), next_obs=following,
        terminated=np.zeros(n, bool), truncated=np.arange(n) % SPEC.horizon == SPEC.horizon - 1,
        mask=np.ones(n, bool),
    )  # fmt: skip
    return excitation(log_rows(log, SPEC), SPEC, 1)


def feedback(level, target, rng):
    return -0.6 * (level - target)


def signal(level, target, rng):
    return 50 + 5 * np.sign(rng.normal())


def test_an_action_with_a_test_signal_shows_what_it_does():
    """Of -0.6 x and a signal of the spread that noise alone gives it, almost half is free.

    The signal and the beginning of an episode spread the level too: 0.37 of it in these rows.
    """
    spread = 0.6 * 0.3 / np.sqrt(1 - 0.6**2)
    moved = recorded(lambda x, target, rng: -0.6 * x + spread * rng.normal(), signal)
    assert moved.suffices
    assert moved.warnings == ()
    assert 0.3 < moved.free[0] < 0.5
    assert moved.free[1] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("moves", [0.0, 0.5])
def test_one_mode_without_a_signal_does_not_whether_set_points_move_or_not(moves):
    """The setpoint is measured, so that its steps are no cause of their own either."""
    moved = recorded(feedback, signal, moves=moves)
    assert not moved.suffices
    (warning,) = moved.warnings
    assert warning.startswith(
        "valve is almost determined by the measurements and the other actions"
    )


@pytest.mark.parametrize(
    ("pump", "words"),
    [
        (lambda x, target, rng: 30.0, "pump is constant"),
        (lambda x, target, rng: 100.0, "pump is at the same end of its range in 100.0% of"),
        (
            lambda x, target, rng: 0.0 if rng.uniform() < 0.995 else 40.0,
            "pump is at the same end of its range in 99.",
        ),
    ],
)
def test_an_actuator_that_stands_or_is_saturated_is_named(pump, words):
    moved = recorded(lambda x, target, rng: -0.6 * x + rng.normal(), pump)
    assert moved.least == 0
    (warning,) = moved.warnings
    assert warning.startswith(words)
