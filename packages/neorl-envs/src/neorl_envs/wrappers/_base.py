"""Base of all wrappers, which passes on everything else."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Policy, Spec, Step
from neorl_envs.blocks import Term


class Wrapper(eqx.Module):
    """An environment that is the one it holds; a wrapper redefines what it changes.

    Hashable and without array leaves, as plants are, so that it may be a static argument. Where
    the environment is a plant, the wrapper is one.

    Attributes:
        env: The environment inside.
    """

    env: Any

    @property
    def name(self) -> str:
        """Name of the plant inside."""
        return self.env.name

    @property
    def reference(self) -> str:
        """Name of the tuning that learned policies are measured against."""
        return self.env.reference

    @property
    def reward_unit(self) -> str:
        """Unit of the reward."""
        return self.env.reward_unit

    @property
    def glossary(self) -> str:
        """A sentence on what a return is made of."""
        return self.env.glossary

    @property
    def tracked(self) -> Mapping[str, str]:
        """Measured channels with the channel of their set point."""
        return self.env.tracked

    @property
    def exogenous(self) -> tuple[str, ...]:
        """Measured channels that no controller influences."""
        known = {channel.name for channel in self.spec.obs}
        return tuple(name for name in self.env.exogenous if name in known)

    @property
    def graph(self) -> tuple[str, ...]:
        """Which of the channels that are left belongs to which node or edge."""
        known = {channel.name for channel in (*self.spec.obs, *self.spec.action)}
        return tuple(
            line for line in self.env.graph if not (name := line.rpartition("=")[0].strip())
            or name in known
        )  # fmt: skip

    @property
    def terms(self) -> tuple[Term, ...]:
        """What a return is made of."""
        return self.env.terms

    @property
    def channel_descriptions(self) -> str:
        """A sentence on what the channels measure and move."""
        return self.env.channel_descriptions

    @property
    def spec(self) -> Spec:
        """Channels, period and horizon."""
        return self.env.spec

    def tunings(self) -> Mapping[str, Policy]:
        """The plant's controllers by name."""
        return self.env.tunings()

    def operator_plan(self) -> Any:
        """Interventions of the operators while a log is recorded."""
        return self.env.operator_plan()

    def action_rates(self) -> tuple[float, ...]:
        """Largest change of each actuator per second."""
        return self.env.action_rates()

    def bands(self) -> Mapping[str, tuple[float, float]]:
        """Soft limits of measured channels."""
        return self.env.bands()

    def penalty_weights(self) -> Mapping[str, float]:
        """Reward that one unit of each cost takes off."""
        return self.env.penalty_weights()

    def interlock(
        self, obs: Float[Array, " obs"], action: Float[Array, " act"]
    ) -> Float[Array, " act"]:
        """None declared: that of the plant inside reads its own observations."""
        return action

    def objective(
        self,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        next_obs: Float[Array, " obs"],
        last_action: Float[Array, " act"],
    ) -> Float[Array, " outcome"]:
        """None declared: that of the plant inside reads its own observations."""
        return jnp.full(1 + self.spec.n_cost, jnp.nan, obs.dtype)

    def default_params(self, preset: str = "plant") -> Any:
        """Parameters without randomisation."""
        return self.env.default_params(preset)

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Any:
        """One episode's parameters, drawn with a relative width."""
        return self.env.sample_params(key, preset=preset, spread=spread)

    def check_params(self, params: Any) -> None:
        """Refuses parameters outside physics where the plant knows how to."""
        check_params(self.env, params)

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[Any, Float[Array, " obs"]]:
        """The state and first observation of a new episode."""
        return self.env.reset(params, key)

    def step(
        self, params: Any, state: Any, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[Any, Step]:
        """One control period."""
        return self.env.step(params, state, action, key)


def check_params(env: Any, params: Any) -> None:
    """Refuses parameters outside physics, where the environment has a ``check_params``."""
    check = getattr(env, "check_params", None)
    if check is not None:
        check(params)
