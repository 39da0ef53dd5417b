"""A plant log: many episodes under the plant's own controllers, in one compiled program."""

import functools
import importlib.metadata
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_core import Policy, Spec, Step
from neorl_envs.closed_loop import LoopStep, Rollout, drawn_start, rollout
from neorl_envs.datasets._dataset import Dataset, dataset_from_columns
from neorl_envs.recording._behaviour import (
    BehaviourPolicy,
    OperatorPlan,
    Recordable,
    behaviour_policies,
    in_manual,
    operator_log_prob,
    setpoint_names,
    setpoint_of,
    with_setpoint,
)

# Provenance of a collected log.


def excitation_attributes(spec: Spec, plan: OperatorPlan, rows: Any) -> dict[str, Any]:
    """Planned and realised excitation of every manipulated channel, ready for JSON."""
    seconds = spec.dt
    channels = [
        {
            "channel": channel.name,
            "unit": channel.unit,
            "prbs_amplitude": float(plan.amplitude[i]),
            "prbs_mean_dwell_s": float(plan.dwell) * seconds,
            "prbs_fraction_of_steps": float((rows.signal[:, i] != 0).mean()),
            "manual_fraction_of_steps": float(rows.manual[:, i].mean()),
            "action_std": float(rows.step.applied[:, i].std()),
        }
        for i, channel in enumerate(spec.action)
    ]
    return {
        "channels": channels,
        "manual_hold_s": [
            int(plan.hold_shortest) * seconds,
            int(plan.hold_longest) * seconds,
        ],
        "manual_hold_mean_interval_s": _interval(plan.hold_every, seconds),
        "setpoint_step": [float(step) for step in plan.setpoint_step],
        "setpoint_mean_interval_s": _interval(plan.setpoint_every, seconds),
        "setpoint_fraction_of_steps": float((rows.offset != 0).any(axis=-1).mean()),
    }


def _interval(steps: Array, seconds: float) -> float | None:
    """Seconds between two interventions; ``None`` if there are none, since JSON has no infinity."""
    return float(steps) * seconds if np.isfinite(steps) else None


def provenance_attributes(key: PRNGKeyArray, spread: float, n_steps: int) -> dict[str, Any]:
    """Everything needed to generate the same log again, without anything that varies by run."""
    return {
        "generator": "neorl_envs.collect_log",
        "neorl-envs": importlib.metadata.version("neorl-envs"),
        "jax": jax.__version__,
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "spread": spread,
        "n_steps": n_steps,
    }


EPISODES_A_BLOCK = 128


class LogRow(NamedTuple):
    """One step of the log, including the interventions of the operators.

    Attributes:
        obs: Observation before the step.
        step: Result of the plant's step, without the observation for the next step and ``info``,
            which a log does not contain.
        manual: Which manipulated variables were in manual.
        signal: Test signal added to the controller's output.
        offset: Setpoint offsets in units of the largest step.
        setpoint: Active setpoints; NaN for a controller without as many as there are columns.
        requested: Action that controller and operators requested; ``()`` without densities.
        operators: State of the operators; ``()`` without densities.
        log_prob: Log-density of the request; ``()`` without densities.
    """

    obs: Float[Array, " obs"]
    step: Step
    manual: Bool[Array, " act"]
    signal: Float[Array, " act"]
    offset: Float[Array, " loop"]
    setpoint: Float[Array, " loop"]
    requested: Any = ()
    operators: Any = ()
    log_prob: Any = ()


