r"""The Industrial Benchmark: three steerings, delayed and hidden effects, state-dependent noise.

A setpoint $p$ is the load of the machine. Velocity $v$, gain $g$ and shift $h$ are changed by at
most 1, 10 and 5.75 per step, each within 0 to 100. Gain and velocity have effective actions
$a \in [0, 1]$ and hidden states $\mu$. In every step, random numbers are drawn for each: $E$
exponential, $U$ uniform, $B$ Bernoulli with probability $a$, and $N$ normal:

$$n = \tanh(E / 20) + (1 - \tanh(E / 20))\, U B a, \qquad
\mu' = \begin{cases} a & a \le 0.05 \\ \min(5, 1.1 \mu) & \mu \ge 1.2 \\
0.9 \mu + n / 3 & \text{otherwise} \end{cases}$$

Fatigue depends on velocity and gain, and the operational cost is delayed by five to nine steps:

$$f = \frac{1 + 2 \max n}{3} \max\left(\frac{30000}{5 v + 100} - \frac{g^2}{100}, 0\right), \qquad
\hat c = \sum_{k=5}^{9} w_k\, e^{(2 p + 2.5 g_{-k} + 4 v_{-k}) / 100} + 25\,(1 + M(\phi, h_e))$$

where $\max n$ is replaced by $1 / (1 + e^{-2.4 - 0.4 N})$ if a hidden state has reached 5.
Consumption is $c = \hat c - N\,(1 + 0.005\, \hat c)$. The miscalibration
$M = -\alpha r^2 + \beta r^4 + \kappa r \sin \phi$ runs through a hidden cycle of 24 phases $\phi$,
driven by the effective shift $h_e = h / 20 - p / 50 - 1.5$. The reward is $-(3 f + c)$ per step. An
episode has 1,000 steps and never ends early; there is no cost.

All equations and numbers are published. Our own choices are the setpoint of an episode, constant
and uniform in [10, 100] (55 in the preset ``"clean"``, which still has noise, because the noise is
part of the benchmark), a nominal period of 1 s, the measuring ranges, and the two controllers. One
moves to fixed steerings, the other to steerings that depend on the setpoint.

*Dead time.* The operational cost is delayed by five to nine steps, as part of the equations. The
channels have no dead time, as in the benchmark, which is reproduced exactly for the same random
numbers.

Source: Hein, Depeweg, Tokic, Udluft, Hentschel, Runkler and Sterzing, "A Benchmark Environment
Motivated by Industrial Control Problems", IEEE SSCI 2017 (arXiv 1709.09480); recorded trajectories
of its authors' Python code.
"""

import functools
import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Channel
from neorl_core.control import StateFeedback
from neorl_envs.blocks import Actuator, Instrument, Relation, Term, constant
from neorl_envs.plants._simulated import Moment, SimulatedPlant

__all__ = ["Constants", "Draws", "Machine", "effective_actions"]

# The hidden cycle of the shift: a phase machine over tilted double wells.
#
# Source: Hein et al. 2017, section on miscalibration; the potential is the normalised, linearly
# biased Goldstone potential ``-alpha r^2 + beta r^4 + kappa sin(phi) r``.


PHASES = 24
STRONGEST = PHASES // 4
REQUIRED_STEP = math.sin(math.radians(15))
SAFE_ZONE = REQUIRED_STEP / 2


class Wells(NamedTuple):
    """Numbers of the potential for the phases -6 to 6, each of shape ``(13,)``.

    Attributes:
        sine: Sine of the phase.
        wanted: Distance of the best shift from zero.
        minimum: Distance of the minimum of the potential from zero.
    """

    sine: np.ndarray
    wanted: np.ndarray
    minimum: np.ndarray


@functools.cache
def _weights() -> tuple[float, float, float]:
    """``alpha``, ``beta`` and ``kappa``: normalised so that the lowest value is -1."""
    u = np.cbrt(1 + math.sqrt(2)) / math.sqrt(3)
    r = u + 1 / (3 * u)
    tilt = 8 * math.sqrt(2 / 27)
    depth = 2 * r**2 - r**4 + tilt * r
    return 2 / depth, 1 / depth, -tilt / depth


