"""Paired episodes in the simulator, with one compiled program for all kinds of policies."""

import functools
import operator
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from neorl_core import Environment, Policy, Spec, as_arrays, highs, lows
from neorl_core.costs import limit_kind
from neorl_envs import Dataset, closed_loop
from neorl_envs.closed_loop import LoopStep, Start
from neorl_safety.filters import Flag, SafetyReport, empty_report
from neorl_train.judging._results import (
    HARDEST,
    LOWEST,
    SMALLEST,
    TYPICAL,
    Episodes,
    Trace,
    limited_quantity,
)

STARTS_STREAM, CURVES_STREAM = (
    0x57A7,
    2**31 + 1,
)  # the latter is larger than the number of any start


STARTS_AT_ONCE = 128
"""Starts of one call of the program of an evaluation. A start alone is padded with itself and runs
the same instructions as among many, so it gives the same bits."""


def starts_key(seed: int) -> PRNGKeyArray:
    """The key of the starts of an evaluation, used for no other purpose with this seed."""
    return jax.random.fold_in(jax.random.key(seed), STARTS_STREAM)


def curve_key(seed: int) -> PRNGKeyArray:
    """The key of the starts on which policies are evaluated during training."""
    return jax.random.fold_in(starts_key(seed), CURVES_STREAM)


class EpisodeRows(NamedTuple):
    """Rows of one episode, padded to the horizon; a leading axis holds several episodes.

    Row ``t`` is the transition that starts at time ``t dt``. Rows where ``mask`` is false follow
    the end of the episode; the last transition, terminal or not, is counted.

    Attributes:
        first_obs: Initial observation, shape ``(obs,)``.
        obs: Observation after each transition, shape ``(time, obs)``.
        action: Action that the policy (or its guard) requested, shape ``(time, act)``.
        applied: Action after the plant's own limits, shape ``(time, act)``.
        reward: Reward of each transition, shape ``(time,)``.
        cost: Costs of each transition, shape ``(time, cost)``.
        terminated: Whether the plant ended the episode in this row, shape ``(time,)``.
        success: Whether it ended successfully, shape ``(time,)``; if the environment's ``info`` has
            no field ``success``, this means reaching the time limit.
        mask: Whether the transition belongs to the episode, shape ``(time,)``.
        flags: Decisions of the guard, bits of ``neorl_safety.filters.Flag``, shape ``(time,)``.
        intervention: Change that the guard made to each channel, shape ``(time, act)``.
        limits: Active limits of each channel, bits of ``neorl_safety.filters.Limit``.
        alarms: Monitors of the guard that raise an alarm, one bit each, shape ``(time,)``.
        terms: Terms of the reward, shape ``(time, term)``.
    """

    first_obs: Float[Array, "*start obs"]
    obs: Float[Array, "*start time obs"]
    action: Float[Array, "*start time act"]
    applied: Float[Array, "*start time act"]
    reward: Float[Array, "*start time"]
    cost: Float[Array, "*start time cost"]
    terminated: Bool[Array, "*start time"]
    success: Bool[Array, "*start time"]
    mask: Bool[Array, "*start time"]
    flags: UInt32[Array, "*start time"]
    intervention: Float[Array, "*start time act"]
    limits: UInt32[Array, "*start time act"]
    alarms: UInt32[Array, "*start time"]
    terms: Float[Array, "*start time term"]


def rollouts(
    environment: Environment, policy: Policy, key: PRNGKeyArray, indices: Int[Array, " start"]
) -> EpisodeRows:
    """Runs episodes of a policy from given starts, paired with those of every other policy.

    Plant parameters, initial state, disturbances and measurement noise of start ``i`` are functions
    of ``(key, i)`` only, so every policy gets the same ones: common random numbers. After each
    step, ``sent`` passes the action that the plant received to the policy.

    Args:
        environment: A PyTree with ``sample_params(key)``.
        policy: Policy in physical units, guarded or not, with array leaves.
        key: Key of the complete set of starts.
        indices: Numbers of the starts.

    Returns:
        The rows of every start, padded to the horizon of the specification. One program is
        compiled for each kind of policy and number of starts.
    """
    return _run_episodes(environment, policy, paired_starts(environment, key, indices))


