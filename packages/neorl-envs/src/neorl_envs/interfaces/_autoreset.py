"""Automatic resets as a transform of an environment, and of the policy's carry with it."""

from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Policy, Spec, Step
from neorl_envs.plants._protocol import Plant

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
        preset: Preset of the parameters that are drawn, where ``spread`` is given.
        spread: Relative width of the draws. Where given, every episode draws its own parameters
            (``env.sample_params``), and the ``params`` given to :meth:`reset` and :meth:`step` are
            not used.
    """

    env: Plant
    preset: str = eqx.field(static=True, default="plant")
    spread: float | None = eqx.field(static=True, default=None)

    @property
    def spec(self) -> Spec:
        """Channels, period and horizon of the environment."""
        return self.env.spec

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[AutoResetState, Float[Array, " obs"]]:
        """The state and first observation of the first episode."""
        for_params, for_reset = jax.random.split(key)
        if self.spread is not None:
            params = self.env.sample_params(for_params, preset=self.preset, spread=self.spread)
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


def autoreset(env: Plant, *, preset: str = "plant", spread: float | None = None) -> AutoReset:
    """Transforms an environment so that it resets itself.

    Whoever steps the result also replaces the policy's carry where an episode ended, or a PID
    takes its integral into the next one: :func:`fresh_carry`.

    Args:
        env: An environment.
        preset: Preset of the parameters that are drawn, where ``spread`` is given.
        spread: Draw new parameters for every episode, with this relative width; ``None`` keeps
            those given to ``reset``.

    Returns:
        An environment of the same contract.

    Example:
        >>> import neorl_envs
        >>> env = autoreset(neorl_envs.make("ChemicalReactor-v0"), spread=0.15)
        >>> env.spec.horizon
        300
    """
    return AutoReset(env, preset, spread)


def fresh_carry(policy: Policy, carry: Tree, step: Step) -> Tree:
    """The carry for the next step: a new one where the episode ended, else ``carry``."""
    return where_over(step.terminated | step.truncated, policy.initial_carry(), carry)


def where_over(over: Bool[Array, ""], fresh: Tree, old: Tree) -> Tree:
    """``fresh`` where the episode is over, leaf by leaf."""
    return jax.tree.map(lambda new, kept: jnp.where(over, new, kept), fresh, old)
