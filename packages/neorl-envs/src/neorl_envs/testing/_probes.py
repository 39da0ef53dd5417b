"""Single steps from states inside the episodes, which laws repeat with one change."""

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_core import Step
from neorl_envs.blocks import _instruments as ins
from neorl_envs.plants import SimulatedPlant
from neorl_envs.testing._evidence import Evidence, keys_of_steps, world_keys


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