def collect_log(
    env: Recordable,
    controllers: Mapping[str, Policy] | None = None,
    *,
    n_steps: int = 100_000,
    key: PRNGKeyArray,
    plan: OperatorPlan | None = None,
    spread: float = 0.15,
    log_prob: bool = False,
) -> Dataset:
    """Collects complete episodes under the plant's controllers and its operators.

    Every episode samples its own parameters of the plant. The controllers take turns, so each acts
    in the same number of episodes. Operators step setpoints, hold manipulated variables in manual,
    and add a binary test signal to each. The log records the action that the plant received. The
    controller receives this action minus the test signal as feedback, so that it neither winds up
    during a hold nor integrates the signal. Episodes are independent of one another and of
    ``n_steps``: a longer log begins with the shorter one.

    Args:
        env: A plant, which must be hashable.
        controllers: Policies by name; the environment's own tunings by default. Operators step the
            setpoints of a controller if it has as many as the plan.
        n_steps: Smallest number of rows; the log ends with the first complete round of controllers
            that reaches it.
        key: Random key, which determines the whole log.
        plan: Plan of the operators; the environment's own plan by default.
        spread: Relative spread of every episode's parameters.
        log_prob: Whether to record ``requested``, the action before the plant's own limits, and
            ``behaviour_log_prob``, the log-density of what was drawn in the row to request it, for
            importance-weighted estimators. It adds that of the operators' draws (test signals,
            setpoints, holds) to that of the controller: its method ``log_prob(carry, obs, action)``
            if there is one, like that of :class:`neorl_core.control.UniformPolicy`, and otherwise
            zero, since it draws nothing. The other columns do not depend on this option.

    Returns:
        The log, with the columns ``mode`` (manual holds), ``setpoint`` (if the controllers have
        setpoints) and ``test_signal``. Its attributes are ``excitation`` of every channel,
        ``behaviours`` (names of the controllers, to which ``dataset.behaviour`` refers) and
        ``provenance``.

    Raises:
        ValueError: If ``n_steps`` is below one or there is no controller; with ``log_prob``, also
            if operators hold a random controller in manual, which hides what it drew.

    Example:
        >>> import neorl_envs
        >>> env = neorl_envs.make("ChemicalReactor-v0")
        >>> log = collect_log(env, n_steps=100_000, key=jax.random.key(0))  # doctest: +SKIP
        >>> log.n_episodes, log.attributes["behaviours"]  # doctest: +SKIP
        (644, ['100/1500', '106/1500', '106/3000', '108/3000'])
    """
    collection = Collection.of(
        env, controllers, n_steps=n_steps, key=key, plan=plan, spread=spread, log_prob=log_prob
    )
    n_episodes, parts = 0, []
    for lengths, rows in collection.blocks(np.zeros(0, np.int64)):
        n_episodes += len(lengths)
        parts.append(rows)
    log: Any = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    del parts
    return collection.dataset(log, first=0, n_episodes=n_episodes)