@functools.cache
def _wells() -> Wells:
    phase = np.arange(-STRONGEST, STRONGEST + 1) * 2 * np.pi / PHASES
    sine = np.sin(phase)
    wanted = np.maximum(np.abs(sine), REQUIRED_STEP)
    return Wells(sine, wanted, np.asarray([_minimum(abs(float(s))) for s in sine]))


def _minimum(sine: float) -> float:
    """The r > 0 that minimises ``-alpha r^2 + beta r^4 - |kappa| sine r``: its largest root."""
    alpha, beta, kappa = _weights()
    roots = np.roots([4 * beta, 0.0, -2 * alpha, -abs(kappa) * sine])
    return float(roots[np.abs(roots.imag) < 1e-9].real.max())


def penalty(phase: Array, shift: Float[Array, ""]) -> Float[Array, ""]:
    """Potential of a phase at an effective shift; the minimum is -1."""
    alpha, beta, kappa = _weights()
    index = phase.astype(jnp.int32) + STRONGEST
    sine, wanted, minimum = (jnp.asarray(x, shift.dtype)[index] for x in _wells())
    distance = jnp.abs(shift)
    inner = distance * minimum / wanted
    exponent = (2 - wanted) / (2 - minimum)
    excess = jnp.maximum(distance - wanted, 0)
    # Avoids the infinite slope of the power at zero in the branch that is not taken.
    excess = jnp.where(distance > wanted, excess, 1)
    outer = minimum + (2 - minimum) / (2 - wanted) ** exponent * excess**exponent
    radius = jnp.sign(shift) * jnp.where(distance <= wanted, inner, outer)
    return -alpha * radius**2 + beta * radius**4 + kappa * sine * radius


def next_phase(
    domain: Array, response: Array, phase: Array, shift: Float[Array, ""]
) -> tuple[Array, Array, Array]:
    """One step of the phase machine.

    Args:
        domain: Relevant sign of the shift, -1 or 1.
        response: Whether the phase moves with the shift (1) or against it (-1).
        phase: Index of the phase, -6 to 6.
        shift: Effective shift.

    Returns:
        The new domain, response and phase, with the dtype of the shift.
    """
    safe = jnp.abs(shift) <= SAFE_ZONE
    side = jnp.sign(shift)
    new_domain = jnp.where(safe, domain, side)
    response = jnp.where(new_domain != domain, 1.0, response)
    turn = jnp.where(phase == -new_domain * STRONGEST, 0.0, response * side)
    phase = phase + jnp.where(safe, -jnp.sign(phase), turn)
    response = jnp.where(jnp.abs(phase) >= STRONGEST, -1.0, response)
    mirrored = 2 * STRONGEST - jnp.mod(phase + PHASES, float(PHASES))
    phase = jnp.where(jnp.abs(phase) < STRONGEST, phase, mirrored)
    at_rest = (phase == 0) & safe
    return jnp.where(at_rest, 1.0, new_domain), jnp.where(at_rest, 1.0, response), phase


# Steering, fatigue, operational cost and consumption of one step.


HEIN = "Hein et al. 2017"
SHIFT_BOUND, SHIFT_BY_SETPOINT = 1.5, 0.02
SHIFT_SCALE = 2 * SHIFT_BOUND + 100 * SHIFT_BY_SETPOINT
SHIFT_STEP = REQUIRED_STEP / 0.9 * 100 / SHIFT_SCALE
DELAYED = (0.11111, 0.22222, 0.33333, 0.22222, 0.11111, 0.0, 0.0, 0.0, 0.0, 0.0)


class Constants(NamedTuple):
    """Weights of the reward, and parameters of the fatigue."""

    fatigue_weight: Array = constant(3.0, "1", HEIN)
    consumption_weight: Array = constant(1.0, "1", HEIN)
    miscalibration_weight: Array = constant(25.0, "1", HEIN)
    noise_mean: Array = constant(0.1, "1", HEIN)
    tolerance: Array = constant(0.05, "1", HEIN)
    amplification: Array = constant(1.1, "1", HEIN)
    amplification_start: Array = constant(1.2, "1", HEIN)
    amplification_end: Array = constant(5.0, "1", HEIN)


