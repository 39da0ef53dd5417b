"""Whether logs of a PI loop that is never in manual show what another tuning does.

The plant is a first-order lag of 20 s with a dead time, a disturbance that drifts and noise on the
measurement. Only its setpoint moves by itself. The plant says which tunings are better; the model
of each log is right or wrong about them, and the clause on excitation should tell which.
"""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import (
    PlantFacts,
    RetuneSettings,
    excitation,
    learned_plants,
    select,
)
from neorl_core import Channel, Spec, Transition

STEPS, EPISODES = 100, 60
SPEC = Spec(
    (Channel("temperature", "K", -50.0, 50.0), Channel("target", "K", -30.0, 30.0)),
    (Channel("valve", "%", -60.0, 60.0),),
    (),
    dt=1.0,
    horizon=STEPS,
)
POLE, GAIN = float(np.exp(-1 / 20)), 2.0
TODAY = (0.6, 25.0)
TUNINGS = {
    "half": (0.3, 25.0), "double": (1.2, 25.0), "quick integral": (0.6, 12.0),
    "slow integral": (0.6, 60.0), "both quick": (1.2, 12.0), "both slow": (0.3, 60.0),
}  # fmt: skip
MOVES = {
    "never": lambda t, episode: 0.0,
    "in every tenth episode": lambda t, episode: (t == 40) * (episode % 10 == 0),
    "in every third episode": lambda t, episode: (t == 40) * (episode % 3 == 0),
    "once in every episode": lambda t, episode: t == 40,
    "every 50 steps": lambda t, episode: t % 50 == 0,
    "every 20 steps": lambda t, episode: t % 20 == 0,
}
"""Whether the setpoint changes to a random value, at a step of an episode."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PI:
    """``u = k (e + sum e / T)`` of the logged setpoint."""

    gain: jax.Array
    integral_time: jax.Array

    def initial_carry(self):
        return jnp.zeros(())

    def __call__(self, carry, obs, key=None):
        error = obs[1] - obs[0]
        carry = carry + error / self.integral_time
        return carry, (self.gain * (error + carry))[None]

    def sent(self, carry, action):
        return carry


def recorded(tuning, moves, dead_time, seed, episodes=EPISODES):
    """Columns ``(episode, step)`` of obs, action, next obs and reward."""
    rng = np.random.default_rng(seed)
    gain, integral_time = tuning
    x, disturbance, integral = 0.5 * rng.normal(size=episodes), 0.0, 0.0
    pipe = [np.zeros(episodes)] * dead_time
    number, target, rows = np.arange(episodes), np.zeros(episodes), []
    y = (x + 0.05 * rng.normal(size=episodes)).astype(np.float32)
    for t in range(STEPS + 1):
        drawn, noise = rng.uniform(-3, 3, episodes), rng.normal(size=(2, episodes))
        target = np.where(MOVES[moves](t, number), drawn, target)
        if t:
            rows[-1] = (*rows[-1], y, target, -np.abs(y - target))
        error = target - y
        integral = integral + error / integral_time
        action = gain * (error + integral)
        rows.append((y, target, action))
        disturbance = 0.9 * disturbance + 0.1 * noise[0]
        pipe = [*pipe, action]
        x = POLE * x + GAIN * (1 - POLE) * pipe.pop(0) + disturbance
        y = (x + 0.05 * noise[1]).astype(np.float32)
    return [np.stack(column, axis=1).astype(np.float32) for column in zip(*rows[:-1], strict=True)]


def miss(obs, action, after, last_action):
    return -jnp.abs(after[:1] - after[1:])


FACTS = PlantFacts(exogenous=("target",), objective=miss, setpoints=("target",))


def learned(columns, settings):
    """The plant model of a recorded log."""
    y, target, action, after, next_target, reward = (column.ravel() for column in columns)
    n = len(y)
    log = Transition(
        obs=np.stack([y, target], axis=1), action=action[:, None], reward=reward,
        cost=np.zeros((n, 0)), next_obs=np.stack([after, next_target], axis=1),
        terminated=np.zeros(n, bool), truncated=np.arange(n) % STEPS == STEPS - 1,
        mask=np.ones(n, bool),
    )  # fmt: skip
    return learned_plants(log, SPEC, 0, FACTS, settings)


def answer(moves, dead_time, seed, settings):
    """The excitation, and the predicted and the true gains of the tunings; which one is chosen."""
    plants = learned(recorded(TODAY, moves, dead_time, seed), settings)
    pool = {name: PI(*map(jnp.asarray, one)) for name, one in {"today": TODAY, **TUNINGS}.items()}
    chosen, table = select(plants, pool, "today", settings.rule)
    predicted = np.asarray([one.gain for one in table[1:]])

    def true_return(tuning):
        return recorded(tuning, moves, dead_time, 99, 400)[-1].sum(axis=1).mean()

    true = np.asarray([true_return(TUNINGS[one.name]) for one in table[1:]]) - true_return(TODAY)
    gained = 0.0 if chosen == "today" else float(true[list(TUNINGS).index(chosen)])
    order = float(np.corrcoef(predicted, true)[0, 1])
    return plants.excitation, order, gained / plants.scale


LINEAR = RetuneSettings(
    model=HistoryModelSettings(members=1, updates=1, width=4), evaluation_episodes=15
)


def test_set_points_that_never_move_show_nothing():
    """The model is wrong about the sign of the effect, and nothing in its errors says so."""
    shown, order, gained = answer("never", 3, 1, LINEAR)
    assert not shown.suffices
    assert shown.contradicted == ()
    assert order < 0
    assert gained == 0
    assert shown.warnings[0].endswith("of its variance is independent of them")


def test_set_points_that_move_show_what_the_valve_does():
    shown, order, gained = answer("every 50 steps", 3, 2, LINEAR)
    assert shown.suffices
    assert shown.by_setpoints == ("valve",)
    assert 1e-3 < shown.least < 0.1
    assert order > 0.8
    assert gained > 0.1


def test_a_model_that_moves_of_set_points_contradict_is_not_used():
    shown, order, gained = answer("in every third episode", 3, 1, LINEAR)
    assert not shown.suffices
    assert shown.contradicted == ("valve",)
    assert order < 0
    assert gained == 0
    assert "the plant did not do what the model predicts" in shown.warnings[0]


@pytest.mark.nightly
def test_where_set_points_count_as_excitation_the_choice_does_no_harm():
    """Counts and figures of the page on choosing without the plant."""
    settings = RetuneSettings(
        model=HistoryModelSettings(members=2, updates=400, width=24), evaluation_episodes=15
    )
    used, refused = [], []
    # The conditions were chosen on seeds 1 and 2; 3 and 4 check them.
    for moves, dead_time, seed in itertools.product(MOVES, (0, 3, 6), (1, 2, 3, 4)):
        shown, order, gained = answer(moves, dead_time, seed, settings)
        print(moves, dead_time, seed, shown.suffices, shown.contradicted, order, gained)
        (used if shown.suffices else refused).append((moves, order, gained))
    assert "never" not in {moves for moves, _, _ in used}
    assert "in every tenth episode" not in {moves for moves, _, _ in used}
    # 23 of 72 logs count. In 22 the correlation is 0.66 to 1.00 and the gain 0.04 to 1.27 spreads;
    # in one the order is reversed, and nothing is chosen.
    assert len(used) >= 18
    assert np.mean([order > 0.4 for _, order, _ in used]) > 0.9
    assert min(gained for _, _, gained in used) > -0.01
    assert np.median([gained for _, _, gained in used]) > 0.5
    # The order is reversed in 41 of the other 49.
    assert np.mean([order < 0 for _, order, _ in refused]) > 0.7


def test_a_model_that_is_not_finite_is_contradicted():
    """No comparison with NaN holds, so it must not pass for a probability."""
    plants = learned(recorded(TODAY, "every 50 steps", 3, 2), LINEAR)
    assert plants.excitation.by_setpoints == ("valve",)
    broken = jax.tree.map(
        lambda leaf: leaf * jnp.nan, eqx.filter(plants.model, eqx.is_inexact_array)
    )
    model = eqx.combine(broken, plants.model)
    again = excitation(plants.rows, SPEC, model.history, model=model, setpoints=("target",))
    assert again.contradicted == ("valve",)
    assert not again.suffices
