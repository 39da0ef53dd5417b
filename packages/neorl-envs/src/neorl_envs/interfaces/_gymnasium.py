"""One environment behind Gymnasium's interface: a thin stateful shell, one program a step."""

import functools
from typing import Any, ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Channel, Spec, Step, Transition, highs, lows, unit_interval
from neorl_envs.interfaces._information import plain_information
from neorl_envs.plants._protocol import Plant
from neorl_envs.plants._table import make


class GymnasiumEnv(gymnasium.Env):
    """A plant for Gymnasium's tools; see :func:`gymnasium.make`.

    Actions are in [-1, 1], channel by channel the range of the actuator, or in physical units.
    Observations are in physical units, inside the measuring ranges. ``info`` has ``cost`` (the
    vector), ``cost_sum``, ``applied`` (the action that the plant received, in physical units) and
    the fields of the environment's own information.

    Every episode draws its own parameters. The same ``reset(seed=...)`` gives the same episode.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        name: str,
        *,
        physical: bool = False,
        preset: str = "plant",
        spread: float = 0.15,
        render_mode: str | None = None,
    ) -> None:
        """Makes the shell.

        Args:
            name: Name of the environment, for example ``"ChemicalReactor-v0"``.
            physical: Whether actions are in physical units instead of [-1, 1].
            preset: Preset of the parameters.
            spread: Relative width of the randomisation of every episode; 0 for none.
            render_mode: ``"rgb_array"`` (needs the extra ``render``) or ``None``.

        Raises:
            ValueError: If the name, the preset or the render mode is unknown.
        """
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
        self.env = make(name)
        self.env.default_params(preset)  # refuses an unknown one here, not at the first reset
        self.physical = physical
        self.preset = preset
        self.spread = spread
        self.render_mode = render_mode
        self.observation_space = observation_space(self.env.spec)
        self.action_space = action_space(self.env.spec, physical=physical)
        self._history: list[tuple] = []
        self._episode: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode; ``options={"params": ...}`` sets its parameters."""
        super().reset(seed=seed)
        key = jax.random.key(int(self.np_random.integers(2**31)))
        params = (options or {}).get("params")
        given = params is not None
        self._episode, obs = start(self.env, self.preset, self.spread, given, params, key)
        obs = jax.device_get(obs)
        self._history = [(obs,)]
        return obs, {}

    def step(
        self, action: Float[np.ndarray, " act"]
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One control period."""
        if self._episode is None:
            raise RuntimeError("call reset() before step()")
        action = np.asarray(action, dtype=np.float32)
        self._episode, answer = advance(self.env, self.physical, self._episode, action)
        step: Any = jax.device_get(answer)
        if self.render_mode is not None:
            self._history.append((step.obs, step.applied, step.reward, step.cost))
        info = plain_information(step.info)
        info |= {"cost": step.cost, "cost_sum": float(step.cost.sum()), "applied": step.applied}
        return step.obs, float(step.reward), bool(step.terminated), bool(step.truncated), info

    def render(self) -> np.ndarray | None:
        """A picture of the episode so far, as an array ``(height, width, 3)`` of bytes."""
        if self.render_mode is None:
            return None
        from neorl_envs.render import picture, trends

        return picture(trends(self.env.spec, self._trajectory(), bands=self.env.bands()))

    def _trajectory(self) -> Transition:
        n, spec = len(self._history) - 1, self.env.spec
        seen = np.stack([row[0] for row in self._history])
        widths = {"action": (spec.n_action,), "reward": (), "cost": (spec.n_cost,)}
        columns: dict[str, Any] = {
            name: np.reshape([row[i] for row in self._history[1:]], (n, *width))
            for i, (name, width) in enumerate(widths.items(), start=1)
        }
        columns |= {"obs": seen[:-1], "next_obs": seen[1:], "next_action": None, "mask": None}
        never: Any = np.zeros(n, np.bool_)
        return Transition(**columns, terminated=never, truncated=never)


def observation_space(spec: Spec) -> gymnasium.spaces.Box:
    """The measuring ranges as a box."""
    return _box(spec.obs)


def action_space(spec: Spec, *, physical: bool) -> gymnasium.spaces.Box:
    """The actuators' ranges as a box, or [-1, 1] for each."""
    if physical:
        return _box(spec.action)
    return gymnasium.spaces.Box(-1.0, 1.0, (spec.n_action,), np.float32)


def _box(channels: tuple[Channel, ...]) -> gymnasium.spaces.Box:
    low, high = (np.asarray(ends(channels), np.float32) for ends in (lows, highs))
    return gymnasium.spaces.Box(low, high, dtype=np.float32)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def start(
    env: Plant, preset: str, spread: float, given: bool, params: Any, key: PRNGKeyArray
) -> tuple[tuple, Array]:
    """The first episode state ``(params, state, key)`` and observation."""
    for_params, for_reset, key = jax.random.split(key, 3)
    if not given:
        params = env.sample_params(for_params, preset=preset, spread=spread)
    state, obs = env.reset(params, for_reset)
    return (params, state, key), obs


@functools.partial(jax.jit, static_argnums=(0, 1))
def advance(env: Plant, physical: bool, episode: tuple, action: Array) -> tuple[tuple, Step]:
    """One step of ``(params, state, key)``."""
    params, state, key = episode
    key, for_step = jax.random.split(key)
    state, step = env.step(params, state, demanded(env.spec, action, physical), for_step)
    return (params, state, key), step


def demanded(spec: Spec, action: Float[Array, " act"], physical: bool) -> Float[Array, " act"]:
    """The action in physical units."""
    return action if physical else unit_interval(spec.action).to_physical(jnp.clip(action, -1, 1))
