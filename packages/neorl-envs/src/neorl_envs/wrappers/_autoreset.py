"""Automatic resets of an environment, and matching resets of the policy's carry."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Environment, InputError, Policy, Step
from neorl_envs.closed_loop import where_over
from neorl_envs.wrappers._base import Wrapper

Tree = TypeVar("Tree")


class AutoResetState(NamedTuple):
    """State of the environment, and the cached initial states.

    Attributes:
        state: State of the wrapped environment.
        starts: Initial states and first observations with a leading axis; ``None`` if every
            episode begins with a new reset.
    """

    state: Any
    starts: tuple[Any, Array] | None


class AutoReset(Wrapper):
    """An environment that begins a new episode in the step that ends the old one.

    In such a step, ``Step.obs`` is the first observation of the new episode, for the next action.
    ``Step.final_obs`` is still the last observation of the old episode, for bootstrapping.

    Attributes:
        env: The wrapped environment.
        cached: Number of initial states that are sampled at the first reset, from which every
            episode picks one at random; ``None`` samples a new initial state for every episode.
    """

    cached: int | None = eqx.field(static=True, default=None)

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[AutoResetState, Float[Array, " obs"]]:
        """The state and first observation of the first episode."""
        if self.cached is None:
            state, obs = self.env.reset(params, key)
            return AutoResetState(state, None), obs
        keys = jax.random.split(key, self.cached)
        states, first_obs = jax.vmap(lambda each: self.env.reset(params, each))(keys)
        first = jax.tree.map(lambda leaf: leaf[0], states)
        return AutoResetState(first, (states, first_obs)), first_obs[0]

    def step(
        self, params: Any, state: AutoResetState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[AutoResetState, Step]:
        """Simulates one control period, followed by a reset if the episode ended."""
        for_step, for_reset = jax.random.split(key)
        inner, step = self.env.step(params, state.state, action, for_step)
        inner, obs = started_where_over(
            step.terminated | step.truncated,
            lambda: self._start(params, state, for_reset),
            (inner, step.obs),
        )
        return AutoResetState(inner, state.starts), step._replace(obs=obs)

    def _start(self, params: Any, state: AutoResetState, key: PRNGKeyArray) -> tuple[Any, Array]:
        if state.starts is None:
            return self.env.reset(params, key)
        index = jax.random.randint(key, (), 0, len(state.starts[1]))
        return jax.tree.map(lambda leaf: leaf[index], state.starts)


def autoreset(env: Environment, *, cached: int | None = None) -> AutoReset:
    """Makes an environment reset itself at the end of an episode.

    The caller must also reset the policy's carry when an episode ends, with :func:`fresh_carry`;
    otherwise a PID controller carries its integral into the next episode. For new parameters in
    every episode see :func:`neorl_envs.wrappers.randomised`.

    Args:
        env: An environment.
        cached: Number of initial states to sample at the first reset and to choose from afterwards,
            which avoids computing a reset in every step; ``None`` samples a new initial state for
            every episode.

    Returns:
        An environment with the same interface.

    Raises:
        InputError: If ``cached`` is not a positive integer.

    Example:
        >>> import neorl_envs
        >>> env = autoreset(neorl_envs.make("ChemicalReactor-v0"))
        >>> env.spec.horizon
        300
    """
    if cached is not None and (isinstance(cached, bool) or cached != int(cached) or cached < 1):
        raise InputError(f"cached must be None or an integer of at least 1, got {cached!r}")
    return AutoReset(env, cached)


def fresh_carry(policy: Policy, carry: Tree, step: Step) -> Tree:
    """The carry for the next step: the initial carry if the episode ended, else ``carry``."""
    return where_over(step.terminated | step.truncated, policy.initial_carry(), carry)


def started_where_over(over: Bool[Array, ""], start: Callable[[], Tree], old: Tree) -> Tree:
    """``start()`` if the episode is over, else ``old``, leaf by leaf.

    Under ``vmap`` the starts are computed only in steps in which some episode of the batch ends. A
    start, including the values derived from its parameters, may cost as much as many steps.
    """
    if not isinstance(over, Tracer):
        return where_over(over, start(), old) if over else old
    return jax.lax.cond(_anywhere(over), lambda: where_over(over, start(), old), lambda: old)


@jax.custom_batching.custom_vmap
def _anywhere(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """The flag itself; under ``vmap``, whether any flag is set, so that ``cond`` stays a branch."""
    return flag


@_anywhere.def_vmap
def _anywhere_in_batch(size: int, batched: Any, flags: Array) -> tuple[Array, bool]:
    return _anywhere(jnp.any(flags, axis=0)), False
