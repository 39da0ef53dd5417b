"""Automatic resets as a transform of an environment, and of the policy's carry with it."""

from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Policy, Spec, Step

Tree = TypeVar("Tree")


class AutoResetState(NamedTuple):
    """State of the environment and the parameters of its current episode."""

    params: Any
    state: Any


class AutoReset(eqx.Module):
    """An environment that begins a new episode in the step that ends the old one.

    ``Step.obs`` is then the first observation of the new episode, to act on next;
    ``Step.final_obs`` stays that of the transition, to bootstrap from.

    Attributes:
        env: The environment that is transformed.
        randomise: Whether every episode draws its own parameters (``env.sample_params``); the
            ``params`` given to :meth:`reset` are then not used.
    """

    env: Any
    randomise: bool = eqx.field(static=True, default=False)

    @property
    def spec(self) -> Spec:
        """Channels, period and horizon of the environment."""
        return self.env.spec

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[AutoResetState, Float[Array, " obs"]]:
        """The state and first observation of the first episode."""
        for_params, for_reset = jax.random.split(key)
        if self.randomise:
            params = self.env.sample_params(for_params)
        state, obs = self.env.reset(params, for_reset)
        return AutoResetState(params, state), obs

    def step(
        self, params: Any, state: AutoResetState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[AutoResetState, Step]:
        """One control period, and a reset after it where the episode ended."""
        for_step, for_reset = jax.random.split(key)
        inner, step = self.env.step(state.params, state.state, action, for_step)
        fresh, first_obs = self.reset(state.params, for_reset)
        over = step.terminated | step.truncated
        new = where_over(over, fresh, AutoResetState(state.params, inner))
        return new, step._replace(obs=jnp.where(over, first_obs, step.obs))


def autoreset(env: Any, *, randomise: bool = False) -> AutoReset:
    """Transforms an environment so that it resets itself.

    Whoever steps the result also replaces the policy's carry where an episode ended, or a PID
    takes its integral into the next one: :func:`fresh_carry`.

    Args:
        env: An environment.
        randomise: Draw new parameters for every episode.

    Returns:
        An environment of the same contract.
    """
    return AutoReset(env, randomise)


def fresh_carry(policy: Policy, carry: Tree, step: Step) -> Tree:
    """The carry for the next step: a new one where the episode ended, else ``carry``."""
    return where_over(step.terminated | step.truncated, policy.initial_carry(), carry)


def where_over(over: Bool[Array, ""], fresh: Tree, old: Tree) -> Tree:
    """``fresh`` where the episode is over, leaf by leaf."""
    return jax.tree.map(lambda new, kept: jnp.where(over, new, kept), fresh, old)
