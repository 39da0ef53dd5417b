"""A choice from a log in which one controller alone uses an actuator."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.retuning import PlantFacts
from neorl_core import Channel, Spec
from neorl_core.control import StateFeedback
from neorl_envs import Dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_train.choosing import ChooseOptions, select_candidates

STEPS, EPISODES = 25, 80
SPEC = Spec(
    (Channel("level", "m", -40.0, 40.0),),
    (Channel("valve", "%", -20.0, 20.0), Channel("pump", "%", -20.0, 20.0)),
    (),
    dt=1.0,
    horizon=STEPS,
)
GAINS = {"today": (0.2, 0.0), "pumping": (0.2, -0.6)}
QUICK = ChooseOptions(updates=40, value_updates=0, held_out_modes=0, incumbent="today")


def square(obs, action, after, last_action):
    """The declared reward of a step: minus the squared level that it began with."""
    return -jnp.square(obs[:1])


def law(gains):
    low, high = (jnp.full(2, x) for x in (-20.0, 20.0))
    return StateFeedback(jnp.asarray(gains)[:, None], jnp.zeros(1), jnp.zeros(2), low, high)


def recorded_log() -> Dataset:
    """Half of the episodes of ``x' = 0.98 x + 0.5 valve - 0.4 pump + w`` are of each controller."""
    rng = np.random.default_rng(0)
    x, rows = 3.0 + rng.normal(size=EPISODES), []
    turns = np.arange(EPISODES) % 2
    gains = np.asarray([list(GAINS.values())[turn] for turn in turns])
    for _ in range(STEPS):
        u = -x[:, None] * gains + 0.5 * rng.normal(size=(EPISODES, 2)) * (gains != 0)
        after = 0.98 * x + u @ np.array([0.5, -0.4]) + 0.2 * rng.normal(size=EPISODES)
        rows.append((x[:, None], u, -(x**2)[:, None], after[:, None]))
        x = after
    obs, action, reward, following = (
        np.stack(column, axis=1).reshape(EPISODES * STEPS, -1) for column in zip(*rows, strict=True)
    )
    ends = np.arange(len(obs)) % STEPS == STEPS - 1
    return dataset_from_columns(
        SPEC, obs=obs, action=action, reward=reward[:, 0], cost=np.zeros((len(obs), 0)),
        next_obs=following, terminated=ends & False, truncated=ends,
        behaviour=turns, attributes={"behaviours": list(GAINS)},
    )  # fmt: skip


@pytest.mark.nightly
def test_nothing_is_chosen_with_a_model_that_mispredicts_a_mode_left_out_of_the_fit():
    """Without the episodes that move the pump, no model knows what the pump does."""
    candidates = {name: law(gains) for name, gains in GAINS.items()}
    log, facts = recorded_log(), PlantFacts(objective=square)
    unasked = select_candidates(log, "log.h5", candidates, QUICK, facts)
    assert (unasked.chosen, unasked.warnings) == ("pumping", ())
    asked = dataclasses.replace(QUICK, held_out_modes=1)
    selection = select_candidates(log, "log.h5", candidates, asked, facts)
    assert selection.chosen == "today"
    (warning,) = selection.warnings
    assert "fitted without the episodes of pumping predicts for it a return of " in warning
    assert selection.error > unasked.error
    (refusal,) = selection.candidates[1].prediction.refused_by
    assert refusal.subject == "error"
    assert "so the model may not be used" in refusal.sentence