RELATIONS = (
    Relation("amplification_start", "<", "amplification_end"),
    Relation(1.0, "<", "amplification", "high fatigue grows"),
    Relation("tolerance", "<", "amplification_start"),
    Relation(0.0, "<=", "initial", "a setpoint is from 0 to 100"),
    Relation("initial", "<=", 100.0, "a setpoint is from 0 to 100"),
)


class Draws(NamedTuple):
    """Random numbers of one step; pairs belong to gain and velocity.

    Attributes:
        exponential: Standard exponential numbers, shape ``(2,)``.
        uniform: Uniform numbers from [0, 1), shape ``(2,)``.
        flip: Uniform numbers from [0, 1), shape ``(2,)``; a number below the effective action
            amplifies the noise.
        burst: Standard normal number, used when a hidden state is at its maximum.
        consumption: Standard normal number for the consumption.
    """

    exponential: Float[Array, "2"]
    uniform: Float[Array, "2"]
    flip: Float[Array, "2"]
    burst: Float[Array, ""]
    consumption: Float[Array, ""]


class Machine(NamedTuple):
    """The complete state of the machine.

    Attributes:
        setpoint: Setpoint p, the load.
        velocity: Velocity v.
        gain: Gain g.
        shift: Shift h.
        costs: Operational costs of the last ten steps, oldest first, shape ``(10,)``.
        hidden: Hidden states of gain and velocity, shape ``(2,)``.
        domain: Domain of the miscalibration, -1 or 1.
        response: Response of the miscalibration, -1 or 1.
        phase: Phase index of the miscalibration, -6 to 6.
        fatigue: Fatigue f.
        consumption: Consumption c.
    """

    setpoint: Float[Array, ""]
    velocity: Float[Array, ""]
    gain: Float[Array, ""]
    shift: Float[Array, ""]
    costs: Float[Array, "10"]
    hidden: Float[Array, "2"]
    domain: Float[Array, ""]
    response: Float[Array, ""]
    phase: Float[Array, ""]
    fatigue: Float[Array, ""]
    consumption: Float[Array, ""]


def operational_cost(setpoint: Array, velocity: Array, gain: Array) -> Array:
    """``exp((2 p + 2.5 g + 4 v) / 100)``."""
    return jnp.exp((2 * setpoint + 4 * velocity + 2.5 * gain) / 100)


def effective_actions(setpoint: Array, velocity: Array, gain: Array) -> Float[Array, "2"]:
    """Effective gain and velocity, scaled to [0, 1] by their extreme values."""

    def of_gain(gain: Array | float) -> Array:
        return 1 / (gain + 1 + setpoint)

    def of_velocity(velocity: Array | float, gain: Array | float) -> Array:
        return (gain + 2 + setpoint) / (velocity + 101 - setpoint)

    least, most = of_velocity(100.0, 0.0), of_velocity(0.0, 100.0)
    effective = (of_velocity(velocity, gain) - least) / (most - least)
    return jnp.stack(
        [(of_gain(gain) - of_gain(100.0)) / (of_gain(0.0) - of_gain(100.0)), effective]
    )


def steer(x: Machine, action: Float[Array, "3"]) -> Machine:
    """The machine after its steerings have moved."""
    velocity, gain, shift = action
    return x._replace(
        velocity=jnp.clip(x.velocity + velocity, 0, 100),
        gain=jnp.clip(x.gain + 10 * gain, 0, 100),
        shift=jnp.clip(x.shift + SHIFT_STEP * shift, 0, 100),
    )


