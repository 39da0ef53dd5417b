"""Requirements written as functions of observation and action, in three tiers."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_core import InputError, Spec, highs, lows
from neorl_safety.constraints._constraints import AnyConstraints, Constraints, as_constraints
from neorl_safety.constraints._documents import spec_channels
from neorl_safety.constraints._function_kind import Function, Requirement, Tier

PROBES = 64
AFFINE = 1e-3
"""Accepted nonlinearity of a function between two actions, relative to the spread of its values."""


def requirement(
    name: str,
    function: Function,
    parameters: Any = (),
    *,
    unit: str,
    tier: Tier,
    weight: float = 1.0,
) -> Requirement:
    """A custom requirement: ``function(parameters, obs, action) <= 0``.

    Args:
        name: Its name in reports.
        function: Pure function of one observation and one action in physical units, with a scalar
            result. It must be at module level, since a new function object compiles again.
        parameters: Parameters of the function, which may be swept without recompiling.
        unit: Unit of the result.
        tier: How binding it is.
        weight: Penalty per unit of excess for training; ignored for a preference.

    Returns:
        The requirement.

    Raises:
        InputError: If the name is empty or the weight is negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_safety.constraints import Tier, excess, requirement
        >>> def over(limit, obs, action):
        ...     return obs[0] + action[0] - limit
        >>> dose = requirement("dose", over, jnp.float32(5.0), unit="kg", tier=Tier.SOFT)
        >>> excess([dose], jnp.array([4.0]), jnp.array([3.0])).tolist()
        [2.0]
    """
    if not name.strip():
        raise InputError("a requirement needs a name for the reports")
    if not (np.isfinite(weight) and weight >= 0):
        raise InputError(f"requirement {name!r}: weight must be zero or more, got {weight}")
    numbers = jax.tree.map(jnp.asarray, parameters)
    effective_weight = 0.0 if tier is Tier.PREFERENCE else weight
    return Requirement(
        numbers, jnp.asarray(effective_weight, jnp.float32), function, name, unit, Tier(tier)
    )


def excess(
    requirements: Sequence[Requirement], obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Float[Array, " requirement"]:
    """Excess over each requirement; zero or less if it holds, infinite for NaN."""
    values = [jnp.asarray(r.function(r.parameters, obs, action)) for r in requirements]
    if not values:
        return jnp.zeros((0,))
    stacked = jnp.stack(values)
    # What cannot be computed counts as violated.
    return jnp.where(jnp.isnan(stacked), jnp.inf, stacked)


def penalty(
    requirements: Sequence[Requirement], obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Float[Array, ""]:
    """``sum_i weight_i max(excess_i, 0)``, to be subtracted from a reward."""
    if not requirements:
        return jnp.zeros(())
    weights = jnp.stack([r.weight for r in requirements])
    violation = jnp.maximum(excess(requirements, obs, action), 0)
    # Without a weight an infinite violation counts nothing: 0 inf is NaN.
    return jnp.sum(jnp.where(weights > 0, weights * violation, 0))


def with_requirements(
    constraints: AnyConstraints, requirements: Sequence[Requirement], spec: Spec
) -> Constraints:
    """Adds the hard ones among some requirements to the constraints that the filter enforces.

    A hard requirement must be affine in the action and may depend on the observation in any way. It
    is then one linear row, exact for every action. This is tested on random observations and
    actions of the specification. A function that is not affine raises an error, since a filter of
    rows cannot enforce it.

    Args:
        constraints: Constraints on the action.
        requirements: Requirements of any tier; only hard ones are used.
        spec: Specification with the ranges in which to test the functions.

    Returns:
        The constraints with the kind ``function``, for guards in Python. Code cannot be stored as
        data, so this kind appears in no document and no bundle.

    Raises:
        InputError: If a hard requirement is not affine in the action, or does not return a finite
            scalar.
    """
    full = as_constraints(constraints)
    hard = tuple(each for each in requirements if each.tier is Tier.HARD)
    for each in hard:
        _require_affine(each, spec)
    if not hard:
        return full
    observed = full.obs or spec_channels(spec).obs
    return Constraints(full.action, {**full.further, "function": hard}, observed)


def _require_affine(each: Requirement, spec: Spec) -> None:
    rng = np.random.default_rng(0)
    obs = rng.uniform(lows(spec.obs), highs(spec.obs), (PROBES, spec.n_obs)).astype(np.float32)
    ends = np.array(lows(spec.action)), np.array(highs(spec.action))
    first, second = rng.uniform(*ends, (2, PROBES, spec.n_action)).astype(np.float32)
    middle = (first + second) / 2
    value = jax.vmap(lambda x, u: jnp.asarray(each.function(each.parameters, x, u)))
    a, m, b = (np.asarray(value(obs, u), np.float64) for u in (first, middle, second))
    if m.shape != (PROBES,) or not np.isfinite([a, m, b]).all():
        raise InputError(
            f"requirement {each.name!r} must return one finite number for every action in the box"
        )
    # The second term allows for float32 rounding of a large value that hardly changes.
    size = np.abs(a - b).max() + 1e-6 * np.abs(m).max()
    if not np.abs(a - b).max() > 0:
        raise InputError(f"requirement {each.name!r} does not depend on the action; make it soft")
    nonlinearity = np.abs(m - (a + b) / 2).max()
    if nonlinearity > AFFINE * size:
        raise InputError(
            f"requirement {each.name!r} is not affine in the action (it bends by "
            f"{nonlinearity:.3g} {each.unit} between two actions), so no linear row can enforce "
            "it; make it soft, or replace it by a stricter function that is affine"
        )
