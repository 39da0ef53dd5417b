"""The running episode of one plant: the pure functions under both Gymnasium shells."""

from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_core import Channel, InputError, Spec, Step, highs, lows, unit_interval
from neorl_core.infrastructure import unknown_name
from neorl_envs.plants._protocol import Plant
from neorl_envs.plants._table import make
from neorl_envs.wrappers._base import check_params


class Draws(NamedTuple):
    """Rules by which the parameters of an episode are drawn; hashable.

    Attributes:
        preset: Preset of the parameters.
        spread: Relative width of the randomisation.
    """

    preset: str
    spread: float


class Episode(NamedTuple):
    """Everything about the running episode.

    Attributes:
        params: Its parameters.
        state: State of the plant.
        time: Steps since its start.
        key: Decides everything that follows.
    """

    params: Any
    state: Any
    time: Int[Array, ""]
    key: PRNGKeyArray


def begin(env: Plant, draws: Draws, params: Any, key: PRNGKeyArray) -> tuple[Episode, Array]:
    """A new episode and its first observation; ``None`` for parameters draws them."""
    for_params, for_reset, key = jax.random.split(key, 3)
    if params is None:
        params = env.sample_params(for_params, preset=draws.preset, spread=draws.spread)
    state, obs = env.reset(params, for_reset)
    return Episode(params, state, jnp.zeros((), jnp.int32), key), obs


def advance(
    env: Plant, physical: bool, episode: Episode, action: Float[Array, " act"]
) -> tuple[Episode, Step, Bool[Array, " act"]]:
    """One step, and which entries of the action were no number inside their range.

    Not a step of ``closed_loop``: the policy is Gymnasium's caller, on the other side of the shell.
    """
    key, for_step = jax.random.split(episode.key)
    low, high = action_bounds(env.spec, physical)
    outside = ~((action >= low) & (action <= high))
    if not physical:
        action = in_physical_units(env.spec, action)
    state, step = env.step(episode.params, episode.state, action, for_step)
    return Episode(episode.params, state, episode.time + 1, key), step, outside


def in_physical_units(spec: Spec, action: Float[Array, " act"]) -> Float[Array, " act"]:
    """An action in [-1, 1], clipped to that, in the units of the actuators."""
    return unit_interval(spec.action).to_physical(jnp.clip(action, -1, 1))


def as_plant(plant: str | Plant, preset: str, spread: float) -> Plant:
    """The plant by its name, or itself; what it cannot be drawn with is refused here.

    Raises:
        ValueError: If the name, the preset or the spread is refused.
    """
    env = make(plant) if isinstance(plant, str) else plant
    jax.eval_shape(
        lambda key: env.sample_params(key, preset=preset, spread=spread), jax.random.key(0)
    )
    return env


def checked_params(env: Plant, options: dict[str, Any] | None, known: tuple[str, ...]) -> Any:
    """The parameters in the options of a reset, or ``None``.

    Raises:
        InputError: If an option is unknown, or parameters are of another structure.
        ValueError: If a parameter is outside physics, by name and unit.
    """
    options = options or {}
    for name in options:
        if name not in known:
            raise unknown_name("option of reset", name, known)
    params = options.get("params")
    if params is None:
        return None
    wanted = jax.tree.structure(env.default_params())
    if jax.tree.structure(params) != wanted:
        raise InputError(
            "params must be made by default_params() or sample_params() of this plant, "
            f"got {type(params).__name__}"
        )
    check_params(env, params)
    return params


def observation_space(spec: Spec) -> gymnasium.spaces.Box:
    """The measuring ranges as a box."""
    return gymnasium.spaces.Box(*_ends(spec.obs), dtype=np.float32)


def action_space(spec: Spec, *, physical: bool) -> gymnasium.spaces.Box:
    """The actuators' ranges as a box, or [-1, 1] for each."""
    return gymnasium.spaces.Box(*action_bounds(spec, physical), dtype=np.float32)


def action_bounds(spec: Spec, physical: bool) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of what a shell takes, shape ``(act,)`` each."""
    one = np.ones(spec.n_action, np.float32)
    return _ends(spec.action) if physical else (-one, one)


def checked_action(action: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The action as float32.

    Raises:
        InputError: If it is no numbers, or of another shape.
    """
    try:
        given = np.asarray(action, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"an action must be numbers of shape {shape}, got {action!r}") from error
    if given.shape != shape:
        raise InputError(f"an action must have shape {shape}, got {given.shape}")
    return given


def _ends(channels: tuple[Channel, ...]) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(lows(channels), np.float32), np.asarray(highs(channels), np.float32)