def add_fatigue(c: Constants, x: Machine, draws: Draws) -> Machine:
    """The machine with new fatigue and hidden states."""
    effective = effective_actions(x.setpoint, x.velocity, x.gain)
    flipped: Bool[Array, 2] = draws.flip < jnp.clip(effective, 0.001, 0.999)
    noise = jnp.tanh(c.noise_mean * draws.exponential / 2)
    noise = noise + (1 - noise) * draws.uniform * jnp.where(flipped, effective, 0.0)
    amplified = jnp.minimum(c.amplification_end, c.amplification * x.hidden)
    grown = jnp.where(x.hidden >= c.amplification_start, amplified, 0.9 * x.hidden + noise / 3)
    hidden = jnp.where(effective <= c.tolerance, effective, grown)
    burst = 1 / (1 + jnp.exp(-(2.4 + 0.4 * draws.burst)))
    level = jnp.where(hidden.max() == c.amplification_end, burst, noise.max())
    basic = jnp.maximum(30_000 / (5 * x.velocity + 100) - 0.01 * x.gain**2, 0)
    return x._replace(hidden=hidden, fatigue=basic * (1 + 2 * level) / 3)


def consume(c: Constants, x: Machine, draws: Draws) -> Machine:
    """The machine with the cost of this step stored, the next phase, and new consumption."""
    cost = operational_cost(x.setpoint, x.velocity, x.gain)
    costs = jnp.concatenate([x.costs[1:], cost[None]])
    # A sum of products, not a dot product, to be exact on devices with low-precision products.
    delayed = (costs * jnp.asarray(DELAYED, costs.dtype)).sum()
    effective = SHIFT_SCALE * x.shift / 100 - SHIFT_BY_SETPOINT * x.setpoint - SHIFT_BOUND
    effective = jnp.clip(effective, -SHIFT_BOUND, SHIFT_BOUND)
    domain, response, phase = next_phase(x.domain, x.response, x.phase, effective)
    miscalibration = -penalty(phase, effective)
    hidden_cost = delayed - c.miscalibration_weight * (miscalibration - 1)
    consumption = hidden_cost - draws.consumption * (1 + 0.005 * hidden_cost)
    return x._replace(
        costs=costs, domain=domain, response=response, phase=phase, consumption=consumption
    )


# IndustrialBenchmark-v0: declarations, draws and controllers.


PERCENT = (0.0, 100.0)
STEPS = (1.0, 10.0, SHIFT_STEP)  # largest change of velocity, gain and shift in a step
FIXED = ((50.0, 0.0), (50.0, 0.0), (50.0, 0.0))
SCHEDULED = ((44.0, -0.1), (75.0, -0.35), (30.0, 0.4))
"""Velocity, gain and shift, each as a constant plus a multiple of the setpoint."""


