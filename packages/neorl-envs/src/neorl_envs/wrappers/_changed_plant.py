"""Wrappers that change a plant: limits, dead time, disturbances, sampled or shifted constants."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import CostChannel, Environment, InputError, Spec, Step, highs, lows
from neorl_core.control import DelayLine, delay_line, delay_step
from neorl_core.infrastructure import unknown_name
from neorl_core.projections import limit_rate, project_box
from neorl_envs.blocks import autoregressive
from neorl_envs.blocks._constants import named_constants
from neorl_envs.wrappers._base import Wrapper, check_params

# Converts a demand to an actuator command within the actuator's range and rate limit.


def held_command(
    env: Any, params: Any, state: Any, like: Array, key: PRNGKeyArray
) -> Float[Array, " act"]:
    """The command that the actuators currently hold, found by a trial step with an all-NaN action.

    ``key`` may be one that was used before, because the trial step is discarded.
    """
    leave = jnp.full((env.spec.n_action,), jnp.nan, like.dtype)
    return env.step(params, state, leave, jax.random.clone(key))[1].applied


def limit_command(env: Any, last: Float[Array, " act"], action: Float[Array, " act"]) -> Array:
    """Limits the demand to range and rate; a NaN channel keeps its last command.

    Raises a ``ValueError`` if the shape of the action is not ``(act,)``.
    """
    spec = env.spec
    if jnp.shape(action) != (spec.n_action,):
        raise ValueError(f"an action has shape ({spec.n_action},), got {jnp.shape(action)}")
    demand = jnp.where(jnp.isnan(action), last, jnp.asarray(action, last.dtype))
    low, high = (jnp.asarray(ends(spec.action), last.dtype) for ends in (lows, highs))
    speed = jnp.asarray(env.action_rates(), last.dtype)
    return limit_rate(project_box(demand, low, high), last, speed, dt=spec.dt)


# Adds limits of measured channels as costs to any plant.


class ChannelLimit(NamedTuple):
    """Limits of one measured channel.

    Attributes:
        index: Index of the channel in the observation.
        low: Smallest allowed value; minus infinity for no limit.
        high: Largest allowed value; infinity for no limit.
    """

    index: int
    low: float
    high: float


class Constrained(Wrapper):
    """A plant with additional limits, each of which adds a cost named ``<channel>_limit``.

    The cost is ``c = max(low - y, y - high, 0)`` in the channel's unit, where ``y`` is the reading
    after the step. The limit of this cost is zero in every step. Rewards and the ends of episodes
    do not change.

    Attributes:
        env: The wrapped environment.
        limits: Limits of the channels, in the order of the additional costs.
        penalty: Reward subtracted for one unit of an additional cost, by :meth:`penalty_weights`.
    """

    limits: tuple[ChannelLimit, ...] = eqx.field(static=True, default=())
    penalty: float = eqx.field(static=True, default=1.0)

    @property
    def spec(self) -> Spec:
        """Channels, period and horizon, with the additional costs last."""
        plain = self.env.spec
        channels = [plain.obs[limit.index] for limit in self.limits]
        further = (CostChannel(f"{c.name}_limit", c.unit, 0.0, "step") for c in channels)
        return Spec(plain.obs, plain.action, (*plain.cost, *further), plain.dt, plain.horizon)

    def bands(self) -> dict[str, tuple[float, float]]:
        """Soft limits of measured channels, including the additional ones."""
        names = [channel.name for channel in self.env.spec.obs]
        return {
            **self.env.bands(),
            **{names[limit.index]: (limit.low, limit.high) for limit in self.limits},
        }

    def penalty_weights(self) -> dict[str, float]:
        """Reward subtracted for one unit of each cost."""
        names = [channel.name for channel in self.spec.cost[self.env.spec.n_cost :]]
        return {**self.env.penalty_weights(), **dict.fromkeys(names, self.penalty)}

    def step(
        self, params: Any, state: Any, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[Any, Step]:
        """Simulates one control period."""
        state, step = self.env.step(params, state, action, key)
        limited = step.final_obs[jnp.asarray([limit.index for limit in self.limits], jnp.int32)]
        low, high = (
            jnp.asarray([getattr(limit, end) for limit in self.limits], limited.dtype)
            for end in ("low", "high")
        )
        excess = jnp.maximum(jnp.maximum(low - limited, limited - high), 0)
        return state, step._replace(cost=jnp.concatenate([step.cost, excess]))


def constrained(
    env: Environment, limits: Mapping[str, tuple[float, float]], *, penalty: float = 1.0
) -> Constrained:
    """Adds limits of measured channels to any plant, even one without costs.

    Args:
        env: A plant.
        limits: Smallest and largest allowed value of each limited channel, by name and in its
            unit; infinite for no limit.
        penalty: Reward subtracted for each unit beyond a limit, in training and in ranking.

    Returns:
        An environment with the same interface and one additional cost for each limit.

    Raises:
        InputError: If a channel is unknown (the message suggests the nearest name), or if a limit
            is empty, lies outside the measuring range, or is already among the costs.

    Example:
        >>> import neorl_envs
        >>> env = constrained(neorl_envs.make("Pipeline-v0"), {"outflow": (0.0, 150.0)})
        >>> [cost.name for cost in env.spec.cost]
        ['outflow_limit']
    """
    names = [channel.name for channel in env.spec.obs]
    bounds = []
    for name, (low, high) in limits.items():
        if name not in names:
            raise unknown_name("measured channel", name, names)
        channel = env.spec.obs[names.index(name)]
        if not (low < high and low < channel.high and high > channel.low):
            raise InputError(
                f"limits of {name!r} must have low below high and a part of its range, "
                f"{channel.low:g} to {channel.high:g} {channel.unit}, got {low:g} and {high:g}"
            )
        if f"{name}_limit" in [cost.name for cost in env.spec.cost]:
            raise InputError(f"{name!r} is limited already; give both its limits at once")
        bounds.append(ChannelLimit(names.index(name), float(low), float(high)))
    if not (math.isfinite(penalty) and penalty >= 0):
        raise InputError(f"penalty must be a number of at least 0, got {penalty}")
    return Constrained(env, tuple(bounds), float(penalty))


# Adds dead time between the controller and any plant.


class DelayedState(NamedTuple):
    """State of the environment, and the delayed commands and observations.

    Attributes:
        state: State of the wrapped environment.
        command: The last command sent, shape ``(act,)``.
        commands: Commands that have not reached the plant yet.
        readings: Observations that have not reached the controller yet.
    """

    state: Any
    command: Float[Array, " act"]
    commands: DelayLine
    readings: DelayLine


class Delayed(Wrapper):
    """A plant whose commands and readings are delayed by whole control periods.

    As for the dead time of a plant's own actuators, ``Step.applied`` is the command that was sent,
    within range and rate limit. Until the first command arrives, the actuators keep their initial
    positions. Rewards, costs and ends of episodes are not delayed.

    Attributes:
        env: The wrapped environment.
        action: Number of periods between a command and its effect.
        obs: Number of periods between a measurement and its arrival.
    """

    action: int = eqx.field(static=True, default=0)
    obs: int = eqx.field(static=True, default=0)

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[DelayedState, Float[Array, " obs"]]:
        """Starts an episode, in which nothing has been sent yet."""
        state, obs = self.env.reset(params, key)
        command = held_command(self.env, params, state, obs, key)
        commands = delay_line(command, delay=self.action)
        return DelayedState(state, command, commands, delay_line(obs, delay=self.obs)), obs

    def step(
        self, params: Any, state: DelayedState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[DelayedState, Step]:
        """Simulates one control period."""
        command = limit_command(self.env, state.command, action)
        commands, arrived = delay_step(state.commands, command, first=False)
        inner, step = self.env.step(params, state.state, arrived, key)
        readings, obs = delay_step(state.readings, step.final_obs, first=False)
        new = DelayedState(inner, command, commands, readings)
        return new, step._replace(obs=obs, final_obs=obs, applied=command)


def delayed(env: Environment, *, action: int = 0, obs: int = 0) -> Delayed:
    """Adds dead time before the actuators and after the instruments of any plant.

    Args:
        env: A plant.
        action: Number of control periods between a command and its effect.
        obs: Number of control periods between a measurement and its arrival.

    Returns:
        An environment with the same interface.

    Raises:
        ValueError: If a delay is not a non-negative integer.

    Example:
        >>> import neorl_envs
        >>> delayed(neorl_envs.make("ChemicalReactor-v0"), action=2).spec.n_action
        3
    """
    for delay in (action, obs):
        delay_line(0.0, delay=delay)  # rejects an invalid delay here, not when it is traced
    return Delayed(env, action, obs)


# Adds an unmeasured load disturbance at the input of any plant.


class DisturbedState(NamedTuple):
    """State of the environment and of the disturbance.

    Attributes:
        state: State of the wrapped environment.
        command: The last command sent, shape ``(act,)``.
        load: Disturbance added to the command, in the channels' units, shape ``(act,)``.
    """

    state: Any
    command: Float[Array, " act"]
    load: Float[Array, " act"]


class Disturbed(Wrapper):
    """A plant whose actuators deviate from their commands by an unmeasured amount.

    ``load <- a load + sd range sqrt(1 - a^2) n`` with ``a = exp(-dt / memory)`` and standard normal
    ``n`` is added to every command. ``Step.applied`` is the command without the load, since a log
    can show no more.

    Attributes:
        env: The wrapped environment.
        sd: Stationary standard deviation as a fraction of every actuator's range.
        memory: Time constant, s.
    """

    sd: float = eqx.field(static=True, default=0.05)
    memory: float = eqx.field(static=True, default=600.0)

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[DisturbedState, Float[Array, " obs"]]:
        """Starts an episode with the disturbance sampled from its stationary distribution."""
        for_env, for_load = jax.random.split(key)
        state, obs = self.env.reset(params, for_env)
        command = held_command(self.env, params, state, obs, for_env)
        normal = jax.random.normal(for_load, command.shape, command.dtype)
        return DisturbedState(state, command, self._sd(command) * normal), obs

    def step(
        self, params: Any, state: DisturbedState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[DisturbedState, Step]:
        """Simulates one control period."""
        for_env, for_load = jax.random.split(key)
        command = limit_command(self.env, state.command, action)
        inner, step = self.env.step(params, state.state, command + state.load, for_env)
        load = autoregressive(
            state.load,
            jax.random.normal(for_load, command.shape, command.dtype),
            sd=self._sd(command),
            memory=self.memory,
            dt=self.spec.dt,
        )
        return DisturbedState(inner, command, load), step._replace(applied=command)

    def _sd(self, like: Array) -> Float[Array, " act"]:
        span = np.asarray(highs(self.spec.action)) - np.asarray(lows(self.spec.action))
        return jnp.asarray(self.sd * span, like.dtype)


def disturbed(env: Environment, *, sd: float = 0.05, memory: float = 600.0) -> Disturbed:
    """Adds an unmeasured, slowly varying load at the actuators of any plant.

    Args:
        env: A plant.
        sd: Stationary standard deviation as a fraction of every actuator's range.
        memory: Time constant, s.

    Returns:
        An environment with the same interface.

    Raises:
        InputError: If ``sd`` is negative or ``memory`` is not positive.

    Example:
        >>> import neorl_envs
        >>> disturbed(neorl_envs.make("ChemicalReactor-v0"), sd=0.1).spec.n_obs
        12
    """
    if not (np.isfinite(sd) and sd >= 0):
        raise InputError(f"sd must be a fraction of the range, 0 or more, got {sd}")
    if not (np.isfinite(memory) and memory > 0):
        raise InputError(f"memory must be a positive number of seconds, got {memory}")
    return Disturbed(env, float(sd), float(memory))


# Domain randomisation: every episode samples new parameters.


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


# A plant of the same kind whose constants differ from those behind the training data.


class Shifted(Wrapper):
    """A plant whose constants are multiplied by given factors.

    Attributes:
        env: The wrapped plant.
        factors: Pairs of a constant's name and its factor.
    """

    factors: tuple[tuple[str, float], ...] = eqx.field(static=True, default=())

    def default_params(self, preset: str = "plant") -> Any:
        """Parameters without randomisation, shifted."""
        return self._moved(self.env.default_params(preset))

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Any:
        """Samples the parameters of one episode, shifted."""
        return self._moved(self.env.sample_params(key, preset=preset, spread=spread))

    def _moved(self, params: Any) -> Any:
        factors = dict(self.factors)
        names = iter([name for name, _, _ in named_constants(self.env.constants)])

        def moved(value: Array) -> Array:
            return value * jnp.asarray(factors.get(next(names), 1.0), value.dtype)

        return self.env.with_constants(params, jax.tree.map(moved, params.constants))


def shifted(env: Environment, factors: Mapping[str, float]) -> Shifted:
    """Changes the constants of a plant, so that it differs from the one a policy was trained on.

    Args:
        env: A :class:`neorl_envs.plants.SimulatedPlant`; apply other wrappers to the result.
        factors: Factor of each constant to change, by name.

    Returns:
        A plant with the same interface.

    Raises:
        InputError: If a constant is unknown (the message suggests the nearest name), a factor is
            not finite, or the plant declares no constants.
        ValueError: If a shifted constant is physically impossible; its name and unit are given.
    """
    declared = getattr(env, "constants", None)
    if declared is None:
        raise InputError("only a plant that declares its constants can be shifted")
    known = [name for name, _, _ in named_constants(declared)]
    for name, factor in factors.items():
        if name not in known:
            raise unknown_name("constant", name, known)
        if not math.isfinite(factor):
            raise InputError(f"the factor of {name!r} must be finite, got {factor}")
    new = Shifted(env, tuple((name, float(factor)) for name, factor in factors.items()))
    check_params(env, new.default_params())
    return new
