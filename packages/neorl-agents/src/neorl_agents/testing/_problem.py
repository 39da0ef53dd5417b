"""A small control problem for testing learners, and a learner under test."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.learning import BaseLearner, Learner, log_tables
from neorl_agents.learning._contract import updated_once
from neorl_core import (
    Channel,
    CostChannel,
    DataStatistics,
    FieldStatistics,
    Spec,
    Transition,
    as_arrays,
)

# A small control problem for testing learners.


OBS, ACT, ROWS, EPISODE = 4, 2, 256, 32


class Problem(NamedTuple):
    """A specification, a log of random rows in physical units, and its statistics."""

    spec: Spec
    log: Transition
    statistics: DataStatistics

    def batch(self, learner: Learner, seed: int = 0) -> Any:
        """Samples the batch of one update from the log with the learner's sampler."""
        unread = {field: None for field in self.log._fields if field not in learner.fields}
        rows = log_tables(learner, self.spec, self.log._replace(**unread))
        tables = jax.tree.map(jnp.asarray, rows)
        shape = (learner.batches_per_update, learner.batch_size)
        return learner.sampler.draw(tables, jnp.int32(seed), jax.random.key(0), shape)


def sized(learner: Any, **settings: Any) -> Any:
    """A learner with some of its nested settings (``networks``, ``steps``) replaced, by name.

    A name that the learner itself has too, such as ``variant``, replaces only the learner's own.

    Args:
        learner: Any learner with nested settings.
        **settings: New values by name, such as ``hidden=(8, 8)`` and ``batch_size=32``.

    Example:
        >>> from neorl_agents import IQL
        >>> small = sized(IQL(), hidden=(8, 8), batch_size=32)
        >>> small.networks.hidden, small.steps.batch_size
        ((8, 8), 32)
    """
    own = {f.name for f in fields(learner)}
    nested = [f.name for f in fields(learner) if is_dataclass(getattr(learner, f.name))]
    for name in nested:
        section = getattr(learner, name)
        mine = ({f.name for f in fields(section)} & set(settings)) - own
        section = replace(section, **{field: settings.pop(field) for field in mine})
        learner = replace(learner, **{name: section})
    return replace(learner, **settings)


def statistics_of(log: Transition) -> DataStatistics:
    """Statistics of a log whose episodes have 32 rows."""

    def summary(column: Any) -> FieldStatistics:
        x = np.asarray(column, np.float64)
        least, most = (x.min(0), x.max(0)) if x.size else (x.sum(0), x.sum(0))
        fields = (np.float64(len(x)), x.mean(0), x.std(0), least, most)
        return FieldStatistics(*(np.asarray(field, np.float32) for field in fields))  # pyright: ignore

    returns = np.asarray(log.reward).reshape(-1, EPISODE).sum(1)
    lengths = np.full(len(returns), float(EPISODE))
    columns = (log.obs, log.action, log.reward, log.cost, returns, lengths, log.terminated)
    return DataStatistics(*map(summary, columns))


def make_problem(n_cost: int = 1, seed: int = 0) -> Problem:
    """Four observations in four units (the last one constant), two actions, random rows.

    Args:
        n_cost: Number of cost channels.
        seed: Seed of the rows.

    Returns:
        The problem, float32.
    """
    rng = np.random.default_rng(seed)
    offset, size = np.array([300.0, 0.0, 2e4, 5.0]), np.array([2.0, 1.0, 5e3, 0.0])
    low, high = np.array([0.0, 330.0]), np.array([3e4, 370.0])

    def f32(x: np.ndarray) -> jax.Array:
        return jnp.asarray(x, jnp.float32)

    action = np.clip(low + (high - low) * rng.normal(0.5, 0.4, size=(ROWS, ACT)), low, high)
    terminated, truncated = rng.uniform(size=(2, ROWS)) < 0.1
    ends = terminated | truncated
    log = Transition(
        obs=f32(offset + size * rng.normal(size=(ROWS, OBS))),
        action=f32(action),
        reward=f32(rng.normal(size=ROWS)),
        cost=f32(rng.uniform(size=(ROWS, n_cost))),
        next_obs=f32(offset + size * rng.normal(size=(ROWS, OBS))),
        next_action=f32(np.where(ends[:, None], 0, np.roll(action, -1, axis=0))),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(truncated),
    )
    spec = Spec(
        obs=tuple(
            Channel(f"x{i}", "K", float(o - 5 * s - 1), float(o + 5 * s + 1))
            for i, (o, s) in enumerate(zip(offset, size, strict=True))
        ),
        action=tuple(
            Channel(f"u{i}", "K", float(a), float(b))
            for i, (a, b) in enumerate(zip(low, high, strict=True))
        ),
        cost=tuple(CostChannel(f"c{i}", "1", 1.0, "step") for i in range(n_cost)),
        dt=10.0,
        horizon=EPISODE,
    )
    return Problem(spec, log, statistics_of(log))


def one_step_task() -> Problem:
    """Every row is an episode; actions are uniform, and three quarters of the range is best."""
    problem = make_problem()
    low, high = (
        np.array([getattr(c, end) for c in problem.spec.action]) for end in ("low", "high")
    )
    unit = np.random.default_rng(1).uniform(-1, 1, size=(ROWS, ACT))
    log = problem.log._replace(
        action=jnp.asarray(low + (unit + 1) / 2 * (high - low), jnp.float32),
        reward=jnp.asarray(task_reward(unit), jnp.float32),
        next_action=jnp.zeros((ROWS, ACT), jnp.float32),
        terminated=jnp.ones(ROWS, bool),
        truncated=jnp.zeros(ROWS, bool),
    )
    return Problem(problem.spec, log, statistics_of(log))


