"""Evaluates policies during training: on held-out rows and, if there is one, on the plant."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_agents.policies import SequencePolicy
from neorl_core import Policy, Spec, as_arrays
from neorl_envs import Dataset
from neorl_envs.scoring import GymnasiumJudge, episode_return
from neorl_train.judging._rollouts import rollouts

MAX_ROWS = 4096
DISTANCE = "held_out_distance"
"""Name of the distance to the held-out actions."""


class PolicyValidation:
    """Distance to the held-out actions, and return and costs on a few starts of the plant.

    Args:
        held_out: Episodes that are not used for training; with ``None``, only the plant is used.
        environment: The plant; ``None`` if there is only a log.
        key: Key of the starts. They are only for the curves and differ from the evaluation's.
        starts: Number of starts; with zero, only the log is used.
        penalty_weights: Penalty per unit of each cost, which is in the return that a policy without
            budgets counts.
        judge: A Gymnasium environment in place of a plant; its episodes run at once, in Python.
        judge_seeds: Seeds of the resets of its episodes, which the evaluation does not use.
    """

    def __init__(
        self,
        held_out: Dataset | None,
        environment: Any,
        *,
        key: PRNGKeyArray,
        starts: int,
        penalty_weights: Sequence[float] = (),
        judge: GymnasiumJudge | None = None,
        judge_seeds: Sequence[int] = (),
    ) -> None:
        self._held_out = None if held_out is None else _HeldOut(held_out, penalty_weights)
        self._environment = environment if starts else None
        self._key, self._starts = key, jnp.arange(starts)
        spec = environment.spec if held_out is None else held_out.spec
        self._costs = tuple(channel.name for channel in spec.cost)
        self._judge, self._judge_seeds = judge if judge_seeds else None, judge_seeds

    def __call__(self, policy: Policy) -> dict[str, jax.Array]:
        """Queues the evaluation of one policy and returns immediately.

        Returns:
            ``held_out_distance``, the mean squared distance to the logged action in units of half
            the range of each channel; for a policy that counts its own return also
            ``held_out_return_prediction_error``, the mean absolute error of that prediction over a
            held-out episode, in the unit of the reward; with a plant also ``plant_return``, the
            mean undiscounted return with the plant's own reward, and ``plant_cost_<name>``, the
            mean sums; with a Gymnasium environment the same of that.
        """
        policy = as_arrays(policy)
        metrics = {} if self._held_out is None else self._held_out(policy)
        if self._environment is not None:
            rows = rollouts(self._environment, policy, self._key, self._starts)
            total, costs = _sums(rows.reward, rows.cost, rows.mask)
            metrics["plant_return"] = total
            metrics |= {f"plant_cost_{name}": costs[i] for i, name in enumerate(self._costs)}
        if self._judge is not None:
            rollouts_of_judge = self._judge.rollouts(policy, self._judge_seeds)
            returns = [episode_return(rollout) for rollout in rollouts_of_judge]
            metrics["plant_return"] = jnp.asarray(np.mean(returns))
            sums = np.mean([rollout.costs.sum(axis=0) for rollout in rollouts_of_judge], axis=0)
            metrics |= {
                f"plant_cost_{name}": jnp.asarray(sums[i]) for i, name in enumerate(self._costs)
            }
        return metrics


class _HeldOut:
    """Metrics on held-out episodes: distance to the logged actions, and the policy's own count."""

    def __init__(self, held_out: Dataset, penalty_weights: Sequence[float]) -> None:
        rows = held_out.transitions
        chosen = np.flatnonzero(np.asarray(rows.mask))
        chosen = chosen[:: max(1, len(chosen) // MAX_ROWS)][:MAX_ROWS]
        self._obs = jnp.asarray(rows.obs[chosen])
        self._action = jnp.asarray(rows.action[chosen])
        self._log = _first_rows(held_out)
        penalties = (
            np.asarray(rows.cost)[:MAX_ROWS] @ np.asarray(penalty_weights)
            if any(penalty_weights)
            else 0.0
        )
        self._penalised = self._log._replace(
            reward=self._log.reward - jnp.asarray(penalties, jnp.float32)
        )
        self._half_range = jnp.asarray(action_half_range(held_out.spec))

    def __call__(self, policy: Policy) -> dict[str, jax.Array]:
        """Computes the metrics; a policy with memory is run along the log row by row."""
        if not jax.tree.leaves(policy.initial_carry()):
            distance = held_out_distance(policy, self._obs, self._action, self._half_range)
            return {DISTANCE: distance}
        metrics = {DISTANCE: distance_along(policy, self._log, self._half_range)}
        if isinstance(policy, SequencePolicy):
            # A policy with budgets learns from the reward and the costs apart.
            log = self._log if policy.budget.size else self._penalised
            episodes = int(log.starts.sum())
            metrics["held_out_return_prediction_error"] = return_prediction_error(
                policy, log, episodes
            )
        return metrics


@jax.jit
def held_out_distance(
    policy: Policy,
    obs: Float[Array, "row obs"],
    action: Float[Array, "row act"],
    half_range: Float[Array, " act"],
) -> Float[Array, ""]:
    """Mean over rows and channels of ``((policy(obs) - action) / half_range)^2``."""

    def act(row: Float[Array, " obs"]) -> Float[Array, " act"]:
        return policy(policy.initial_carry(), row, None)[1]

    return jnp.mean(jnp.square((jax.vmap(act)(obs) - action) / half_range[None, :]))


class ValidationRows(NamedTuple):
    """Consecutive rows of a log.

    Attributes:
        obs: Physical units, shape ``(row, obs)``.
        action: Physical units, shape ``(row, act)``.
        reward: Reward of the row.
        starts: Whether an episode begins in the row.
        mask: Whether the row is used.
    """

    obs: Float[Array, "row obs"]
    action: Float[Array, "row act"]
    reward: Float[Array, " row"]
    starts: Bool[Array, " row"]
    mask: Bool[Array, " row"]


def _first_rows(dataset: Dataset) -> ValidationRows:
    rows, starts = dataset.transitions, np.zeros(dataset.n_rows, bool)
    starts[dataset.episode_starts] = True
    columns = (rows.obs, rows.action, rows.reward, starts, rows.mask)
    return ValidationRows(*(jnp.asarray(np.asarray(column)[:MAX_ROWS]) for column in columns))


@jax.jit
def distance_along(
    policy: Policy, log: ValidationRows, half_range: Float[Array, " act"]
) -> Float[Array, ""]:
    """As :func:`held_out_distance`, for a policy with memory, run along the log row by row."""

    def step(carry: Any, row: ValidationRows) -> tuple[Any, Float[Array, ""]]:
        fresh = policy.initial_carry()
        carry = jax.tree.map(lambda new, old: jnp.where(row.starts, new, old), fresh, carry)
        carry, proposed = policy(carry, row.obs, None)
        square = jnp.mean(jnp.square((proposed - row.action) / half_range))
        return policy.sent(carry, row.action), jnp.where(row.mask, square, 0)

    squares = jax.lax.scan(step, policy.initial_carry(), log)[1]
    return jnp.sum(squares) / jnp.maximum(jnp.sum(log.mask), 1)


@partial(jax.jit, static_argnames="episodes")
def return_prediction_error(
    policy: SequencePolicy, log: ValidationRows, episodes: int
) -> Float[Array, ""]:
    """Mean over episodes of the absolute error of the policy's own count of its return.

    The policy runs along the log as it would beside the plant, with the logged actions. Its count
    excludes the last step of an episode, after which no observation arrives, and so does the
    logged return that it is compared with.
    """

    def step(carry: Any, row: ValidationRows) -> tuple[Any, Float[Array, ""]]:
        fresh = policy.initial_carry()
        carry = jax.tree.map(lambda new, old: jnp.where(row.starts, new, old), fresh, carry)
        before, _ = policy.remaining(carry)
        carry, _ = policy(carry, row.obs, None)
        after, _ = policy.remaining(carry)
        return policy.sent(carry, row.action), before - after

    counted = jax.lax.scan(step, policy.initial_carry(), log)[1]
    logged = jnp.roll(jnp.where(log.mask, log.reward, 0), 1)
    differences = jnp.where(log.starts | ~jnp.roll(log.mask, 1), 0, counted - logged)
    number = jnp.cumsum(log.starts) - 1
    return jnp.mean(jnp.abs(jax.ops.segment_sum(differences, number, num_segments=episodes)))


@jax.jit
def _sums(
    reward: Float[Array, "start time"],
    cost: Float[Array, "start time cost"],
    mask: Float[Array, "start time"],
) -> tuple[Float[Array, ""], Float[Array, " cost"]]:
    total = jnp.where(mask, reward, 0).sum(axis=1).mean()
    return total, jnp.where(mask[..., None], cost, 0).sum(axis=1).mean(axis=0)


def action_half_range(spec: Spec) -> np.ndarray:
    """Half the range of every action channel, in its unit."""
    return np.array([(c.high - c.low) / 2 for c in spec.action], np.float32)
