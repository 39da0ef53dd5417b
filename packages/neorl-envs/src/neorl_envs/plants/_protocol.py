"""The protocol of a plant, defaults for its optional members, and the check of both."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core import highs, lows
from neorl_envs.blocks._limits import Term
from neorl_envs.recording._behaviour import OperatorPlan, Recordable, excitation_plan

EXCITATION = 0.05
"""Default amplitude of test signals, as a fraction of each actuator's range."""


@runtime_checkable
class Plant(Recordable, Protocol):
    """A recordable environment with the members that training, evaluation and reports need.

    A plant is immutable, hashable and a PyTree without array leaves (a frozen
    ``equinox.Module`` of static fields), so compiled functions accept it both as a static and as a
    traced argument. :class:`PlantDefaults` provides the optional members; all others are required.
    If ``Step.info`` has the fields ``success`` and ``trip``, results count them.

    Attributes:
        reward_unit: Unit of the reward, as shown to users.
        reference: Name of the tuning with which learned policies are compared.
        glossary: A sentence on what the return consists of and how the controllers are named.
        channel_descriptions: A sentence on what the channels measure and manipulate.
        tracked: Measured channels, mapped to the channels of their setpoints.
        exogenous: Measured channels that no controller influences: weather, demand, setpoints.
        graph: For a plant that is a network, which channel belongs to which node or edge, and the
            nodes and edges without channels, in the format of a learner's ``networks.graph``. Empty
            if the names of the channels already give the graph, or if the plant is not a network.
        terms: The terms of the return, in units such as kg, kWh or minutes. If there are any,
            ``Step.info.terms`` has the amount of each, and the sum of amount times worth is the
            reward.
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
        """Lower and upper soft limits of measured channels, for plots and reports."""
        ...

    def penalty_weights(self) -> Mapping[str, float]:
        """Reward subtracted for one unit of each cost in training, by the name of the cost."""
        ...

    def interlock(
        self, obs: Float[Array, " obs"], action: Float[Array, " act"]
    ) -> Float[Array, " act"]:
        """The action after the plant's interlocks, as far as measurements determine it."""
        ...

    def objective(
        self,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        next_obs: Float[Array, " obs"],
        last_action: Float[Array, " act"],
    ) -> Float[Array, " outcome"]:
        """Reward and costs of a step as functions of measurements; NaN for one that is not."""
        ...


class PlantDefaults:
    """Default values of the optional members of a plant, to be inherited.

    By default a plant has no descriptions, no setpoint channels, no graph, no terms, no rate
    limits, no bands and no penalty weights. Its operators add a binary test signal of 5 % of the
    range to every actuator, but neither step setpoints nor switch to manual.

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
        """NaN, because no objective is declared; a plant model must learn reward and costs."""
        return jnp.full(1 + self.spec.n_cost, jnp.nan, obs.dtype)

    def action_rates(self: Any) -> tuple[float, ...]:
        """No rate limit for any actuator."""
        return (float("inf"),) * self.spec.n_action

    def bands(self) -> dict[str, tuple[float, float]]:
        """No soft limits."""
        return {}

    def operator_plan(self: Any) -> OperatorPlan:
        """Only test signals."""
        span = jnp.asarray(highs(self.spec.action)) - jnp.asarray(lows(self.spec.action))
        setpoint = getattr(self.tunings()[self.reference], "setpoint", ())
        return excitation_plan(EXCITATION * span, len(setpoint), self.spec.n_obs)

    def penalty_weights(self) -> dict[str, float]:
        """No weights are declared, so the user must set them for training."""
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
    """Returns an object after checking that it has all members of a plant.

    Raises a ``TypeError`` if members are missing (all of them are named) or have a wrong type, and
    a ``ValueError`` if its name, its reference or a rate is inconsistent with its other members.
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