class Collection(NamedTuple):
    """Settings that determine a collected log.

    Attributes:
        env: The plant.
        policies: Policies by name, which take turns.
        plan: Plan of the operators.
        n_steps: Smallest number of rows.
        key: Random key, which determines the whole log.
        spread: Relative spread of every episode's parameters.
        log_prob: Whether log-densities are recorded.
    """

    env: Recordable
    policies: Mapping[str, BehaviourPolicy]
    plan: OperatorPlan
    n_steps: int
    key: PRNGKeyArray
    spread: float
    log_prob: bool

    @classmethod
    def of(
        cls,
        env: Recordable,
        controllers: Mapping[str, Policy] | None,
        *,
        n_steps: int,
        key: PRNGKeyArray,
        plan: OperatorPlan | None,
        spread: float,
        log_prob: bool,
    ) -> "Collection":
        """Creates the settings from the arguments of :func:`collect_log`."""
        if n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {n_steps}")
        policies = behaviour_policies(env, controllers, plan)
        if not policies:
            raise ValueError("collect_log needs at least one controller, got none")
        if log_prob:
            _require_visible(policies)
        operators = env.operator_plan() if plan is None else plan
        return cls(env, policies, operators, n_steps, key, spread, log_prob)

    def blocks(self, lengths: Int[np.ndarray, " episode"]) -> Iterator[tuple[np.ndarray, Any]]:
        """Simulates blocks of episodes until there are enough rows.

        Yields the number of rows of every further episode, and a :class:`LogRow` of host arrays.
        ``lengths`` must consist of whole blocks.
        """
        n_policies = len(self.policies)
        block = max(EPISODES_A_BLOCK // n_policies, 1) * n_policies
        loops, policies = _widest(self.policies), tuple(self.policies.values())
        while lengths.sum() < self.n_steps:
            episodes = np.arange(lengths.size, lengths.size + block)
            part = _episodes_of_all(
                self.env, policies, self.key, episodes, self.spread, loops, self.log_prob
            )
            own = np.asarray(part.mask).sum(axis=1)
            lengths = np.append(lengths, own)
            if lengths.sum() >= self.n_steps:  # last block: stop after the round with enough rows
                own = own[: _episodes_needed(lengths, self.n_steps, n_policies) - episodes[0]]
            n_rows = int(own.sum())
            yield own, jax.tree.map(lambda x, m=part.mask, n=n_rows: x[m][:n], part.rows)

    def dataset(self, rows: Any, *, first: int, n_episodes: int) -> Dataset:
        """Converts some episodes to a dataset.

        ``rows`` is a :class:`LogRow` of host arrays.
        """
        attributes = provenance_attributes(self.key, self.spread, self.n_steps)
        attributes = {**attributes, "episodes": n_episodes}
        turns = (first + np.arange(n_episodes)) % len(self.policies)
        return _as_dataset(self.env, self.plan, tuple(self.policies), turns, rows, attributes)


def _widest(policies: Mapping[str, BehaviourPolicy]) -> int:
    """Number of setpoint columns, which is that of the controllers with stepped setpoints."""
    return max(
        (setpoint_of(p.controller).size for p in policies.values() if p.steps_setpoints), default=0
    )


def _episodes_of_all(
    env: Recordable,
    policies: tuple[BehaviourPolicy, ...],
    key: PRNGKeyArray,
    episodes: np.ndarray,
    spread: float,
    loops: int,
    log_prob: bool,
) -> Rollout:
    """Simulates episodes; controllers that differ only in numbers share one compiled program."""
    forms: dict[Any, list[int]] = {}
    for i, policy in enumerate(policies):
        forms.setdefault(_form(policy), []).append(i)
    turns = episodes % len(policies)
    parts, order = [], []
    for members in forms.values():
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *(policies[i] for i in members))
        indices = np.flatnonzero(np.isin(turns, members))
        policy_index = np.searchsorted(members, turns[indices])
        part = _collect_block(
            env, stacked, key, episodes[indices], policy_index, spread, loops, log_prob
        )
        parts.append(jax.device_get(part))
        order.append(indices)
    episode_order = np.argsort(np.concatenate(order))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[episode_order], *parts)


def _form(policy: BehaviourPolicy) -> tuple:
    leaves, structure = jax.tree.flatten(policy)
    return structure, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)


