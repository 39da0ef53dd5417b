"""Domain randomisation: every episode samples new parameters."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Environment, Step
from neorl_envs.wrappers._base import Wrapper


class RandomisedState(NamedTuple):
    """State of the environment and the parameters of its episode."""

    params: Any
    state: Any


class Randomised(Wrapper):
    """An environment that samples new parameters for every episode (``env.sample_params``).

    The ``params`` passed to :meth:`reset` and :meth:`step` are ignored and may be ``None``.

    Attributes:
        env: The wrapped environment.
        spread: Relative spread of the parameters.
        preset: Preset whose parameters are the centre of the distribution.
    """

    spread: float = eqx.field(static=True, default=0.15)
    preset: str = eqx.field(static=True, default="plant")

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[RandomisedState, Float[Array, " obs"]]:
        """Starts an episode with newly sampled parameters."""
        for_params, for_reset = jax.random.split(key)
        params = self.env.sample_params(for_params, preset=self.preset, spread=self.spread)
        state, obs = self.env.reset(params, for_reset)
        return RandomisedState(params, state), obs

    def step(
        self, params: Any, state: RandomisedState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[RandomisedState, Step]:
        """Simulates one control period with the parameters of the episode."""
        inner, step = self.env.step(state.params, state.state, action, key)
        return RandomisedState(state.params, inner), step


def randomised(env: Environment, *, spread: float = 0.15, preset: str = "plant") -> Randomised:
    """Makes a plant sample new parameters for every episode.

    Args:
        env: A plant.
        spread: Relative spread of the parameters.
        preset: ``"plant"``, or ``"clean"`` without noise, delays and disturbances.

    Returns:
        An environment with the same interface that accepts ``None`` as parameters.

    Example:
        >>> import jax
        >>> import neorl_envs
        >>> env = randomised(neorl_envs.make("ChemicalReactor-v0"), spread=0.3)
        >>> state, obs = env.reset(None, jax.random.key(0))
        >>> obs.shape
        (12,)
    """
    env.default_params(preset)  # pyright: ignore[reportAttributeAccessIssue]
    return Randomised(env, float(spread), preset)