def rollouts_in_chunks(
    environment: Environment,
    policy: Policy,
    key: PRNGKeyArray,
    indices: Int[np.ndarray, " start"],
    *,
    at_once: int = STARTS_AT_ONCE,
) -> Iterator[EpisodeRows]:
    """As :func:`rollouts`, for a limited number of starts at a time, returned on the host.

    Chunks of equal size, the last one padded, limit the memory and need only one program. So a
    start gives the same bits alone and among many.
    """
    for begin in range(0, len(indices), at_once):
        chunk = indices[begin : begin + at_once]
        # Repeat the chunk's own starts to fill it, because another size would need another program.
        padded = jnp.asarray(np.resize(chunk, at_once))
        rows = jax.device_get(rollouts(environment, policy, key, padded))
        yield jax.tree.map(operator.itemgetter(slice(len(chunk))), rows)


def all_rollouts(
    environment: Environment,
    policy: Policy,
    key: PRNGKeyArray,
    indices: Int[np.ndarray, " start"],
) -> EpisodeRows:
    """The rows of :func:`rollouts_in_chunks` together, from the one program of an evaluation."""
    chunks = rollouts_in_chunks(environment, policy, key, indices)
    return jax.tree.map(lambda *columns: np.concatenate(columns), *chunks)


@jax.jit
def paired_starts(
    environment: Environment, key: PRNGKeyArray, indices: Int[Array, " start"]
) -> Start:
    """The starts with the given numbers, along a leading axis."""
    return jax.vmap(_start, in_axes=(None, None, 0))(environment, key, indices)


def _start(environment: Any, key: PRNGKeyArray, index: Int[Array, ""]) -> Start:
    plant, reset, noise, acting = jax.random.split(jax.random.fold_in(key, index), 4)
    params = environment.sample_params(plant)
    state, obs = environment.reset(params, reset)
    horizon = environment.spec.horizon
    return Start(
        params, state, obs, jax.random.split(noise, horizon), jax.random.split(acting, horizon)
    )


@jax.jit
def _run_episodes(environment: Environment, policy: Policy, starts: Start) -> EpisodeRows:
    return jax.vmap(_episode, in_axes=(None, None, 0))(environment, policy, starts)


def _episode(environment: Environment, policy: Policy, start: Start) -> EpisodeRows:
    episode = closed_loop.rollout(environment, policy, start, record=_row, hold=True)
    return EpisodeRows(first_obs=start.obs, mask=episode.mask, **episode.rows)


def _row(loop_step: LoopStep) -> dict[str, Array]:
    step, report = loop_step.step, report_of(loop_step.carry, loop_step.action)
    return dict(
        obs=step.final_obs,
        action=loop_step.action,
        applied=step.applied,
        reward=step.reward,
        cost=step.cost,
        terminated=step.terminated,
        success=jnp.asarray(getattr(step.info, "success", step.truncated), jnp.bool_),
        flags=report.flags,
        intervention=report.intervention,
        limits=report.limits,
        alarms=report.alarms,
        terms=getattr(step.info, "terms", jnp.zeros(0, step.reward.dtype)),
    )


def report_of(carry: Any, action: Float[Array, " act"]) -> SafetyReport:
    """Report of a guard on the last step; empty if the carry does not belong to a guard."""
    return carry.report if is_guarded(carry) else empty_report(action.shape[0], action.dtype)


def is_guarded(carry: Any) -> bool:
    """Whether a carry belongs to a guard: it contains a report."""
    return isinstance(getattr(carry, "report", None), SafetyReport)


ROWS_AT_ONCE = 2**20
GUARD_ACTED = int(
    Flag.BOX_ACTIVE | Flag.RATE_ACTIVE | Flag.INTERVAL_ACTIVE | Flag.ROWS_ACTIVE | Flag.WEAR_ACTIVE
)


