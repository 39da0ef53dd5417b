"""Actions that a policy would have taken on a log, while the plant receives the logged actions."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Policy, Spec, as_arrays
from neorl_core.control import follow
from neorl_envs import Dataset
from neorl_safety.filters import SafetyReport
from neorl_train.judging._estimates import mean_estimates
from neorl_train.judging._pool import Pool, as_pool
from neorl_train.judging._results import LINE, ActionFit
from neorl_train.judging._rollouts import is_guarded, report_of
from neorl_train.judging._tables import Estimate

EPISODES = 256


class _ShadowState(NamedTuple):
    policy: Any
    carry: Any
    key: PRNGKeyArray


def action_fits(
    policies: Pool | Mapping[str, Policy],
    dataset: Dataset,
    *,
    level: float,
    controllers: Mapping[str, Policy] | None = None,
) -> tuple[ActionFit, ...]:
    """Runs every policy in shadow on the first episodes of a log.

    In each step the policy proposes an action for the logged observation and then receives the
    logged action, as it would beside a running plant.

    Args:
        policies: Candidates, or policies by name.
        dataset: Log of episodes on which they were not trained.
        level: Confidence level of the intervals.
        controllers: Controllers by name, which are only compared and come first.

    Returns:
        One entry for each policy and action channel. If one of the controllers is ``"linear
        feedback"``, the others are compared with it episode by episode.
    """
    pool = as_pool(policies)
    policies = {**(controllers or {}), **pool.policies}
    if not policies:
        return ()
    obs, action, mask = _pad(dataset)
    counted = mask.any(axis=1)
    proposals = {
        name: np.asarray(jax.device_get(shadow(as_arrays(policy), obs, action))[0], np.float64)
        for name, policy in policies.items()
    }
    distances = {
        name: np.where(mask[..., None], np.abs(proposed - action), 0.0)[counted].sum(axis=1)
        / mask[counted].sum(axis=1)[:, None]
        for name, proposed in proposals.items()
    }
    columns = {(name, ""): distances[name] for name in proposals}
    if LINE in distances:
        columns |= {
            (name, LINE): distances[name] - distances[LINE] for name in proposals if name != LINE
        }
    # All in one table, because the bootstrap takes as long for a few columns as for many.
    estimates = iter(mean_estimates(np.concatenate([*columns.values()], axis=1), level=level))
    n_action = dataset.spec.n_action
    means = {key: [next(estimates) for _ in range(n_action)] for key in columns}
    fits: list[ActionFit] = []
    for name, proposed in proposals.items():
        beyond = means.get((name, LINE), [None] * n_action)
        distance = means[name, ""]
        fits += _fits(
            name, proposed[mask], action[mask], distance, beyond, dataset.spec, counted.sum()
        )
    return tuple(
        dataclasses.replace(fit, group=pool[fit.policy].group, family=pool[fit.policy].family)
        if fit.policy in pool
        else dataclasses.replace(fit, group=fit.policy)
        for fit in fits
    )


@jax.jit
def shadow(
    policy: Policy, obs: Float[Array, "episode time obs"], action: Float[Array, "episode time act"]
) -> tuple[Float[Array, "episode time act"], SafetyReport]:
    """Actions that a policy would have taken in logged episodes, given the logged actions.

    Args:
        policy: Policy, guarded or not, with array leaves. One program is compiled for each kind.
        obs: Observations of the log.
        action: Actions that the plant received.

    Returns:
        The actions that it requests, and the report of its guard; an empty report if it has none.
    """
    return jax.vmap(_episode, in_axes=(None, 0, 0))(policy, obs, action)


def _episode(
    policy: Policy, obs: Float[Array, "time obs"], action: Float[Array, "time act"]
) -> tuple[Float[Array, "time act"], SafetyReport]:
    start = _ShadowState(policy, policy.initial_carry(), jax.random.key(0))
    return jax.lax.scan(_step, start, (obs, action))[1]


def _step(
    state: _ShadowState, row: tuple[Array, Array]
) -> tuple[_ShadowState, tuple[Array, SafetyReport]]:
    obs, logged = row
    key, used = jax.random.split(state.key)
    carry, proposed = state.policy(state.carry, obs, used)
    report = report_of(carry, proposed)
    if is_guarded(carry):  # reported to a guard as if its own proposal had become the logged action
        carry = state.policy.sent(carry, logged)
    else:
        carry = follow(state.policy, carry, logged)
    return state._replace(carry=carry, key=key), (proposed, report)


def _pad(dataset: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, mask = dataset.padded_rows(slice(EPISODES))
    columns: Any = dataset.transitions
    return columns.obs[rows], columns.action[rows], mask


def _fits(
    name: str,
    requested: np.ndarray,
    logged: np.ndarray,
    means: Sequence[Estimate],
    beyond: Sequence[Estimate | None],
    spec: Spec,
    n_episodes: int,
) -> list[ActionFit]:
    logged = logged.astype(np.float64)
    variance = logged.var(axis=0)
    unexplained = ((requested - logged) ** 2).mean(axis=0)
    # The inner `where` keeps NumPy from dividing by zero before the outer one discards the result.
    explained = np.where(
        variance > 0, 1 - unexplained / np.where(variance > 0, variance, 1), np.nan
    )
    return [
        ActionFit(
            policy=name,
            channel=channel.name,
            unit=channel.unit,
            difference=means[i],
            deviation=float(np.sqrt(variance[i])),
            explained=float(explained[i]),
            n_episodes=int(n_episodes),
            n_rows=len(logged),
            beyond_line=beyond[i],
        )
        for i, channel in enumerate(spec.action)
    ]
