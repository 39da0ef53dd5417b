"""Rewards less the costs at the prices that a plant declares."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_core import CostChannel
from neorl_core.costs import penalised_reward
from neorl_envs import Dataset
from neorl_train.experience import TrainingData, training_data


def prices(env: Any, costs: Sequence[CostChannel]) -> jax.Array:
    """Reward that one unit of each cost takes off; nothing where there is no plant."""
    weights = env.penalty_weights() if env is not None else {}
    return jnp.asarray([weights.get(cost.name, 0.0) for cost in costs], jnp.float32)


def penalised_data(env: Any, log: Dataset) -> TrainingData:
    """A log to be trained on, its reward less its costs."""
    rows, price = log.transitions, prices(env, log.spec.cost)
    reward = penalised_reward(jnp.asarray(rows.reward), jnp.asarray(rows.cost), price)
    return training_data(
        dataclasses.replace(log, transitions=rows._replace(reward=np.asarray(reward)))
    )