def episodes_of(rollout: EpisodeRows, spec: Spec) -> Episodes:
    """Summarises padded rows; every row inside the mask is counted, including the terminal one.

    Args:
        rollout: Rows with the start as leading axis, on the host.
        spec: Cost channels with their limits.

    Returns:
        One entry per start.
    """
    rows: Any = jax.tree.map(np.asarray, rollout)
    mask = rows.mask
    cost_sum, cost_worst, steps_over, violated = _costs(rows.cost, mask, spec)
    fell_back = (rows.flags & int(Flag.FALLBACK_USED)) != 0
    changed = ((rows.flags & GUARD_ACTED) != 0) & ~fell_back
    ended = (rows.terminated & mask).any(axis=1)
    success = (rows.success & mask).any(axis=1)
    trip = ended & ~success
    return Episodes(
        returns=np.where(mask, rows.reward, 0.0).sum(axis=1, dtype=np.float64),
        length=mask.sum(axis=1),
        cost_sum=cost_sum,
        cost_worst=cost_worst,
        steps_over=steps_over,
        # A trip counts as a violation: costs that would have followed it are missing from the sum.
        violated=violated | trip[:, None],
        success=success,
        trip=trip,
        filtered=(changed & mask).sum(axis=1),
        fallback=(fell_back & mask).sum(axis=1),
        alarms=np.bitwise_or.reduce(np.where(mask, rows.alarms, 0), axis=1).astype(np.int64),
        **_movement(rows.applied, mask, spec),
        terms=_sums(rows.terms, mask),
    )


