"""The formula against NumPy, under every transformation, and its metamorphic laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neorl_core.testing import (
    assert_close,
    batch_independent,
    finite_grad,
    mapped,
    no_recompile,
    oracle,
    pure,
    reals,
    rows,
)
from neorl_safety.constraints import ActionConstraints, action_constraints
from neorl_safety.filters import Context, filter_action

SIZES = reals(0.0, 50.0)


def limited(low, width, up, down, previous, dt, action):
    """The filter with a well-formed box inside a wide actuator range."""
    constraints = ActionConstraints(
        low,
        low + width,
        up,
        down,
        jnp.full_like(low, -1e4),
        jnp.full_like(low, 1e4),
        names=("a", "b"),
        units=("1", "1"),
    )
    context = Context(jnp.zeros_like(low), previous, dt, low)
    return filter_action(constraints, context, action)[0]


def limited_in_numpy(low, width, up, down, previous, dt, action):
    high = low + width
    step_up, step_down = up * dt, down * dt
    return np.clip(np.clip(action, low, high), previous - step_down, previous + step_up)


def arguments(low=None):
    return st.tuples(
        rows(2) if low is None else low,
        rows(2, elements=SIZES),
        rows(2, elements=SIZES),
        rows(2, elements=SIZES),
        rows(2),
        rows(elements=reals(0.125, 10.0)),
        rows(2),
    )


@given(arguments())
def test_box_and_rate_agree_with_numpy(sample):
    finite_grad(limited, *sample)
    applied = mapped(limited, *sample)
    for actual, row in zip(applied, zip(*sample, strict=True), strict=True):
        assert_close(actual, limited_in_numpy(*(np.asarray(part, float) for part in row)))


@pytest.mark.nightly
@given(arguments())
def test_box_and_rate_agree_with_numpy_however_they_are_called(sample):
    oracle(limited, limited_in_numpy, *sample)


@given(arguments(), rows(2, elements=reals(0.0, 1.0)))
def test_tightening_a_limit_never_loosens_the_action(sample, shrink):
    low, width, up, down, previous, dt, action = sample
    previous = np.clip(previous, low, low + width)
    tight = mapped(limited, low, width * shrink, up * shrink, down, previous, dt, action)
    tight = np.asarray(tight, np.float64)
    slack = 1e-5 * (1 + np.abs(previous) + up * dt[:, None] + down * dt[:, None])
    assert (tight >= low - slack).all()
    assert (tight <= low + width + slack).all()
    assert (tight - previous <= up * dt[:, None] + slack).all()
    assert (previous - tight <= down * dt[:, None] + slack).all()


@given(arguments())
def test_no_admissible_action_is_nearer_to_the_request(sample):
    low, width, up, down, previous, dt, action = sample
    previous = np.clip(previous, low, low + width)
    applied = np.asarray(mapped(limited, low, width, up, down, previous, dt, action))
    lowest = np.maximum(low, previous - down * dt[:, None])
    highest = np.minimum(low + width, previous + up * dt[:, None])
    for part in (0.0, 0.25, 0.5, 1.0):
        other = lowest + part * (highest - lowest)
        assert (np.abs(applied - action) <= np.abs(other - action) + 1e-3).all()


@given(arguments())
def test_channels_do_not_feel_each_other(sample):
    applied = mapped(limited, *sample)
    swapped = [part[:, ::-1] if part.ndim == 2 else part for part in sample]
    np.testing.assert_array_equal(mapped(limited, *swapped), applied[:, ::-1])


def test_form(hostile_cases):
    constraints, context, action = jax.tree.map(lambda leaf: leaf[:3], hostile_cases)
    batch_independent(filter_action, constraints, context, action)
    first, second = (
        jax.tree.map(lambda leaf: leaf[i], (constraints, context, action))  # noqa: B023
        for i in (0, 1)
    )
    no_recompile(filter_action, first, second)
    pure(filter_action, constraints, context, action)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_action_keeps_its_dtype(dtype, spec):
    with jax.enable_x64(dtype == "float64"):
        constraints = action_constraints(spec, [0.25, 0.05])
        middle = jnp.asarray([50.0, 300.0], dtype)
        context = Context(jnp.ones(2, dtype), middle, jnp.asarray(60.0, dtype), middle)
        action, report = filter_action(constraints, context, middle + 1)
        assert action.dtype == dtype
        assert report.intervention.dtype == dtype
        assert report.flags.dtype == report.limits.dtype == jnp.uint32


def test_shapes_and_dtypes_are_refused_by_name(spec):
    constraints = action_constraints(spec)
    middle = jnp.array([50.0, 300.0])
    context = Context(jnp.ones(2), middle, jnp.array(60.0), middle)
    with pytest.raises(ValueError, match=r"action has shape \(3,\); .* \(2,\).*valve, jacket"):
        filter_action(constraints, context, jnp.ones(3))
    with pytest.raises(ValueError, match=r"context.previous has shape \(\)"):
        filter_action(constraints, context._replace(previous=jnp.ones(())), middle)
    with pytest.raises(ValueError, match="rank one"):
        filter_action(constraints, context._replace(obs=jnp.ones((5, 2))), middle)
    with pytest.raises(TypeError, match="int32"):
        filter_action(constraints, context, jnp.array([1, 2]))
