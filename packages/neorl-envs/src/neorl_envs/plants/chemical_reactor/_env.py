"""ChemicalReactor-v0: the environment contract over the pieces of this folder."""

import functools
import math
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core import Spec, Step
from neorl_core.control import PID
from neorl_envs.plants.chemical_reactor._actuators import (
    ACTION,
    SLEWS,
    Inputs,
    at_start,
    delivered,
    moved,
)
from neorl_envs.plants.chemical_reactor._dynamics import advance
from neorl_envs.plants.chemical_reactor._instruments import OBS, Noise, observe, sample_noise
from neorl_envs.plants.chemical_reactor._objective import (
    ADIABATIC_LIMIT,
    BAND,
    COSTS,
    PRESSURE_LIMIT,
    SETPOINT,
    costs,
    reward,
    step_info,
)
from neorl_envs.plants.chemical_reactor._operation import operator_plan
from neorl_envs.plants.chemical_reactor._parameters import (
    DT,
    Balances,
    Parameters,
    default_parameters,
    sample_parameters,
)
from neorl_envs.plants.chemical_reactor._penalties import PENALTY_WEIGHTS
from neorl_envs.plants.chemical_reactor._tunings import REFERENCE, SETTINGS, tuning
from neorl_envs.recording._operators import OperatorPlan

HOURS = DT / 3600
HORIZON = 300
STABLE_SUBSTEPS = 24


class State(NamedTuple):
    """Everything that the plant remembers between two steps.

    Attributes:
        plant: The nine balanced quantities.
        inputs: Positions of the actuators.
        time: Steps since the start of the batch.
    """

    plant: Balances
    inputs: Inputs
    time: Int[Array, ""]


class ChemicalReactor(eqx.Module):
    """Semi-batch polymerisation with a jacket and an external heat exchanger.

    Three actuators (feed, inlet temperatures of jacket and exchanger), twelve instruments. The
    batch is worth 100 points of polymer and each step of 50 s costs 0.1; feeding faster finishes
    sooner and brings the reactor closer to running away. Ends with the amount of polymer or with
    a trip; truncated after 300 steps.

    Attributes:
        horizon: Steps after which an episode is truncated.
        substeps: Integration steps in one control period.
    """

    horizon: int = eqx.field(static=True, default=HORIZON)
    substeps: int = eqx.field(static=True, default=40)

    name: ClassVar[str] = "ChemicalReactor-v0"
    reference: ClassVar[str] = REFERENCE
    reward_unit: ClassVar[str] = "points"
    glossary: ClassVar[str] = (
        "points: 100 for a finished batch, less 0.1 for each step and 100 for a trip; "
        "PID 106/1500: set point of the adiabatic temperature 106 \N{DEGREE SIGN}C, gain of the "
        "feed 1500 kg/h per K"
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: T_R reactor, T_S its wall, T_M jacket, T_EK reactor contents in the external "
        "heat exchanger, T_AWT coolant of that exchanger; m_W, m_A_hat and m_P water, monomer "
        "and polymer in the reactor; m_acc what was fed so far; T_adiab_hat the temperature that "
        "a total loss of cooling would lead to, estimated; P pressure. Manipulated: feed, T_in_M "
        "and T_in_EK inlet temperatures of jacket and exchanger."
    )

    def __check_init__(self) -> None:
        """Refuses a horizon below one step and an integration that would be unstable."""
        if self.horizon < 1:
            raise ValueError(f"horizon must be at least one step, got {self.horizon}")
        if self.substeps < STABLE_SUBSTEPS:
            raise ValueError(
                f"substeps must be at least {STABLE_SUBSTEPS}, or the integration of a "
                f"{DT:g} s period is unstable; got {self.substeps}"
            )

    @property
    def spec(self) -> Spec:
        """Channels, period and horizon."""
        return _spec(self.horizon)

    def action_rates(self) -> tuple[float, ...]:
        """Largest change of each actuator per second, in its own unit."""
        return tuple(slew / DT for slew in SLEWS)

    def tunings(self) -> dict[str, PID]:
        """The plant's controllers by name; ``reference`` names the one to beat."""
        return {name: tuning(*settings, dt=DT) for name, settings in SETTINGS.items()}

    def bands(self) -> dict[str, tuple[float, float]]:
        """Soft limits of measured channels, lower and upper, for pictures and reports."""
        return {
            "T_R": (SETPOINT - BAND, SETPOINT + BAND),
            "T_adiab_hat": (-math.inf, ADIABATIC_LIMIT),
            "P": (-math.inf, PRESSURE_LIMIT),
        }

    def penalty_weights(self) -> dict[str, float]:
        """Points per unit of each cost that training takes off the reward."""
        return dict(PENALTY_WEIGHTS)

    def operator_plan(self) -> OperatorPlan:
        """What the operators of this plant do while a log is recorded."""
        return operator_plan()

    def default_params(
        self, preset: str = "plant", *, dtype: DTypeLike = jnp.float32
    ) -> Parameters:
        """The published constants, with sensor noise (``"plant"``) or without (``"clean"``)."""
        return default_parameters(preset, dtype=dtype)

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Parameters:
        """One episode's draw of reaction heat and rate constant; ``spread=0.3`` as published."""
        return sample_parameters(default_parameters(preset), key, spread=spread)

    def reset(self, params: Parameters, key: PRNGKeyArray) -> tuple[State, Float[Array, " obs"]]:
        """The charged reactor at the start of a batch, and what its instruments show."""
        dtype = params.noise_mass.dtype
        state = State(params.initial, at_start(dtype), jnp.zeros((), jnp.int32))
        noise = sample_noise(params, key)
        return state, observe(params, state.plant, jnp.zeros((), dtype), noise)

    def sample_noise(self, params: Parameters, key: PRNGKeyArray) -> Noise:
        """What chance adds to one step."""
        return sample_noise(params, key)

    def step(
        self, params: Parameters, state: State, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[State, Step]:
        """One control period of 50 s; see :meth:`step_with_noise`."""
        return self.step_with_noise(params, state, action, self.sample_noise(params, key))

    def step_with_noise(
        self, params: Parameters, state: State, action: Float[Array, " act"], noise: Noise
    ) -> tuple[State, Step]:
        """One control period with given instrument errors: a deterministic function.

        Args:
            params: Physical constants.
            state: Before the step.
            action: Demanded feed (kg/h) and inlet temperatures (K). A channel that is NaN leaves
                its actuator where it is.
            noise: Errors from :meth:`sample_noise`.

        Returns:
            The state after the step and what the plant answered. ``applied`` is the action after
            range and slew limit: the positions of the actuators.
        """
        inputs = moved(action, state.inputs)
        flows = delivered(inputs, state.plant.m_acc, HOURS)
        plant = advance(params, state.plant, flows, HOURS, substeps=self.substeps)
        new = State(plant, inputs, state.time + 1)
        info = step_info(params, plant)
        terminated = info.success | info.trip
        dtype = plant.m_W.dtype
        obs = observe(params, plant, new.time.astype(dtype) * jnp.asarray(HOURS, dtype), noise)
        return new, Step(
            obs=obs,
            final_obs=obs,
            reward=reward(state.plant, plant, info),
            cost=costs(info),
            applied=jnp.stack(inputs),
            terminated=terminated,
            truncated=(new.time >= self.horizon) & ~terminated,
            info=info,
        )


@functools.cache
def _spec(horizon: int) -> Spec:
    return Spec(obs=OBS, action=ACTION, cost=COSTS, dt=DT, horizon=horizon)
