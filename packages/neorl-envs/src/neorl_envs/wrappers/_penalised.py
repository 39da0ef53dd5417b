"""Costs as part of the reward."""

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
    """A plant whose reward is less the weighted costs: the constraint as a price.

    Attributes:
        env: The environment that is transformed.
        weights: Reward that one unit of each cost takes off, in the order of the costs.
    """

    weights: tuple[float, ...] = eqx.field(static=True, default=())

    @property
    def terms(self) -> tuple[Term, ...]:
        """None: the plant's terms leave out the price of its costs."""
        return ()

    def step(
        self, params: Any, state: Any, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[Any, Step]:
        """One control period; ``Step.cost`` stays."""
        state, step = self.env.step(params, state, action, key)
        price = (jnp.asarray(self.weights, step.cost.dtype) * step.cost).sum()
        return state, step._replace(reward=step.reward - price)


def penalised(env: Environment, weights: Mapping[str, float] | None = None) -> Penalised:
    """Takes the weighted costs off the reward, by which plants rank their baselines.

    Args:
        env: A plant.
        weights: Reward that one unit of each cost takes off, by its name; the plant's own
            ``penalty_weights()`` by default. A cost without a weight is free.

    Returns:
        An environment of the same contract.

    Raises:
        InputError: If a weight names no cost; the nearest one is given.

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
