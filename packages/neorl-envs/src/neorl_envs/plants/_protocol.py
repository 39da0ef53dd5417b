"""What a plant must bring, what it may bring, and the check of both."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core import highs, lows
from neorl_envs.blocks._terms import Term
from neorl_envs.recording._operators import OperatorPlan, excitation_plan
from neorl_envs.recording._recordable import Recordable

EXCITATION = 0.05
"""Amplitude of the test signals of a plant without a plan of its own, as part of every range."""


@runtime_checkable
class Plant(Recordable, Protocol):
    """A recordable environment with what training, judging and reporting ask of a plant.

    A plant is immutable, hashable and a PyTree without array leaves (a frozen
    ``equinox.Module`` of static fields): compiled functions take it as a static argument and as a
    traced one. :class:`PlantDefaults` brings the members that a plant may leave out; the rest is
    required. Where ``Step.info`` has the fields ``success`` and ``trip``, results count them.

    Attributes:
        reward_unit: Unit of the reward, as printed to people.
        reference: Name of the tuning that learned policies are measured against.
        glossary: What a return is made of and what the controllers are called after; a sentence.
        channel_descriptions: What the channels measure and move; a sentence.
        tracked: Measured channels with the name of the channel that shows their set point.
        exogenous: Measured channels that no controller influences: weather, demand, set points.
        graph: Of a plant that is a network: which channel belongs to which node or edge, and what
            has no channel, as ``networks.graph`` of a learner takes it; empty where the channels'
            own names say so, or where it is no network.
        terms: What a return is made of, in units such as kg, kWh or minutes. Where there are any,
            ``Step.info.terms`` has the amount of each, and amounts times worth give the reward.
    """

    reward_unit: ClassVar[str]
    reference: ClassVar[str]
    glossary: ClassVar[str]
    channel_descriptions: ClassVar[str]
    tracked: ClassVar[Mapping[str, str]]
    exogenous: ClassVar[tuple[str, ...]]
    graph: ClassVar[tuple[str, ...]]
    terms: ClassVar[tuple[Term, ...]]

    def default_params(self, preset: str = "plant") -> Any:
        """Parameters without randomisation, by preset."""
        ...

    def action_rates(self) -> tuple[float, ...]:
        """Largest change of each actuator per second, in its own unit; infinite for no limit."""
        ...

    def bands(self) -> Mapping[str, tuple[float, float]]:
        """Soft limits of measured channels, lower and upper, for pictures and reports."""
        ...

    def penalty_weights(self) -> Mapping[str, float]:
        """What one unit of a cost takes off the reward in training, by the name of the cost."""
        ...

    def interlock(
        self, obs: Float[Array, " obs"], action: Float[Array, " act"]
    ) -> Float[Array, " act"]:
        """What the plant's interlocks leave of an action, as far as measurements tell."""
        ...

    def objective(
        self,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        next_obs: Float[Array, " obs"],
        last_action: Float[Array, " act"],
    ) -> Float[Array, " outcome"]:
        """Reward and costs of a step as functions of measurements, NaN where they are none."""
        ...


class PlantDefaults:
    """The members that a plant may leave out; derive from it to have them.

    No words, no set points among the channels, no graph, no terms, no rate limits, no bands, no
    declared penalty weights; operators who add a binary test signal of 5 % of its range to every
    actuator, and neither step set points nor take over.

    Example:
        >>> import equinox as eqx
        >>> class Tank(eqx.Module, PlantDefaults):
        ...     name = "Tank-v0"
        >>> Tank().bands()
        {}
    """

    glossary: ClassVar[str] = ""
    channel_descriptions: ClassVar[str] = ""
    tracked: ClassVar[Mapping[str, str]] = {}
    exogenous: ClassVar[tuple[str, ...]] = ()
    graph: ClassVar[tuple[str, ...]] = ()
    terms: ClassVar[tuple[Term, ...]] = ()

    def interlock(
        self: Any, obs: Float[Array, " obs"], action: Float[Array, " act"]
    ) -> Float[Array, " act"]:
        """No interlock."""
        return action

    def objective(
        self: Any,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        next_obs: Float[Array, " obs"],
        last_action: Float[Array, " act"],
    ) -> Float[Array, " outcome"]:
        """Nothing declared: a plant model learns reward and costs."""
        return jnp.full(1 + self.spec.n_cost, jnp.nan, obs.dtype)

    def action_rates(self: Any) -> tuple[float, ...]:
        """No limit for any actuator."""
        return (float("inf"),) * self.spec.n_action

    def bands(self) -> dict[str, tuple[float, float]]:
        """No soft limits."""
        return {}

    def operator_plan(self: Any) -> OperatorPlan:
        """Test signals alone."""
        span = jnp.asarray(highs(self.spec.action)) - jnp.asarray(lows(self.spec.action))
        setpoint = getattr(self.tunings()[self.reference], "setpoint", ())
        return excitation_plan(EXCITATION * span, len(setpoint), self.spec.n_obs)

    def penalty_weights(self) -> dict[str, float]:
        """None declared; whoever trains says them."""
        return {}


REQUIRED = (
    *("name", "spec", "reset", "step", "default_params", "sample_params"),
    *("reward_unit", "reference", "tunings"),
)
OPTIONAL = (
    *("glossary", "channel_descriptions", "tracked", "action_rates", "bands"),
    *("operator_plan", "penalty_weights", "exogenous"),
    *("interlock", "objective", "graph", "terms"),
)
METHODS = (
    *("reset", "step", "default_params", "sample_params", "tunings", "action_rates", "bands"),
    *("operator_plan", "penalty_weights", "interlock", "objective"),
)


def check_plant(name: str, plant: Any) -> Plant:
    """The plant, if it brings what it must.

    Args:
        name: Name under which the plant is registered.
        plant: What its factory made.

    Returns:
        The same object.

    Raises:
        TypeError: If a member is missing or of the wrong kind; all missing ones are named.
        ValueError: If its own name, its reference or a rate disagrees with the rest of it.
    """
    missing = [member for member in REQUIRED if not hasattr(plant, member)]
    if missing:
        raise TypeError(f"a plant needs {', '.join(missing)}; see neorl_envs.plants.Plant")
    missing = [member for member in OPTIONAL if not hasattr(plant, member)]
    if missing:
        raise TypeError(
            f"a plant has {', '.join(missing)} too; derive from neorl_envs.plants.PlantDefaults "
            "to have them with their defaults"
        )
    for member in METHODS:
        if not callable(getattr(plant, member)):
            raise TypeError(f"{member} of a plant must be a method")
    if plant.name != name:
        raise ValueError(f"a plant bears the name it is known by, got {plant.name!r}")
    if plant.reference not in plant.tunings():
        raise ValueError(
            f"reference {plant.reference!r} is not one of the tunings {list(plant.tunings())}"
        )
    if len(plant.action_rates()) != plant.spec.n_action:
        raise ValueError(
            f"action_rates has {len(plant.action_rates())} entries; expected "
            f"{plant.spec.n_action}, one for each action channel"
        )
    return plant
