"""Subtracts weighted costs from the reward."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Environment, Step
from neorl_core.infrastructure import unknown_name
from neorl_envs.blocks import Term
from neorl_envs.wrappers._base import Wrapper


class Penalised(Wrapper):
    """A plant whose weighted costs are subtracted from the reward.

    Attributes:
        env: The wrapped environment.
        weights: Reward subtracted for one unit of each cost, in the order of the costs.
    """

    weights: tuple[float, ...] = eqx.field(static=True, default=())

    @property
    def terms(self) -> tuple[Term, ...]:
        """Empty, because the plant's terms do not include the weighted costs."""
        return ()

    def step(
        self, params: Any, state: Any, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[Any, Step]:
        """Simulates one control period; ``Step.cost`` is unchanged."""
        state, step = self.env.step(params, state, action, key)
        penalty = (jnp.asarray(self.weights, step.cost.dtype) * step.cost).sum()
        return state, step._replace(reward=step.reward - penalty)


def penalised(env: Environment, weights: Mapping[str, float] | None = None) -> Penalised:
    """Subtracts the weighted costs from the reward; plants rank their baselines by this sum.

    Args:
        env: A plant.
        weights: Reward subtracted for one unit of each cost, by name; the plant's
            ``penalty_weights()`` by default. A cost without a weight is not subtracted.

    Returns:
        An environment with the same interface.

    Raises:
        InputError: If a weight names an unknown cost; the message suggests the nearest name.

    Example:
        >>> import neorl_envs
        >>> penalised(neorl_envs.make("ChemicalReactor-v0"), {"pressure": 1.0}).weights
        (0.0, 1.0)
    """
    known: Any = env
    chosen = known.penalty_weights() if weights is None else weights
    names = [channel.name for channel in env.spec.cost]
    for name in chosen:
        if name not in names:
            raise unknown_name("cost", name, names)
    return Penalised(env, tuple(float(chosen.get(name, 0.0)) for name in names))
