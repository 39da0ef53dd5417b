"""A plant log: many episodes under the plant's own controllers, in one compiled program."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Step
from neorl_core.control import PID
from neorl_envs.datasets._dataset import Dataset, dataset_from_columns
from neorl_envs.recording._behaviour import BehaviourPolicy
from neorl_envs.recording._operators import OperatorPlan, in_manual
from neorl_envs.recording._provenance import excitation_attributes, provenance_attributes
from neorl_envs.recording._recordable import Recordable

EPISODES_A_BLOCK = 128


class LogRow(NamedTuple):
    """One step of the log, with what the operators added.

    Attributes:
        obs: Observation before the step.
        step: What the plant answered.
        alive: Whether the episode was still running.
        manual: Which manipulated variables were in manual.
        signal: Test signal added to the controller's output.
        offset: Set-point offsets in units of the largest step.
    """

    obs: Float[Array, " obs"]
    step: Step
    alive: Bool[Array, ""]
    manual: Bool[Array, " act"]
    signal: Float[Array, " act"]
    offset: Float[Array, " loop"]


def collect_log(
    env: Recordable,
    tunings: Mapping[str, PID] | None = None,
    *,
    n_steps: int = 100_000,
    key: PRNGKeyArray,
    plan: OperatorPlan | None = None,
    spread: float = 0.15,
) -> Dataset:
    """Collects complete episodes under the plant's controllers and its operators.

    Every episode has its own draw of the plant's parameters. The tunings take turns, so each acts
    in the same number of episodes. Operators step set points, hold manipulated variables, and add
    a binary test signal to each. Recorded is the action that the plant received; the controller
    is told the same, less the test signal, so that it neither winds up during a hold nor learns
    the signal. Episodes are independent of one another and of ``n_steps``: a longer log begins
    with the shorter one.

    Args:
        env: A plant; hashable.
        tunings: The controllers by name; the environment's own by default.
        n_steps: Smallest number of rows; the log ends with the first complete round of tunings that
            reaches it.
        key: Decides everything.
        plan: What the operators do; the environment's own plan by default.
        spread: Relative width of the randomisation of every episode's parameters.

    Returns:
        The log. Attributes: ``excitation`` of every channel, ``behaviours`` (names of the
        tunings; ``dataset.behaviour`` says which acted when) and ``provenance``.

    Raises:
        ValueError: If ``n_steps`` is below one, there is no tuning, or the tunings differ in
            more than numbers.

    Example:
        >>> import neorl_envs
        >>> env = neorl_envs.make("ChemicalReactor-v0")
        >>> log = collect_log(env, n_steps=100_000, key=jax.random.key(0))  # doctest: +SKIP
        >>> log.n_episodes, log.attributes["behaviours"]  # doctest: +SKIP
        (644, ['100/1500', '106/1500', '106/3000', '108/3000'])
    """
    if n_steps < 1:
        raise ValueError(f"n_steps must be at least 1, got {n_steps}")
    banks: Mapping[str, PID] = env.tunings() if tunings is None else tunings
    operators = env.operator_plan() if plan is None else plan
    stacked = _stacked(banks)
    n_tunings = len(banks)
    block = max(EPISODES_A_BLOCK // n_tunings, 1) * n_tunings
    parts: list[LogRow] = []
    rows = 0
    while rows < n_steps:
        episodes = np.arange(len(parts) * block, (len(parts) + 1) * block)
        part = jax.device_get(_collect_block(env, operators, stacked, key, episodes, spread))
        parts.append(part)
        rows += int(part.alive.sum())
    log = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    log = jax.tree.map(lambda leaf: leaf[: _episodes_needed(log.alive, n_steps, n_tunings)], log)
    return _as_dataset(
        env, operators, tuple(banks), log, provenance_attributes(key, spread, n_steps)
    )


def _stacked(tunings: Mapping[str, PID]) -> PID:
    if not tunings:
        raise ValueError("collect_log needs at least one tuning, got none")
    first = _form(next(iter(tunings.values())))
    for name, tuning in tunings.items():
        if _form(tuning) != first:
            raise ValueError(
                f"tuning {name!r} has other loops than {next(iter(tunings))!r}; the tunings of "
                "one log may differ in numbers only"
            )
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *tunings.values())


def _form(tuning: PID) -> tuple:
    return jax.tree.structure(tuning), [leaf.shape for leaf in jax.tree.leaves(tuning)]


def _episodes_needed(alive: np.ndarray, n_steps: int, n_tunings: int) -> int:
    rows = np.cumsum(alive.sum(axis=1))
    enough = int(np.searchsorted(rows, n_steps)) + 1
    return -(-enough // n_tunings) * n_tunings


@functools.partial(jax.jit, static_argnums=(0, 5))
def _collect_block(
    env: Recordable,
    plan: OperatorPlan,
    tunings: PID,
    key: PRNGKeyArray,
    episodes: Array,
    spread: float,
) -> LogRow:
    """The given episodes at once, each to the horizon; axes ``(episode, time)``."""
    n_tunings = len(jax.tree.leaves(tunings)[0])

    def episode(index: Array) -> LogRow:
        tuning = jax.tree.map(lambda leaf: leaf[index % n_tunings], tunings)
        policy = BehaviourPolicy(tuning, plan)
        return _episode(env, policy, jax.random.fold_in(key, index), spread)

    return jax.vmap(episode)(episodes)


def _episode(env: Recordable, policy: BehaviourPolicy, key: PRNGKeyArray, spread: float) -> LogRow:
    for_params, for_reset, for_steps = jax.random.split(key, 3)
    params = env.sample_params(for_params, spread=spread)
    state, obs = env.reset(params, for_reset)
    carry = (state, obs, policy.initial_carry(), jnp.asarray(True))
    row = functools.partial(_row, env, policy, params)
    _, rows = jax.lax.scan(row, carry, jax.random.split(for_steps, env.spec.horizon))
    return rows


def _row(
    env: Recordable, policy: BehaviourPolicy, params: Any, carry: tuple, key: PRNGKeyArray
) -> tuple[tuple, LogRow]:
    state, obs, behaviour, alive = carry
    for_plant, for_policy = jax.random.split(key)
    behaviour, action = policy(behaviour, obs, for_policy)
    state, step = env.step(params, state, action, for_plant)
    behaviour = policy.sent(behaviour, step.applied)
    manual, offset = in_manual(policy.plan, behaviour.operators), behaviour.operators.offset
    row = LogRow(obs, step, alive, manual, behaviour.signal, offset)
    alive = alive & ~(step.terminated | step.truncated)
    return (state, step.obs, behaviour, alive), row


def _as_dataset(
    env: Recordable,
    plan: OperatorPlan,
    behaviours: tuple[str, ...],
    log: LogRow,
    provenance: Mapping[str, Any],
) -> Dataset:
    flat = jax.tree.map(lambda leaf: leaf[log.alive], log)
    n_episodes = len(log.alive)
    return dataset_from_columns(
        env.spec,
        obs=flat.obs,
        action=flat.step.applied,
        reward=flat.step.reward,
        cost=flat.step.cost,
        next_obs=flat.step.final_obs,
        terminated=flat.step.terminated,
        truncated=flat.step.truncated,
        behaviour=np.arange(n_episodes) % len(behaviours),
        attributes={
            "name": env.name,
            "behaviours": list(behaviours),
            "excitation": excitation_attributes(env.spec, plan, flat),
            "provenance": {**provenance, "environment": env.name, "episodes": n_episodes},
        },
        source="collected log",
    )
