"""Runs a batch of instances of an environment under hostile and harmless actions."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_core import Spec, Step, highs, lows
from neorl_envs.blocks import _devices as ins
from neorl_envs.plants import SimulatedPlant

WORLDS = (
    *("middle, then NaN", "uniform", "lowest", "highest"),
    *("end to end", "NaN", "infinite", "far outside"),
)
"""Kind of actions in every instance (called a world)."""


class NotCheckable(NamedTuple):
    """Result of a law that cannot be checked on this plant.

    Attributes:
        reason: What is missing, and how to make the law checkable.
    """

    reason: str


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """Steps of all worlds, on the host, axes ``(world, time)``.

    Attributes:
        env: The environment.
        spec: Its specification.
        seed: Seed of the actions.
        key: Random key of everything else.
        params: Parameters of every world.
        first: First observations.
        start: Initial state of one world.
        steps: All steps, including those after the end of an episode.
        state: States after the last step.
        again: The steps of a second call with equal arguments.
        other: First observations of a call with other keys.
        traces: Number of times the program was traced in all calls.
        alive: Whether the episode had not ended before the step.
        states: States before every step.
        actions: Actions demanded in every step.
        held: The steps of the same worlds with every actuator kept at its start position.
    """

    env: Any
    spec: Spec
    seed: int
    key: PRNGKeyArray
    params: Any
    first: np.ndarray
    start: Any
    steps: Step
    state: Any
    again: Step
    other: tuple[np.ndarray, Step]
    traces: int
    alive: np.ndarray
    states: Any
    actions: np.ndarray
    with_nan: Step

    @functools.cached_property
    def opening(self) -> Callable[..., tuple[Any, np.ndarray, Step]]:
        """:func:`opening` of the plant, compiled: of one world, where the episodes are a batch."""
        return jax.jit(functools.partial(opening, self.env, self.spec.horizon))


def opening(
    env: Any, horizon: int, params: Any, key: PRNGKeyArray, action: Any
) -> tuple[Any, Any, Step]:
    """State and observation of ``reset``, and the first step, with the keys of an episode."""
    for_reset, for_steps = jax.random.split(key)
    start, first = env.reset(params, for_reset)
    step = env.step(params, start, action, jax.random.split(for_steps, horizon)[0])[1]
    return start, first, step


def evidence(env: Any, seed: int) -> Evidence:
    """Runs the worlds with four calls of one compiled program."""
    spec = env.spec
    key = jax.random.key(seed)
    actions = _actions(spec, seed)
    traces = []

    def world(key: PRNGKeyArray, actions: jax.Array) -> Any:
        for_reset, for_steps = jax.random.split(key)
        params = env.sample_params(jax.random.fold_in(key, 2))  # 0 and 1 are used by the split
        start, first = env.reset(params, for_reset)

        def one(state: Any, row: Any) -> Any:
            after, answer = env.step(params, state, *row)
            return after, (state, answer)

        rows = (actions, jax.random.split(for_steps, spec.horizon))
        state, (states, steps) = jax.lax.scan(one, start, rows)
        return first, params, start, state, states, steps

    def program(keys: PRNGKeyArray, actions: jax.Array) -> Any:
        traces.append(None)
        return jax.vmap(world)(keys, actions)

    run = jax.jit(program)
    keys = world_keys(key)
    first, params, start, state, states, steps = jax.device_get(run(keys, actions))
    again = jax.device_get(run(keys, actions))[-1]
    others = world_keys(jax.random.fold_in(key, 1))
    other = jax.device_get(run(others, actions[::-1]))
    with_nan = jax.device_get(run(keys, np.full_like(actions, np.nan)))[-1]
    return Evidence(
        *(env, spec, seed, key, params, first, start, steps, state, again),
        (other[0], other[-1]),
        len(traces),
        until_the_end(steps),
        *(states, actions, with_nan),
    )


def until_the_end(steps: Step) -> np.ndarray:
    """Whether the episode had not ended before the step, shape ``(world, time)``."""
    ended = np.asarray(steps.terminated) | np.asarray(steps.truncated)
    return np.cumsum(ended, axis=1) - ended == 0


def world_keys(key: PRNGKeyArray) -> PRNGKeyArray:
    """The key of every world."""
    return jax.random.split(jax.random.fold_in(key, 7), len(WORLDS))


@functools.partial(jax.jit, static_argnums=1)
def keys_of_steps(keys: PRNGKeyArray, horizon: int) -> PRNGKeyArray:
    """The key of every step of worlds with the given keys, shape ``(world, time)``."""
    return jax.vmap(lambda key: jax.random.split(jax.random.split(key)[1], horizon))(keys)


def first_steps(
    evidence: Evidence, worlds: tuple[int, ...], *, compiled: bool
) -> list[tuple[np.ndarray, Step]]:
    """First observation and first step of every world, from single calls of ``reset``, ``step``."""
    eager = functools.partial(opening, evidence.env, evidence.spec.horizon)
    run = evidence.opening if compiled else eager
    keys, answers = world_keys(evidence.key), []
    for world in worlds:
        params = jax.tree.map(lambda leaf, i=world: jnp.asarray(leaf[i]), evidence.params)
        answer = run(params, keys[world], jnp.asarray(evidence.actions[world, 0]))
        answers.append(jax.device_get(answer[1:]))
    return answers


def _actions(spec: Spec, seed: int) -> np.ndarray:
    """Actions of all worlds, shape ``(world, time, act)``."""
    rng = np.random.default_rng(seed)
    low, high = (np.asarray(ends(spec.action), np.float32) for ends in (lows, highs))
    n, span = spec.horizon, high - low
    rows = np.broadcast_to((low + high) / 2, (len(WORLDS), n, spec.n_action)).copy()
    rows[0, 1] = np.nan
    rows[1] = rng.uniform(low, high, (n, spec.n_action))
    rows[2], rows[3] = low, high
    even = (np.arange(n) % 2 == 0)[:, None]
    rows[4] = np.where(even, low, high)
    rows[5] = np.nan
    rows[6] = np.where(even, np.inf, -np.inf)
    rows[7] = np.where(rng.random((n, spec.n_action)) < 0.5, low - 1e6 * span, high + 1e6 * span)
    return rows


# Single steps from states inside the episodes, which laws repeat with one change.


class Probes:
    """Three steps of every world, the last of which is the one before its end.

    The first axis of every leaf is that of the probes. All laws repeat the steps with one program
    and draw noise with another, since they change values, never shapes.

    Attributes:
        number: Number of probes.
        params: Parameters of the world.
        state: State before the step.
        action: Action demanded in the step.
        key: Random key of the step.
        after: State after the step.
        step: Result of the step.
    """

    def __init__(self, evidence: Evidence) -> None:
        rows = []
        for world, alive in enumerate(evidence.alive):
            times = np.flatnonzero(alive)
            rows += [(world, times[int(part * (len(times) - 1))]) for part in (0.1, 0.5, 1.0)]
        world, time = np.asarray(rows).T
        self._env = env = evidence.env
        self.number = len(rows)
        self.params = jax.tree.map(lambda leaf: np.asarray(leaf)[world], evidence.params)
        self.state = jax.tree.map(lambda leaf: np.asarray(leaf)[world, time], evidence.states)
        self.action = evidence.actions[world, time]
        self.key = keys_of_steps(world_keys(evidence.key), evidence.spec.horizon)[world, time]
        later = functools.partial(_one_later, world=world, time=time)
        self.after = jax.tree.map(later, evidence.states, evidence.state)
        self.step = jax.tree.map(lambda leaf: np.asarray(leaf)[world, time], evidence.steps)
        simulated = isinstance(env, SimulatedPlant)
        self._repeat = jax.jit(jax.vmap(env.step_with_noise if simulated else env.step))
        if simulated:
            shown = functools.partial(ins.sample_instrument_noise, faults=env.faults)
            self._noise, self._shown = jax.jit(jax.vmap(env.sample_noise)), jax.jit(jax.vmap(shown))

    def repeated(self, **change: Any) -> tuple[Any, Step]:
        """State and result of every step, with other ``params``, ``state``, ``action`` or noise.

        The ``noise`` of a simulated plant is by default what it draws with the key of the step.
        """
        own = {"params": self.params, "state": self.state, "action": self.action, **change}
        chance = own.get("noise")
        if chance is None:
            simulated = isinstance(self._env, SimulatedPlant)
            chance = self.noise(own["params"], self.key) if simulated else self.key
        return jax.device_get(self._repeat(own["params"], own["state"], own["action"], chance))

    def noise(self, params: Any, keys: PRNGKeyArray) -> Any:
        """What ``sample_noise`` of a simulated plant draws with one key a probe."""
        return jax.device_get(self._noise(params, keys))

    def with_other_instruments(self, params: Any, noise: Any, keys: PRNGKeyArray) -> Any:
        """The noise, with that of the instruments drawn with other keys."""
        return noise._replace(instruments=jax.device_get(self._shown(params.instruments, keys)))

    def of_all(self, tree: Any) -> Any:
        """The same values for every probe."""
        return jax.tree.map(
            lambda leaf: np.broadcast_to(leaf, (self.number, *np.shape(leaf))), tree
        )


@functools.lru_cache(maxsize=1)
def probes(evidence: Evidence) -> Probes:
    """The probes of the evidence, which are kept for the next law."""
    return Probes(evidence)


def _one_later(states: Any, last: Any, *, world: Any, time: Any) -> Any:
    """The state after a step: the one before the next step, or the last one."""
    states, last = np.asarray(states), np.asarray(last)
    end = states.shape[1] - 1
    at_end = (time == end).reshape(-1, *[1] * (last.ndim - 1))
    return np.where(at_end, last[world], states[world, np.minimum(time + 1, end)])


def first_difference(one: Any, other: Any, relative: float) -> str:
    """Path of the first leaf in which two trees differ by more than a tolerance, or ``""``.

    The tolerance is relative to the size of the leaf. Equal infinities and NaN in the same place do
    not count as differences.
    """
    pairs = zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True)
    for (path, a), b in pairs:
        a, b = np.asarray(a), np.asarray(b)
        if not np.issubdtype(a.dtype, np.number):
            same = np.array_equal(a, b)
        else:
            size = np.max(np.abs(a[np.isfinite(a)], dtype=np.float64), initial=0.0)
            tolerance = relative * max(size, 1e-30)
            same = np.allclose(a, b, rtol=0, atol=tolerance, equal_nan=True)
        if not same:
            return jax.tree_util.keystr(path) or "the value"
    return ""
