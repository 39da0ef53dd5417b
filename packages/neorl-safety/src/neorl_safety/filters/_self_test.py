"""A start-up test that the compiled filter still detects NaN."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from neorl_safety.constraints._constraints import AnyConstraints, as_constraints
from neorl_safety.filters._filter import Context, Flag, SafetyReport

CompiledFilter = Callable[[AnyConstraints, Context, Array], tuple[Array, SafetyReport]]


def fast_math_self_test(compiled: CompiledFilter, constraints: AnyConstraints) -> None:
    """Passes NaN and infinities through a compiled filter and checks the promised results.

    A compiler that assumes finite numbers ("fast math") removes ``isfinite``; NaN then comes out as
    the upper limit, without a flag. So the test uses the very program that will run.

    Args:
        compiled: ``jax.jit(filter_action)``, or the same function compiled ahead of time.
        constraints: Well-formed constraints to test with.

    Raises:
        RuntimeError: If an action is not finite, leaves the box, or is not flagged.
    """
    full = as_constraints(constraints)
    low, high = full.action.low, full.action.high
    middle = low / 2 + high / 2
    obs = jnp.asarray([(channel.low + channel.high) / 2 for channel in full.obs] or [0.0])
    nominal = Context(obs, middle, jnp.ones(()), middle)
    for value in (np.nan, np.inf, -np.inf):
        bad = jnp.full_like(middle, value)
        cases = {
            Flag.REQUEST_NONFINITE: (nominal, bad),
            Flag.OBSERVATION_NONFINITE: (nominal._replace(obs=jnp.full_like(obs, value)), middle),
            Flag.PREVIOUS_UNKNOWN: (nominal._replace(previous=bad), middle),
            Flag.FALLBACK_NONFINITE: (nominal._replace(fallback_action=bad), middle),
            Flag.BAD_PERIOD: (nominal._replace(dt=jnp.full((), value)), middle),
        }
        for flag, (context, request) in cases.items():
            action, report = compiled(constraints, context, request)
            action = np.asarray(action)
            inside = (action >= np.asarray(low)) & (action <= np.asarray(high))
            if not (inside.all() and int(report.flags) & flag):
                raise RuntimeError(
                    f"the compiled filter answered {action.tolist()} with flags "
                    f"{int(report.flags)} to {flag.name} ({value}); expected an action in the box "
                    f"and flag {int(flag)}: compile it without fast math"
                )
