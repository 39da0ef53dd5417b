"""The base class of all wrappers, and automatic resets of an environment."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Environment, InputError, Policy, Spec, Step
from neorl_envs.blocks import Term
from neorl_envs.closed_loop import where_over

# Base class of all wrappers, which forwards everything to the wrapped environment.


class Wrapper(eqx.Module):
    """Behaves like the environment it holds; a subclass overrides what it changes.

    Like plants, wrappers are hashable and have no array leaves, so they may be static arguments.
    The wrapper of a plant is itself a plant.

    Attributes:
        env: The wrapped environment.
    """

    env: Any

    @property
    def name(self) -> str:
        """Name of the wrapped plant."""
        return self.env.name

    @property
    def reference(self) -> str:
        """Name of the tuning with which learned policies are compared."""
        return self.env.reference

    @property
    def reward_unit(self) -> str:
        """Unit of the reward."""
        return self.env.reward_unit

    @property
    def glossary(self) -> str:
        """A sentence that explains what the return consists of."""
        return self.env.glossary

    @property
    def tracked(self) -> Mapping[str, str]:
        """Measured channels, mapped to the channels of their setpoints."""
        return self.env.tracked

    @property
    def exogenous(self) -> tuple[str, ...]:
        """Measured channels that no controller influences."""
        known = {channel.name for channel in self.spec.obs}
        return tuple(name for name in self.env.exogenous if name in known)

    @property
    def graph(self) -> tuple[str, ...]:
        """Assignment of the remaining channels to the nodes and edges of the plant's graph."""
        known = {channel.name for channel in (*self.spec.obs, *self.spec.action)}
        return tuple(
            line for line in self.env.graph if not (name := line.rpartition("=")[0].strip())
            or name in known
        )  # fmt: skip

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms that make up the return."""
        return self.env.terms

    @property
    def channel_descriptions(self) -> str:
        """A sentence on what the channels measure and manipulate."""
        return self.env.channel_descriptions

    @property
    def spec(self) -> Spec:
        """Channels, period and horizon."""
        return self.env.spec

    def tunings(self) -> Mapping[str, Policy]:
        """The plant's controllers by name."""
        return self.env.tunings()

    def operator_plan(self) -> Any:
        """Interventions of the operators during the recording of a log."""
        return self.env.operator_plan()

    def action_rates(self) -> tuple[float, ...]:
        """Largest change of each actuator per second."""
        return self.env.action_rates()

    def bands(self) -> Mapping[str, tuple[float, float]]:
        """Soft limits of measured channels."""
        return self.env.bands()

    def penalty_weights(self) -> Mapping[str, float]:
        """Reward subtracted for one unit of each cost."""
        return self.env.penalty_weights()

    def interlock(
        self, obs: Float[Array, " obs"], action: Float[Array, " act"]
    ) -> Float[Array, " act"]:
        """Not forwarded: that of the wrapped plant expects the plant's own observations."""
        return action

    def objective(
        self,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        next_obs: Float[Array, " obs"],
        last_action: Float[Array, " act"],
    ) -> Float[Array, " outcome"]:
        """Not forwarded: that of the wrapped plant expects the plant's own observations."""
        return jnp.full(1 + self.spec.n_cost, jnp.nan, obs.dtype)

    def default_params(self, preset: str = "plant") -> Any:
        """Parameters without randomisation."""
        return self.env.default_params(preset)

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Any:
        """Samples the parameters of one episode with the given relative spread."""
        return self.env.sample_params(key, preset=preset, spread=spread)

    def check_params(self, params: Any) -> None:
        """Raises for physically impossible parameters if the plant can check them."""
        check_params(self.env, params)

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[Any, Float[Array, " obs"]]:
        """The state and first observation of a new episode."""
        return self.env.reset(params, key)

    def step(
        self, params: Any, state: Any, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[Any, Step]:
        """Simulates one control period."""
        return self.env.step(params, state, action, key)


def check_params(env: Any, params: Any) -> None:
    """Raises for physically impossible parameters if the environment has a ``check_params``."""
    check = getattr(env, "check_params", None)
    if check is not None:
        check(params)


# Automatic resets of an environment, and matching resets of the policy's carry.


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