def _episodes_needed(lengths: np.ndarray, n_steps: int, n_tunings: int) -> int:
    n_required = int(np.searchsorted(np.cumsum(lengths), n_steps)) + 1
    return -(-n_required // n_tunings) * n_tunings


@functools.partial(jax.jit, static_argnums=(0, 5, 6, 7))
def _collect_block(
    env: Recordable,
    policies: BehaviourPolicy,
    key: PRNGKeyArray,
    episodes: Array,
    policy_index: Array,
    spread: float,
    loops: int,
    log_prob: bool,
) -> Rollout:
    """Simulates a batch of episodes up to the horizon; the rows have axes ``(episode, time)``.

    ``policies`` is a stack, and ``policy_index`` holds the index of every episode's policy.
    """

    def episode(index: Array, turn: Array) -> Rollout:
        policy = jax.tree.map(lambda leaf: leaf[turn], policies)
        return _episode(env, policy, jax.random.fold_in(key, index), spread, loops, log_prob)

    return jax.vmap(episode)(episodes, policy_index)


def _episode(
    env: Recordable,
    policy: BehaviourPolicy,
    key: PRNGKeyArray,
    spread: float,
    loops: int,
    log_prob: bool,
) -> Rollout:
    start = drawn_start(env, key, spread=spread)
    # The published logs were recorded with the two keys of a step in this order.
    keys = jax.vmap(jax.random.split)(start.noise_keys)
    start = start._replace(noise_keys=keys[:, 0], policy_keys=keys[:, 1])

    def row(loop_step: LoopStep) -> LogRow:
        behaviour = loop_step.carry
        setpoint = policy.setpoint(behaviour.operators)
        if setpoint.size != loops:
            setpoint = jnp.full(loops, jnp.nan)
        return LogRow(
            obs=loop_step.obs,
            step=loop_step.step._replace(obs=(), info=()),
            manual=in_manual(policy.plan, behaviour.operators),
            signal=behaviour.signal,
            offset=behaviour.operators.offset,
            setpoint=setpoint,
            requested=loop_step.action if log_prob else (),
            operators=behaviour.operators if log_prob else (),
            log_prob=_controller_log_prob(policy, loop_step) if log_prob else (),
        )

    acting: Any = policy  # random, so unlike a Policy it requires a key
    recorded = rollout(env, acting, start, record=row)
    if not log_prob:
        return recorded
    rows = recorded.rows
    density = rows.log_prob + _operators_log_prob(policy, rows.operators, rows.obs)
    return recorded._replace(rows=rows._replace(operators=(), log_prob=density))


def _require_visible(policies: Mapping[str, BehaviourPolicy]) -> None:
    for name, policy in policies.items():
        if hasattr(policy.controller, "log_prob") and np.isfinite(policy.plan.hold_every):
            raise ValueError(
                f"the controller {name!r} is random, and a manual hold hides what it draws, so "
                "that its action has no density; leave log_prob out, or give a plan without holds "
                "(hold_every=inf)"
            )


def _controller_log_prob(policy: BehaviourPolicy, loop_step: LoopStep) -> Float[Array, ""]:
    """The log-density of the controller's own part of a request; zero if it draws nothing."""
    behaviour, controller = loop_step.carry, policy.controller
    if not hasattr(controller, "log_prob"):
        return jnp.zeros((), loop_step.action.dtype)
    controller: Any = with_setpoint(controller, policy.setpoint(behaviour.operators))
    proposed = loop_step.action - behaviour.signal
    return controller.log_prob(behaviour.control, loop_step.obs, proposed)


def _operators_log_prob(
    policy: BehaviourPolicy, operators: Any, obs: Float[Array, "time obs"]
) -> Float[Array, " time"]:
    """The log-density of the operators' draws in every step of an episode."""
    start = policy.initial_carry().operators
    before = jax.tree.map(lambda first, x: jnp.concatenate([first[None], x[:-1]]), start, operators)
    log_prob = functools.partial(
        operator_log_prob, policy.plan, steps_setpoints=policy.steps_setpoints
    )
    started = jnp.arange(len(obs)) > 0
    return jax.vmap(lambda b, a, o, s: log_prob(b, a, o, started=s))(
        before, operators, obs, started
    )


def _as_dataset(
    env: Recordable,
    plan: OperatorPlan,
    behaviours: tuple[str, ...],
    turns: Int[np.ndarray, " episode"],
    flat: Any,  # a LogRow of host arrays
    provenance: Mapping[str, Any],
) -> Dataset:
    loops = flat.setpoint.shape[1]
    named = {"setpoints": setpoint_names(env.spec, loops)} if loops else {}
    return dataset_from_columns(
        env.spec,
        obs=flat.obs,
        action=flat.step.applied,
        reward=flat.step.reward,
        cost=flat.step.cost,
        next_obs=flat.step.final_obs,
        terminated=flat.step.terminated,
        truncated=flat.step.truncated,
        behaviour=turns,
        behaviour_log_prob=None if isinstance(flat.log_prob, tuple) else flat.log_prob,
        requested=None if isinstance(flat.requested, tuple) else flat.requested,
        mode=flat.manual,
        test_signal=flat.signal,
        setpoint=flat.setpoint if flat.setpoint.shape[1] else None,
        attributes={
            "name": env.name,
            "behaviours": list(behaviours),
            **named,
            "excitation": excitation_attributes(env.spec, plan, flat),
            "provenance": {**provenance, "environment": env.name},
        },
        source="collected log",
    )
