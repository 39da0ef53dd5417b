"""Policies with memory follow the held-out rows; those without are asked row by row."""

import dataclasses

import jax
import numpy as np
import pytest

from neorl_agents import BC, DecisionTransformer
from neorl_agents.testing import sized
from neorl_core import as_arrays
from neorl_train.data import training_data
from neorl_train.judging import PolicyValidation
from neorl_train.judging._validation import action_half_range


def distance(policy, dataset):
    key = jax.random.key(0)
    judge = PolicyValidation(dataset, None, key=key, starts=0)
    return float(judge(policy)["held_out_distance"])


@pytest.mark.parametrize("encoder", ["none", "gru"])
def test_the_distance_is_that_of_a_loop(make_log, encoder):
    dataset = make_log(episodes=3, length=6)
    mask = np.ones(dataset.n_rows, bool)
    mask[[2, 9]] = False
    dataset = dataclasses.replace(dataset, transitions=dataset.transitions._replace(mask=mask))
    data = training_data(dataset)
    learner = sized(BC(), hidden=(8,), encoder=encoder, history_steps=3)
    policy = as_arrays(learner.policy(learner.init(data.spec, data.statistics, jax.random.key(0))))
    obs, action = dataset.transitions.obs, dataset.transitions.action
    squares = []
    for start, length in zip(dataset.episode_starts, dataset.episode_lengths, strict=True):
        carry = policy.initial_carry()
        for row in range(start, start + length):
            carry, proposed = policy(carry, obs[row], None)
            carry = policy.sent(carry, action[row])
            if mask[row]:
                off = (np.asarray(proposed) - action[row]) / action_half_range(dataset.spec)
                squares.append(np.mean(off**2))
    assert distance(policy, dataset) == pytest.approx(np.mean(squares), rel=1e-5)


@pytest.mark.parametrize("price", [0.0, 0.7])
def test_the_own_count_of_a_return_is_compared_with_the_logged_one(make_log, price):
    """Beside a loop that asks the counting network for every step but the last of an episode."""
    dataset = make_log(episodes=3, length=6, n_cost=2)
    penalty_weights = [price] * dataset.spec.n_cost
    data = training_data(dataset, penalty_weights=penalty_weights)
    learner = sized(DecisionTransformer(), hidden=(8, 8), history_steps=3)
    policy = as_arrays(learner.policy(learner.init(data.spec, data.statistics, jax.random.key(0))))
    rows, errors = dataset.transitions, []
    reward = np.asarray(rows.reward) - price * np.asarray(rows.cost).sum(1)
    assert np.asarray(rows.cost).any()
    for start, length in zip(dataset.episode_starts, dataset.episode_lengths, strict=True):
        off = 0.0
        for row in range(start, start + length - 1):
            seen, after = (policy.obs.to_scaled(rows.obs[i]) for i in (row, row + 1))
            sent = policy.action.to_scaled(rows.action[row])
            counted = policy.predictor(np.concatenate([seen, sent, after]))[0]
            off += float(counted * policy.reward_unit + policy.reward_offset) - reward[row]
        errors.append(abs(off))
    judge = PolicyValidation(
        dataset, None, key=jax.random.key(0), starts=0, penalty_weights=penalty_weights
    )
    metric = float(judge(policy)["held_out_return_prediction_error"])
    assert metric == pytest.approx(np.mean(errors), rel=1e-3)
    assert metric > 0.01