class IndustrialBenchmark(SimulatedPlant):
    """The public benchmark; see :mod:`neorl_envs.plants.industrial_benchmark`."""

    horizon: int = eqx.field(static=True, default=1000)

    name: ClassVar[str] = "IndustrialBenchmark-v0"
    dt: ClassVar[float] = 1.0
    constants: ClassVar[Any] = Constants()
    relations = RELATIONS
    initial: ClassVar[Any] = 55.0
    initial_spread: ClassVar[Any] = 45.0
    instruments = (
        *(Instrument(Channel(n, "1", *PERCENT)) for n in ("setpoint", "velocity", "gain", "shift")),
        Instrument(Channel("fatigue", "1", 0.0, 300.0)),
        Instrument(Channel("consumption", "1", -200.0, 6000.0)),
    )
    actuators = tuple(
        Actuator(Channel(f"change_of_{n}", "1", -1.0, 1.0), start=0.0)
        for n in ("velocity", "gain", "shift")
    )
    reward_unit: ClassVar[str] = "1"
    terms: ClassVar[tuple[Term, ...]] = (Term("fatigue", "1", -3.0), Term("consumption", "1", -1.0))
    exogenous: ClassVar[tuple[str, ...]] = ("setpoint",)
    reference: ClassVar[str] = "scheduled steering"
    glossary: ClassVar[str] = (
        "A return is minus three times the fatigue and minus the consumption, summed over the "
        "steps."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: the setpoint, the steerings velocity, gain and shift, fatigue and "
        "consumption. Manipulated: changes of the three steerings, as fractions of 1, 10 and 5.75 "
        "per step."
    )

    def tunings(self) -> dict[str, StateFeedback]:
        """Controllers by name: fixed steerings, and steerings that depend on the setpoint."""
        return {"fixed steering": _towards(FIXED), "scheduled steering": _towards(SCHEDULED)}

    def begin(self, c: Constants, initial: Array, key: PRNGKeyArray) -> Machine:
        """All steerings at mid-range, after one step without change, as published."""
        dtype = initial.dtype
        middle, none, one = (jnp.asarray(x, dtype) for x in (50.0, 0.0, 1.0))
        cost = operational_cost(initial, middle, middle)
        machine = Machine(
            setpoint=initial,
            velocity=middle,
            gain=middle,
            shift=middle,
            costs=jnp.broadcast_to(cost, (10,)),
            hidden=jnp.zeros(2, dtype),
            domain=one,
            response=one,
            phase=none,
            fatigue=none,
            consumption=none,
        )
        draws = self.sample_process_noise(c, key)
        return self.evolve(c, machine, jnp.zeros(3, dtype), draws, jnp.zeros((), jnp.int32))

    def begin_disturbance(self, c: Constants, key: PRNGKeyArray) -> Draws:
        """Placeholder for the random numbers, which the first step replaces."""
        return self.sample_process_noise(c, key)

    def sample_process_noise(self, c: Constants, key: PRNGKeyArray) -> Draws:
        """All random numbers of one step."""
        keys = jax.random.split(key, 3)
        dtype = c.noise_mean.dtype
        uniform, flip = jax.random.uniform(keys[1], (2, 2), dtype)
        burst, consumption = jax.random.normal(keys[2], (2,), dtype)
        return Draws(
            jax.random.exponential(keys[0], (2,), dtype), uniform, flip, burst, consumption
        )

    def disturb(self, c: Constants, disturbance: Draws, noise: Draws, time: Array) -> Draws:
        """The random numbers of this step."""
        return noise

    def evolve(
        self, c: Constants, plant: Machine, inputs: Array, disturbance: Draws, time: Array
    ) -> Machine:
        """Steering, fatigue and consumption of one step."""
        plant = add_fatigue(c, steer(plant, inputs), disturbance)
        return consume(c, plant, disturbance)

    def measure(self, c: Constants, now: Moment) -> Float[Array, "6"]:
        """The observation that the benchmark returns."""
        x: Machine = now.plant
        return jnp.stack([*x[:4], x.fatigue, x.consumption])

    def reward(self, c: Constants, before: Moment, now: Moment, trip: Array) -> Array:
        """``-(3 f + c)``."""
        x: Machine = now.plant
        return -(c.fatigue_weight * x.fatigue + c.consumption_weight * x.consumption)

    def amounts(self, c: Constants, before: Moment, now: Moment, trip: Array) -> dict[str, Array]:
        """Fatigue and consumption of the step, with the published weights."""
        x: Machine = now.plant
        return {
            "fatigue": c.fatigue_weight * x.fatigue / 3,
            "consumption": c.consumption_weight * x.consumption,
        }

    def objective(
        self,
        obs: Float[Array, "6"],
        action: Float[Array, "3"],
        next_obs: Float[Array, "6"],
        last_action: Float[Array, "3"],
    ) -> Float[Array, "1"]:
        """The reward from measured fatigue and consumption, with the published weights."""
        c = self.default_params().constants
        return -(c.fatigue_weight * next_obs[4] + c.consumption_weight * next_obs[5])[None]


def _towards(steerings: tuple[tuple[float, float], ...]) -> StateFeedback:
    """A policy that moves directly to steerings that are affine in the setpoint."""
    constant, share = np.asarray(steerings).T
    step = np.asarray(STEPS)
    gain = np.zeros((3, 6))
    gain[:, 1:4] = np.diag(1 / step)
    gain[:, 0] = -share / step
    one = jnp.ones(3)
    return StateFeedback(
        gain=jnp.asarray(gain, jnp.float32),
        setpoint=jnp.zeros(6),
        bias=jnp.asarray(constant / step, jnp.float32),
        low=-one,
        high=one,
    )
