"""Base class of all wrappers, which forwards everything to the wrapped environment."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Policy, Spec, Step
from neorl_envs.blocks import Term


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
