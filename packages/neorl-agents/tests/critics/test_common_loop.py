"""Critics in the common training loop: the numbers of the private loops that it replaced."""

import pathlib

import jax
import numpy as np
import pytest

from neorl_agents import Algorithm, Learner
from neorl_agents.critics import EnsembleLearner, SafetyCriticLearner, horizon_curve
from neorl_agents.critics._ensemble_fit import _standardise_outputs, member_predictions
from neorl_agents.critics._log_rows import checked_columns, column_statistics, trained_in_memory
from neorl_agents.critics._safety_critic_fit import _first_values
from neorl_agents.testing import sized

from . import chain
from .test_ensemble import SPEC, plant_log
from .test_safety_critic import ACTION, OBS

STORED = np.load(pathlib.Path(__file__).parent / "fixtures/private_loops.npz")
"""After 40 updates with the loops of commit cefa2473, with the same first weights and draws."""
KEY = jax.random.key(0)


@pytest.mark.parametrize("quantity", ["violation", "cost"])
def test_safety_critics_are_those_of_their_private_loop(quantity):
    """To 1e-4: only the rounding of scaled inputs differs, float32 in place of float64."""
    log = chain.episodes(20, seed=0)
    columns = checked_columns(log, chain.SPEC, cost=True)
    learner = SafetyCriticLearner(
        horizon=3, members=2, quantity=quantity, learning_rate=5e-3, tau=0.05
    )
    first = _first_values(learner, columns, chain.SPEC)
    learner = sized(learner, first_values=first, hidden=(8,), batch_size=32)
    state, metrics = trained_in_memory(
        learner, chain.SPEC, log, column_statistics(columns), 40, KEY
    )
    curve = jax.jit(jax.vmap(horizon_curve, in_axes=(None, 0, 0)))
    curves = curve(learner.critic(state), OBS, ACTION)
    np.testing.assert_allclose(curves, STORED[quantity], rtol=1e-4, atol=1e-5)
    assert list(metrics) == ["loss"]
    assert isinstance(learner, Learner)
    assert not isinstance(learner, Algorithm)


@pytest.mark.parametrize("target", ["dynamics", "behaviour"])
def test_ensembles_are_those_of_their_private_loop(target):
    """To 1e-4 of the spread of what is predicted."""
    log = plant_log(12, seed=0)
    columns = checked_columns(log, SPEC, cost=False)
    learner = sized(EnsembleLearner(members=3, target=target), hidden=(8,), batch_size=32)
    learner = _standardise_outputs(learner, SPEC, columns)
    state, _ = trained_in_memory(learner, SPEC, log, column_statistics(columns), 40, KEY)
    mean, std = (x[:20] for x in member_predictions(learner.ensemble(state), columns))
    scale = np.asarray(learner.outcome_scale)
    for result, name in ((mean, "mean"), (std, "std")):
        apart = (result - STORED[f"{target}_{name}"]) / scale
        np.testing.assert_allclose(apart, 0, atol=1e-4)
