"""The hidden cycle of the shift: a phase machine over tilted double wells.

Source: Hein et al. 2017, section on miscalibration; the potential is the normalised, linearly
biased Goldstone potential ``-alpha r^2 + beta r^4 + kappa sin(phi) r``.
"""

import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

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
