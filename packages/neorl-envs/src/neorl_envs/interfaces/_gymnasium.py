"""A plant as a Gymnasium environment: a thin stateful class with one compiled call per step."""

import functools
from typing import Any, ClassVar

import gymnasium
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Step, Transition
from neorl_envs.interfaces._episode import (
    OPTIONS,
    Draws,
    Episode,
    action_space,
    advance,
    as_plant,
    begin,
    checked_action,
    checked_params,
    observation_space,
    plain_information,
)
from neorl_envs.plants._protocol import Plant

# Record of a running episode, from which images are rendered.


class EpisodeRecord:
    """The steps of one episode so far, on the host."""

    def __init__(self, env: Plant) -> None:
        """Creates an empty record for a plant."""
        self._env = env
        self._rows: list[tuple] = []

    def begin(self, obs: np.ndarray) -> None:
        """Clears the record and stores the first observation of a new episode."""
        self._rows = [(obs,)]

    def add(self, obs: np.ndarray, applied: np.ndarray, reward: Any, cost: np.ndarray) -> None:
        """Adds one step."""
        self._rows.append((obs, applied, reward, cost))

    def picture(self) -> np.ndarray:
        """Trends of the episode, as an array ``(height, width, 3)`` of bytes."""
        from neorl_envs.render import picture, trends

        env = self._env
        figure = trends(env.spec, self._trajectory(), bands=env.bands(), tracked=env.tracked)
        return picture(figure)

    def _trajectory(self) -> Transition:
        n, spec = len(self._rows) - 1, self._env.spec
        obs = np.stack([row[0] for row in self._rows])
        widths = {"action": (spec.n_action,), "reward": (), "cost": (spec.n_cost,)}
        columns: dict[str, Any] = {
            name: np.reshape([row[i] for row in self._rows[1:]], (n, *width))
            for i, (name, width) in enumerate(widths.items(), start=1)
        }
        never: Any = np.zeros(n, np.bool_)
        columns |= {"obs": obs[:-1], "next_obs": obs[1:]}
        return Transition(**columns, terminated=never, truncated=never)


class GymnasiumEnv(gymnasium.Env):
    """A plant as a Gymnasium environment; create one with :func:`gymnasium.make`.

    Actions are either scaled, with [-1, 1] covering the range of each actuator, or in physical
    units. The plant clips values outside the range, and NaN keeps the last command; both are
    flagged. Observations are in physical units, inside the measuring ranges. ``info`` contains
    ``cost`` (the vector), ``cost_sum``, ``applied`` (the command that the plant received, in
    physical units), ``outside`` (flags for action entries that were NaN or outside their range) and
    the fields of ``Step.info`` of the plant.

    Every episode samples new parameters. The same ``reset(seed=...)`` gives the same episode.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": ["rgb_array", "human"],
        "render_fps": 10,
    }

    def __init__(
        self,
        plant: str | Plant,
        *,
        physical: bool = False,
        preset: str = "plant",
        spread: float = 0.15,
        render_mode: str | None = None,
    ) -> None:
        """Creates the environment.

        Args:
            plant: Name of the environment, for example ``"ChemicalReactor-v0"``, or a plant.
            physical: Whether actions are in physical units rather than [-1, 1].
            preset: Preset of the parameters.
            spread: Relative spread of the randomised parameters; 0 for no randomisation.
            render_mode: ``"rgb_array"``, ``"human"`` for a window that follows the episode (both
                need the extra ``render``), or ``None``.

        Raises:
            ValueError: If the name, the preset, the spread or the render mode is invalid.
        """
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(
                f"render_mode must be None, 'rgb_array' or 'human', got {render_mode!r}"
            )
        self.env = as_plant(plant, preset, spread)
        self.physical = physical
        self.draws = Draws(preset, float(spread))
        self.render_mode = render_mode
        self.observation_space = observation_space(self.env.spec)
        self.action_space = action_space(self.env.spec, physical=physical)
        self._record = EpisodeRecord(self.env)
        self._window: Any = None
        self._episode: Episode | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode; ``options={"params": ...}`` sets its parameters.

        Raises:
            ValueError: If an option is unknown, or a parameter is physically impossible.
        """
        params = checked_params(self.env, options, OPTIONS)
        super().reset(seed=seed)
        key = jax.random.key(int(self.np_random.integers(2**31)))
        self._episode, first = _begin(self.env, self.draws, params, key)
        obs = np.asarray(jax.device_get(first), np.float32)
        self._record.begin(obs)
        self._show()
        return obs, {}

    def step(
        self, action: Float[np.ndarray, " act"]
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Simulates one control period.

        Raises:
            RuntimeError: If the environment has not been reset yet.
            ValueError: If the action has a wrong shape.
        """
        if self._episode is None:
            raise RuntimeError("call reset() before step()")
        action_array = checked_action(action, (self.env.spec.n_action,))
        self._episode, answer = _advance(self.env, self.physical, self._episode, action_array)
        answer = jax.device_get(answer)
        step: Any = answer[0]
        obs = np.asarray(step.obs, np.float32)
        if self.render_mode is not None:
            self._record.add(obs, step.applied, step.reward, step.cost)
            self._show()
        info = plain_information(step.info)
        info |= {"cost": step.cost, "cost_sum": float(step.cost.sum())}
        info |= {"applied": step.applied, "outside": answer[1]}
        return obs, float(step.reward), bool(step.terminated), bool(step.truncated), info

    def render(self) -> np.ndarray | None:
        """An image of the episode so far, as an array ``(height, width, 3)`` of bytes."""
        return self._record.picture() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Closes the window."""
        if self._window is not None:
            self._window.close()
            self._window = None

    def _show(self) -> None:
        if self.render_mode != "human":
            return
        from neorl_envs.render import Window

        if self._window is None:
            self._window = Window(self.env.name)
        self._window.show(self._record.picture())


@functools.partial(jax.jit, static_argnums=(0, 1))
def _begin(env: Plant, draws: Draws, params: Any, key: PRNGKeyArray) -> tuple[Episode, Array]:
    return begin(env, draws, params, key)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _advance(
    env: Plant, physical: bool, episode: Episode, action: Array
) -> tuple[Episode, tuple[Step, Bool[Array, " act"]]]:
    episode, step, outside = advance(env, physical, episode, action)
    return episode, (step, outside)