def endless(problem: Problem, constant: float = 0.0) -> Problem:
    """The same log without terminated rows, and with a constant added to its rewards."""
    ends = jnp.asarray(problem.log.terminated) | jnp.asarray(problem.log.truncated)
    log = problem.log._replace(
        reward=problem.log.reward + constant,
        terminated=jnp.zeros_like(ends),
        truncated=ends.at[-1].set(True),
    )
    return Problem(problem.spec, log, statistics_of(log))


def task_reward(unit: np.ndarray) -> np.ndarray:
    """The reward of :func:`one_step_task` for actions in [-1, 1]."""
    return -np.sum(np.square(unit - 0.5), axis=-1)


def in_other_units(problem: Problem) -> Problem:
    """The same plant in other units; all factors are powers of two, so conversion is exact."""
    obs, act = 2.0 ** np.array([-13, 10, -20, 3]), 2.0 ** np.array([-9, 5])
    reward, cost = 2.0**13, 2.0**-7

    def converted(channels: tuple[Channel, ...], factors: np.ndarray) -> tuple[Channel, ...]:
        return tuple(
            Channel(c.name, "other", float(c.low * f), float(c.high * f))
            for c, f in zip(channels, factors, strict=True)
        )

    following, following_action = problem.log.next_obs, problem.log.next_action
    # make_problem fills all of these fields.
    assert following is not None
    assert following_action is not None
    assert problem.log.cost is not None
    log = problem.log._replace(
        obs=problem.log.obs * obs[None].astype(np.float32),
        next_obs=following * obs[None].astype(np.float32),
        action=problem.log.action * act[None].astype(np.float32),
        next_action=following_action * act[None].astype(np.float32),
        reward=problem.log.reward * np.float32(reward),
        cost=problem.log.cost * np.float32(cost),
    )
    spec = Spec(
        obs=converted(problem.spec.obs, obs),
        action=converted(problem.spec.action, act),
        cost=tuple(CostChannel(c.name, "other", c.limit * cost, c.per) for c in problem.spec.cost),
        dt=problem.spec.dt,
        horizon=problem.spec.horizon,
    )
    return Problem(spec, log, statistics_of(log))


# Learners under test: a state, an update compiled once, other rates, masked rows.


traces: list[int] = []
"""One entry for each time that an update was traced."""


@jax.jit
def updated(algorithm: Learner, state: Any, batch: Any, key: Any) -> Any:
    traces.append(1)
    return updated_once(algorithm, state, batch, key)


@jax.jit
def side_by_side(algorithms: Any, state: Any, batch: Any, keys: Any) -> Any:
    return jax.vmap(lambda one, key: one.update(state, batch, key)[0])(algorithms, keys)


def fresh_state(learner: Any, problem: Problem, seed: int = 0, **given: Any) -> Any:
    """A fresh state of a learner; learners that must be fitted first are fresh too.

    Args:
        learner: The learner.
        problem: Its spec and statistics.
        seed: Seed of its key.
        **given: Further arguments of ``init``, such as a preparation.

    Returns:
        The state.
    """
    fits = learner.fits()
    context = {name: fresh_state(fits[name].learner, problem) for name in fits}
    key = jax.random.key(seed)
    return learner.init(problem.spec, problem.statistics, key, context=context, **given)


class Subject:
    """A learner with a state, which is made on first use."""

    def __init__(self, make: Callable[[], Learner]) -> None:
        self.make = make
        self.problem = make_problem()
        self._started: tuple[Any, Any, Any] | None = None
        self.hardened: Any = None

    def started(self) -> tuple[Any, Any, Any]:
        """The learner, the same with array leaves, and a fresh state."""
        if self._started is None:
            plain = self.make()
            self._started = plain, as_arrays(plain), fresh_state(plain, self.problem)
        return self._started


def with_rates(algorithm: Any, factor: float) -> Any:
    named = algorithm.rates.values() if isinstance(algorithm, BaseLearner) else ()
    names = set(named) or {f.name for f in fields(algorithm) if f.name.endswith("learning_rate")}
    return replace(algorithm, **{name: factor * getattr(algorithm, name) for name in names})


def with_rows(batch: Any, change: Callable[[Transition], Transition]) -> Any:
    if isinstance(batch, Transition):
        return change(batch)
    return batch._replace(rows=change(batch.rows))


def masked(batch: Any, mask: Any) -> Any:
    return with_rows(batch, lambda rows: rows._replace(mask=mask))


def batch_of(problem: Problem, plain: Any, seed: int = 0) -> Any:
    """A batch with a mask of which every row counts, so that one program serves all laws.

    One law compares it with a batch without a mask. It is on the host, where laws change it without
    compiling anything.
    """
    batch = jax.device_get(problem.batch(plain, seed=seed))
    return masked(batch, np.ones((plain.batches_per_update, plain.batch_size), bool))


def equal(left: Any, right: Any) -> bool:
    # In NumPy: JAX would compile a few programs for every shape.
    same = jax.tree.map(
        lambda a, b: np.array_equal(a, b, equal_nan=a.dtype.kind == "f"),
        *jax.device_get((left, right)),
    )
    return all(jax.tree.leaves(same))
