"""The running episode of one plant: pure functions shared by both Gymnasium environments."""

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

# The additional information of a step (``Step.info``) as a dictionary.


def named_information(info: Any) -> dict[str, Any]:
    """The fields of ``Step.info`` by name; an empty tuple has none."""
    return dict(info._asdict()) if hasattr(info, "_asdict") else {}


def plain_information(info: Any) -> dict[str, Any]:
    """The result of :func:`named_information` on the host, as plain Python numbers."""
    fields = named_information(info)
    return {name: value.item() if np.ndim(value) == 0 else value for name, value in fields.items()}


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
