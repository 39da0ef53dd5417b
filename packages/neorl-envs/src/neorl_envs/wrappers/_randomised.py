"""Domain randomisation: every episode draws its own parameters."""

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
    """An environment whose episodes draw their own parameters (``env.sample_params``).

    The ``params`` given to :meth:`reset` and :meth:`step` are not used; ``None`` will do.

    Attributes:
        env: The environment that is transformed.
        spread: Relative width of the draws.
        preset: Preset whose parameters are the centre of the draws.
    """

    spread: float = eqx.field(static=True, default=0.15)
    preset: str = eqx.field(static=True, default="plant")

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[RandomisedState, Float[Array, " obs"]]:
        """An episode with parameters of its own."""
        for_params, for_reset = jax.random.split(key)
        params = self.env.sample_params(for_params, preset=self.preset, spread=self.spread)
        state, obs = self.env.reset(params, for_reset)
        return RandomisedState(params, state), obs

    def step(
        self, params: Any, state: RandomisedState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[RandomisedState, Step]:
        """One control period of the plant with the episode's parameters."""
        inner, step = self.env.step(state.params, state.state, action, key)
        return RandomisedState(state.params, inner), step


def randomised(env: Environment, *, spread: float = 0.15, preset: str = "plant") -> Randomised:
    """Transforms a plant so that every episode has its own parameters.

    Args:
        env: A plant.
        spread: Relative width of the draws.
        preset: ``"plant"``, or ``"clean"`` without noise, delays and disturbances.

    Returns:
        An environment of the same contract, which takes ``None`` for parameters.

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