def recorded_episodes(dataset: Dataset, spec: Spec | None = None) -> Episodes:
    """Summarises the episodes of a log, which does not record how they ended.

    Args:
        dataset: The log.
        spec: Cost channels with their limits; by default those of the log.

    Returns:
        One entry for each episode.
    """
    spec = dataset.spec if spec is None else spec
    # A few episodes at a time: padded to the longest, all together may far exceed the log.
    at_once = max(1, ROWS_AT_ONCE // int(dataset.episode_lengths.max()))
    groups = range(0, dataset.n_episodes, at_once)
    returns = dataset.episode_returns()
    return join_episodes([_episodes(dataset, spec, returns, slice(i, i + at_once)) for i in groups])


def _episodes(dataset: Dataset, spec: Spec, returns: np.ndarray, selected: slice) -> Episodes:
    columns: Any = dataset.transitions
    rows, mask = dataset.padded_rows(selected)
    cost_sum, cost_worst, steps_over, violated = _costs(columns.cost[rows], mask, spec)
    zeros, terms = np.zeros(len(rows), np.int64), dataset.term
    return Episodes(
        returns=returns[selected],
        length=mask.sum(axis=1),
        cost_sum=cost_sum,
        cost_worst=cost_worst,
        steps_over=steps_over,
        violated=violated,
        success=None,
        trip=None,
        filtered=zeros,
        fallback=zeros,
        alarms=zeros,
        **_movement(columns.action[rows], mask, spec),
        terms=_sums(np.zeros((*rows.shape, 0)) if terms is None else terms[rows], mask),
    )


def _sums(amounts: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Sums over the rows of every episode; an unknown amount adds nothing."""
    inside = mask[..., None] & np.isfinite(amounts)
    return np.where(inside, amounts, 0.0).sum(axis=1, dtype=np.float64)


def _movement(action: np.ndarray, mask: np.ndarray, spec: Spec) -> dict[str, np.ndarray]:
    """Travel and reversals of every actuator per episode; masked rows interrupt the movement."""
    inside = (mask[:, 1:] & mask[:, :-1])[..., None]
    moves = np.where(inside, np.diff(action.astype(np.float64), axis=1), 0.0)
    least = SMALLEST * (np.asarray(highs(spec.action)) - np.asarray(lows(spec.action)))
    signs = np.where(np.abs(moves) > least, np.sign(moves), 0.0)
    time = np.arange(signs.shape[1])[:, None]
    # The last move of more than `least` before each one, which a reversal is relative to.
    latest = np.maximum.accumulate(np.where(signs != 0, time, -1), axis=1)
    before = np.concatenate([np.full_like(latest[:, :1], -1), latest[:, :-1]], axis=1)
    earlier = np.take_along_axis(signs, np.maximum(before, 0), axis=1)
    reversed_ = (signs != 0) & (before >= 0) & (earlier != signs)
    return {"travel": np.abs(moves).sum(axis=1), "reversals": reversed_.sum(axis=1)}


def _costs(cost: np.ndarray, mask: np.ndarray, spec: Spec) -> tuple[np.ndarray, ...]:
    inside = np.where(mask[..., None], cost.astype(np.float64), 0.0)
    total, worst = inside.sum(axis=1), inside.max(axis=1)
    steps_over, violated = np.zeros(total.shape, np.int64), np.zeros(total.shape, np.bool_)
    for j, channel in enumerate(spec.cost):
        kind = limit_kind(channel)
        threshold = kind.row_threshold(channel.limit)
        # Not `inside > threshold`: a NaN cost counts as over the limit.
        steps_over[:, j] = (~(inside[..., j] <= threshold)).sum(axis=1)
        quantity = kind.of_episode(total=total, worst=worst)[:, j]
        violated[:, j] = kind.exceeded(quantity, channel.limit)
    return total, worst, steps_over, violated


def join_episodes(parts: Sequence[Episodes]) -> Episodes:
    """Concatenates the episodes of several chunks."""
    columns = {name: [getattr(part, name) for part in parts] for name in vars(parts[0])}
    joined_columns: dict[str, Any] = {
        name: None if any(column is None for column in values) else np.concatenate(values)
        for name, values in columns.items()
    }
    return Episodes(**joined_columns)


def trace_of(
    rollout: EpisodeRows, row: int, *, label: str, policy: str, guarded: bool, start: int
) -> Trace:
    """Row ``row`` of a rollout on the host, trimmed to the length of its episode."""
    episode: Any = jax.tree.map(lambda column: np.asarray(column[row]), rollout)
    length = int(episode.mask.sum())
    return Trace(
        label=label,
        policy=policy,
        guarded=guarded,
        start=start,
        obs=np.concatenate([episode.first_obs[None], episode.obs[:length]]).astype(np.float64),
        action=episode.action[:length].astype(np.float64),
        applied=episode.applied[:length].astype(np.float64),
        reward=episode.reward[:length].astype(np.float64),
        cost=episode.cost[:length].astype(np.float64),
        flags=episode.flags[:length].astype(np.int64),
    )


MAX_FURTHER, MAX_NUMBERS = 8, 200_000
"""Number of additional episodes, and the most numbers that the trace file may contain for them."""


def select_starts(episodes: Episodes, spec: Spec) -> dict[str, int]:
    """Starts to show: the median return, the lowest return, and the one nearest its limits.

    Args:
        episodes: Paired episodes of the candidate.
        spec: Cost channels with their limits.

    Returns:
        Label and number of each start. The last label is omitted if there is no cost, or its start
        was already chosen.
    """
    order = np.argsort(episodes.returns, kind="stable")
    chosen = {TYPICAL: int(order[(len(order) - 1) // 2]), LOWEST: int(order[0])}
    if spec.n_cost:
        hardest = int(np.argmax(_margin_used(episodes, spec)))
        if hardest not in chosen.values():
            chosen[HARDEST] = hardest
    return chosen


def further_starts(
    gains: Float[np.ndarray, " episode"], chosen: Collection[int], spec: Spec
) -> list[int]:
    """Additional starts to keep, spread evenly from the largest loss to the largest gain.

    At most eight, and at most about 200,000 numbers in their rows.
    """
    width = spec.n_obs + 2 * spec.n_action + spec.n_cost + 2
    available = MAX_NUMBERS // (2 * spec.horizon * width) - len(chosen)
    rest = [int(start) for start in np.argsort(gains, kind="stable") if int(start) not in chosen]
    count = min(MAX_FURTHER, available, len(rest))
    if count < 1:
        return []
    positions = np.unique(np.linspace(0, len(rest) - 1, count).round().astype(int))
    return [rest[position] for position in positions]


def _margin_used(episodes: Episodes, spec: Spec) -> Float[np.ndarray, " episode"]:
    """Constraint margin used: the largest limited cost over its limit (over 1 where that is 0)."""
    used = np.zeros(episodes.count)
    for i, channel in enumerate(spec.cost):
        cost = np.nan_to_num(limited_quantity(episodes, spec, i), nan=np.inf)
        used = np.maximum(used, cost / (channel.limit or 1.0))
    return used


class SwitchedCarry(NamedTuple):
    """Carry of a :class:`SwitchedPolicy`.

    Attributes:
        members: Carry of every member; only that of the selected one changes.
        report: Report of the selected member's guard; empty if it has none.
    """

    members: tuple[Any, ...]
    report: SafetyReport


class SwitchedPolicy(eqx.Module):
    """A fixed list of policies of different kinds, of which an index selects the one that acts.

    The other members only define shapes for the compiler: they are not executed, unless the index
    itself is batched.

    Attributes:
        members: One policy of every kind.
        chosen: Index of the one that acts, scalar.
        n_action: Number of action channels.
    """

    members: tuple[Any, ...]
    chosen: Int[Array, ""]
    n_action: int = eqx.field(static=True)

    def initial_carry(self) -> SwitchedCarry:
        """Fresh carries of all members."""
        carries = tuple(member.initial_carry() for member in self.members)
        return SwitchedCarry(carries, empty_report(self.n_action))

    def __call__(
        self, carry: SwitchedCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[SwitchedCarry, Float[Array, " act"]]:
        """Runs one step of the selected member."""
        branches = [functools.partial(_act, kind) for kind in range(len(self.members))]
        return jax.lax.switch(self.chosen, branches, self.members, carry, obs, key)

    def sent(self, carry: SwitchedCarry, action: Float[Array, " act"]) -> SwitchedCarry:
        """Passes the received action to the selected member."""
        branches = [functools.partial(_sent, kind) for kind in range(len(self.members))]
        return jax.lax.switch(self.chosen, branches, self.members, carry, action)


def _act(
    kind: int, members: tuple[Any, ...], carry: SwitchedCarry, obs: Array, key: PRNGKeyArray
) -> tuple[SwitchedCarry, Array]:
    member_carry, action = members[kind](carry.members[kind], obs, key)
    report = getattr(member_carry, "report", None)
    if not isinstance(report, SafetyReport):
        report = empty_report(action.shape[0])
    return SwitchedCarry(_replace(carry.members, kind, member_carry), report), action


def _sent(
    kind: int, members: tuple[Any, ...], carry: SwitchedCarry, action: Array
) -> SwitchedCarry:
    member_carry = members[kind].sent(carry.members[kind], action)
    return carry._replace(members=_replace(carry.members, kind, member_carry))


def _replace(entries: tuple[Any, ...], position: int, entry: Any) -> tuple[Any, ...]:
    return (*entries[:position], entry, *entries[position + 1 :])


def with_one_structure(policies: Sequence[Policy], n_action: int) -> list[SwitchedPolicy]:
    """Wraps policies so that all of them run in one compiled program.

    Args:
        policies: Policies of any kinds; a kind is a tree structure with the shapes of its leaves.
        n_action: Number of action channels.

    Returns:
        One wrapper for each policy, in order, all with the same structure.
    """
    arrays = [as_arrays(policy) for policy in policies]
    kinds: dict[Any, int] = {}
    for policy in arrays:
        kinds.setdefault(_structure_of(policy), len(kinds))
    members = [
        next(p for p in arrays if kinds[_structure_of(p)] == kind) for kind in kinds.values()
    ]
    wrapped = []
    for policy in arrays:
        kind = kinds[_structure_of(policy)]
        chosen = jnp.asarray(kind, jnp.int32)
        wrapped.append(SwitchedPolicy(_replace(tuple(members), kind, policy), chosen, n_action))
    return wrapped


def _structure_of(policy: Any) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten(policy)
    return structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
