"""A plant as a Gymnasium environment: a thin stateful class with one compiled call per step."""

import functools
from typing import Any, ClassVar, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_core import Channel, InputError, Spec, Step, Transition, highs, lows, unit_interval
from neorl_core.infrastructure import unknown_name
from neorl_envs.plants._protocol import Plant
from neorl_envs.plants._table import make
from neorl_envs.wrappers._base import check_params

# The additional information of a step (``Step.info``) as a dictionary.


def named_information(info: Any) -> dict[str, Any]:
    """The fields of ``Step.info`` by name; an empty tuple has none."""
    return dict(info._asdict()) if hasattr(info, "_asdict") else {}


def plain_information(info: Any) -> dict[str, Any]:
    """The result of :func:`named_information` on the host, as plain Python numbers."""
    fields = named_information(info)
    return {name: value.item() if np.ndim(value) == 0 else value for name, value in fields.items()}


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


# The running episode of one plant: pure functions shared by both Gymnasium environments.


class Draws(NamedTuple):
    """How the parameters of an episode are sampled; hashable.

    Attributes:
        preset: Preset of the parameters.
        spread: Relative spread of the randomisation.
    """

    preset: str
    spread: float


class Episode(NamedTuple):
    """The complete state of a running episode.

    Attributes:
        params: Parameters of the plant.
        state: State of the plant.
        time: Number of steps since the start.
        key: Random key for all further steps.
    """

    params: Any
    state: Any
    time: Int[Array, ""]
    key: PRNGKeyArray


def begin(env: Plant, draws: Draws, params: Any, key: PRNGKeyArray) -> tuple[Episode, Array]:
    """Starts an episode and returns its first observation; parameters are sampled if ``None``."""
    for_params, for_reset, key = jax.random.split(key, 3)
    if params is None:
        params = env.sample_params(for_params, preset=draws.preset, spread=draws.spread)
    state, obs = env.reset(params, for_reset)
    return Episode(params, state, jnp.zeros((), jnp.int32), key), obs


def advance(
    env: Plant, physical: bool, episode: Episode, action: Float[Array, " act"]
) -> tuple[Episode, Step, Bool[Array, " act"]]:
    """Makes one step and flags the entries of the action that are NaN or outside their range.

    ``closed_loop`` is not used here, because the policy runs in the code that calls Gymnasium.
    """
    key, for_step = jax.random.split(episode.key)
    low, high = action_bounds(env.spec, physical)
    outside = ~((action >= low) & (action <= high))
    if not physical:
        action = in_physical_units(env.spec, action)
    state, step = env.step(episode.params, episode.state, action, for_step)
    return Episode(episode.params, state, episode.time + 1, key), step, outside


def in_physical_units(spec: Spec, action: Float[Array, " act"]) -> Float[Array, " act"]:
    """Clips an action to [-1, 1] and converts it to the units of the actuators."""
    return unit_interval(spec.action).to_physical(jnp.clip(action, -1, 1))


def as_plant(plant: str | Plant, preset: str, spread: float) -> Plant:
    """The plant itself, or the one of the given name; also checks preset and spread.

    Raises a ``ValueError`` if the name, the preset or the spread is invalid.
    """
    env = make(plant) if isinstance(plant, str) else plant
    jax.eval_shape(
        lambda key: env.sample_params(key, preset=preset, spread=spread), jax.random.key(0)
    )
    return env


def checked_params(env: Plant, options: dict[str, Any] | None, known: tuple[str, ...]) -> Any:
    """The parameters in the options of a reset, or ``None``.

    Raises an ``InputError`` if an option is unknown, or the structure of the parameters is wrong,
    and a ``ValueError`` if a parameter is physically impossible; its name and unit are given.
    """
    options = options or {}
    for name in options:
        if name not in known:
            raise unknown_name("option of reset", name, known)
    params = options.get("params")
    if params is None:
        return None
    expected = jax.tree.structure(env.default_params())
    if jax.tree.structure(params) != expected:
        raise InputError(
            "params must be made by default_params() or sample_params() of this plant, "
            f"got {type(params).__name__}"
        )
    check_params(env, params)
    return params


def observation_space(spec: Spec) -> gymnasium.spaces.Box:
    """A box with the measuring ranges."""
    return gymnasium.spaces.Box(*_ends(spec.obs), dtype=np.float32)


def action_space(spec: Spec, *, physical: bool) -> gymnasium.spaces.Box:
    """A box with the ranges of the actuators, or [-1, 1] for each."""
    return gymnasium.spaces.Box(*action_bounds(spec, physical), dtype=np.float32)


def action_bounds(spec: Spec, physical: bool) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds of the actions, shape ``(act,)`` each."""
    one = np.ones(spec.n_action, np.float32)
    return _ends(spec.action) if physical else (-one, one)


def checked_action(action: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Converts the action to float32.

    Raises an ``InputError`` if it is not numeric or has a wrong shape.
    """
    try:
        array = np.asarray(action, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"an action must be numbers of shape {shape}, got {action!r}") from error
    if array.shape != shape:
        raise InputError(f"an action must have shape {shape}, got {array.shape}")
    return array


def _ends(channels: tuple[Channel, ...]) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(lows(channels), np.float32), np.asarray(highs(channels), np.float32)


OPTIONS = ("params",)


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
