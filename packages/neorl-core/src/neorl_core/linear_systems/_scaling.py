"""Units in which the numbers of a linear system are of order one."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array

from neorl_core._internal.matrix_products import product

_SWEEPS = 30


class Costs(NamedTuple):
    """A linear-quadratic problem: ``x+ = a x + b u`` at ``x'q x + u'r u + 2 x'n u`` per period."""

    a: Array
    b: Array
    q: Array
    r: Array
    n: Array


def powers_of_two(sizes: Array) -> Array:
    """The nearest powers of two, which scale without rounding."""
    exponent = jnp.round(jnp.log2(sizes))
    exponent = jnp.where(jnp.isfinite(exponent), jnp.clip(exponent, -60, 60), 0)
    return jnp.ldexp(jnp.ones_like(sizes), exponent.astype(jnp.int32))


def state_weights(a: Array, b: Array, shown: Array, effort: Array) -> Array:
    """Weight of the squared unit of each state, accurate to some orders of magnitude.

    A state is driven by the other states and by the inputs (weighted by their cost), and it affects
    the other states and the cost. Its weight is the geometric mean that balances the two, as in
    Osborne's balancing of a matrix. It follows every change of units, even if ``shown`` (the
    diagonal of the state cost) or ``effort`` (that of the input cost) is zero.
    """
    coupling = jnp.where(jnp.eye(a.shape[0], dtype=bool), 0, jnp.square(a))
    reach = jnp.square(b)

    def sweep(_: Array, weight: Array) -> Array:
        input_weight = effort + product(weight, reach)
        driven = product(coupling, 1 / weight)
        driven = driven + product(reach, jnp.where(input_weight > 0, 1 / input_weight, 0))
        observed_weight = shown + product(weight, coupling)
        one_sided = jnp.where(
            observed_weight > 0, observed_weight, jnp.where(driven > 0, 1 / driven, weight)
        )
        balanced = jnp.where(
            (observed_weight > 0) & (driven > 0), jnp.sqrt(observed_weight / driven), one_sided
        )
        return jnp.sqrt(weight * balanced)

    return jax.lax.fori_loop(0, _SWEEPS, sweep, jnp.where(shown > 0, shown, 1))


def units_of(costs: Costs) -> tuple[Array, Array]:
    """Units of states and inputs, powers of two, in which the problem is of order one."""
    costs = jax.lax.stop_gradient(costs)
    effort = jnp.diagonal(costs.r)
    weight = state_weights(costs.a, costs.b, jnp.diagonal(costs.q), effort)
    input_weight = effort + product(weight, jnp.square(costs.b))
    return powers_of_two(1 / jnp.sqrt(weight)), powers_of_two(1 / jnp.sqrt(input_weight))


def in_units(costs: Costs, state: Array, act: Array) -> Costs:
    """The same problem in other units of states and inputs."""
    return Costs(
        costs.a / state[:, None] * state[None, :],
        costs.b / state[:, None] * act[None, :],
        costs.q * state[:, None] * state[None, :],
        costs.r * act[:, None] * act[None, :],
        costs.n * state[:, None] * act[None, :],
    )


def distance(x: Array, y: Array) -> Array:
    """Largest difference of two symmetric matrices, relative to the diagonal of ``y``."""
    root = jnp.sqrt(jnp.where(jnp.diagonal(y) > 0, jnp.diagonal(y), 1))
    return jnp.max(jnp.abs(x - y) / root[:, None] / root[None, :])


def solve_definite(weight: Array, right: Array) -> Array:
    """``weight^{-1} right`` by Cholesky; NaN if ``weight`` is not positive definite."""
    if weight.shape[0] == 0:
        return right
    diagonal = jax.lax.stop_gradient(jnp.diagonal(weight))
    unit = 1 / powers_of_two(jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1)))
    factor = jnp.linalg.cholesky(weight * unit[:, None] * unit[None, :])
    return cho_solve((factor, True), right * unit[:, None]) * unit[:, None]
