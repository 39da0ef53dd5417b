"""Carbonate equilibrium: conversion between the pH of water and its reaction invariants."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

PK1, PK2, PKW = 6.35, 10.25, 14.0
ITERATIONS = 12
MEQ_PER_MG_ALUM = 6 / 594  # Al2(SO4)3 * 14 H2O, 594 g/mol, takes six equivalents

Scalar = Float[Array, ""]


def charged_share(ph: Array) -> Array:
    """Negative charges per carbonate, from 0 (acid) to 2: ``(1 + 2 b) / (1 + a + b)``."""
    a, b = _powers(ph)
    return (1 + 2 * b) / (1 + a + b)


def ph_of_water(acid: Array, carbonate: Array) -> Array:
    """The pH at which charges balance.

    It solves ``W_a + 1e3 (10^(pH - 14) - 10^-pH) + W_b (1 + 2 b) / (1 + a + b) = 0`` with
    ``a = 10^(pK1 - pH)`` and ``b = 10^(pH - pK2)``, by twelve Newton steps from 7, each limited to
    1. From pH 2.5 to 12.5 the result agrees with SciPy's ``brentq``.

    Args:
        acid: Reaction invariant ``W_a``, strong acid minus strong base, meq/L.
        carbonate: Reaction invariant ``W_b``, total carbonate, mmol/L, not negative.

    Returns:
        The pH, with the shape of the arguments.

    Example:
        >>> import jax.numpy as jnp
        >>> float(ph_of_water(jnp.zeros(()), jnp.zeros(())))
        7.0

    Source: Gustafsson and Waller 1983, Chem. Eng. Sci. 38:389; constants as in Henson and Seborg
    1994, IEEE Trans. Control Syst. Technol. 2:169.
    """

    def newton(_: Array, ph: Array) -> Array:
        a, b = _powers(ph)
        base, free = 1e3 * 10 ** (ph - PKW), 1e3 * 10**-ph
        total = 1 + a + b
        excess = acid + base - free + carbonate * (1 + 2 * b) / total
        slope = base + free + carbonate * (a + b + 4 * a * b) / total**2
        return ph - jnp.clip(excess / (math.log(10) * slope), -1, 1)

    return jax.lax.fori_loop(0, ITERATIONS, newton, jnp.full_like(acid, 7.0))


def carbonate_of_water(alkalinity: Array, ph: Array) -> Array:
    """Total carbonate from alkalinity in meq/L and pH, mmol/L."""
    carbonate = alkalinity - 1e3 * (10 ** (ph - PKW) - 10**-ph)
    return jnp.maximum(carbonate, 0) / charged_share(ph)


def _powers(ph: Array) -> tuple[Array, Array]:
    return 10 ** (PK1 - ph), 10 ** (ph - PK2)
