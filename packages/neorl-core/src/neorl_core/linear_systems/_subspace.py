"""Subspace identification: a state-space model from a log of inputs and outputs."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from neorl_core._internal.checks import checked_integer, nan_unless
from neorl_core._internal.precision import product
from neorl_core.linear_systems._least_squares import columns_of_log, require_rows, standardise
from neorl_core.replay import episode_first_rows


class SubspaceModel(NamedTuple):
    """``x_{t+1} = A x_t + B u_t + state_offset``, ``y_t = C x_t + D u_t + output_offset``.

    Attributes:
        a: Shape ``(state, state)``; the method chooses the coordinates of the state.
        b: Shape ``(state, act)``.
        c: Shape ``(output, state)``.
        d: Shape ``(output, act)``.
        state_offset: Shape ``(state,)``.
        output_offset: Shape ``(output,)``.
        singular_values: How strongly each direction of the state affects future outputs, largest
            first, shape ``(horizon * output,)``; a gap after the first few indicates the order.
        rank: Rank of the future inputs and a constant, scalar int32. If it is below ``horizon * act
            + 1``, the inputs moved too little to determine ``B`` and ``D``. Zero if the windows
            hold a NaN or an infinity.
        windows: Number of windows used, scalar int32.
    """

    a: Float[Array, "state state"]
    b: Float[Array, "state act"]
    c: Float[Array, "output state"]
    d: Float[Array, "output act"]
    state_offset: Float[Array, " state"]
    output_offset: Float[Array, " output"]
    singular_values: Float[Array, " shown"]
    rank: Int[Array, ""]
    windows: Int[Array, ""]


def identify_subspace(
    obs: Float[Array, "time output"],
    action: Float[Array, "time act"],
    terminated: Bool[Array, " time"],
    truncated: Bool[Array, " time"],
    *,
    order: int,
    horizon: int,
) -> SubspaceModel:
    """Fits a state-space model of given order to a flat log of many episodes (PO-MOESP).

    In windows of ``2 * horizon`` rows, the outputs of the second half are projected onto the inputs
    and outputs of the first half, along the inputs of the second half and a constant. The result
    spans the directions of the state. This takes one QR decomposition, one singular value
    decomposition and three least-squares problems. Channels are centred and scaled to unit standard
    deviation, so units do not matter.

    Args:
        obs: Outputs before the action: ``y_t`` in the same row as the action ``u_t``.
        action: Action that the plant received.
        terminated: Flags of the rows where the plant ended an episode.
        truncated: Flags of the rows where the record ended one.
        order: Number of states.
        horizon: Rows in half a window, two or more, with ``(horizon - 1) * output >= order``; twice
            the order is usual.

    Returns:
        The model. Not differentiable. NaN if fewer than ``horizon * act + order + 1`` windows lie
        within an episode, or one of them holds a NaN or an infinity.

    Raises:
        ValueError: If shapes disagree, there is no input, ``order`` or ``horizon`` is not an
            integer in its range, or the log has fewer rows than the regression has columns.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> action, ends = jax.random.normal(jax.random.key(0), (60, 1)), jnp.zeros(60, bool)
        >>> step = lambda x, u: (0.5 * x + 2 * u, x)
        >>> _, obs = jax.lax.scan(step, jnp.ones(1), action)
        >>> model = identify_subspace(obs, action, ends, ends, order=1, horizon=2)
        >>> round(float(model.a[0, 0]), 3), round(float((model.c @ model.b)[0, 0]), 3)
        (0.5, 2.0)

    Source: Verhaegen, Identification of the deterministic part of MIMO state space models given in
    innovations form from input-output data, 1994.
    """
    obs, action, _ = columns_of_log(obs, action, obs)
    outputs, inputs = obs.shape[1], action.shape[1]
    order = checked_integer("order", order, 1, "give the number of states")
    horizon = checked_integer("horizon", horizon, 2, "give the rows of half a window")
    if (horizon - 1) * outputs < order or inputs < 1:
        raise ValueError(
            f"(horizon - 1) * outputs must be at least the order and there must be an input, got "
            f"horizon {horizon}, {outputs} outputs, order {order} and {inputs} inputs; "
            "give a longer horizon"
        )
    first = episode_first_rows(terminated, truncated)
    require_rows(first, obs)
    columns = 2 * horizon * (outputs + inputs) + 1
    if obs.shape[0] < columns:
        raise ValueError(
            f"obs must have at least {columns} rows, one per column of the regression, got "
            f"{obs.shape[0]}; give a longer log or a shorter horizon"
        )
    row = jnp.arange(obs.shape[0], dtype=first.dtype)
    inside = row + 2 * horizon <= obs.shape[0]
    keep = inside & (jnp.roll(first, 1 - 2 * horizon) <= row)
    return _identify(obs, action, keep, order, horizon)


@functools.partial(jax.jit, static_argnames=("order", "horizon"))
def _identify(obs: Array, action: Array, keep: Array, order: int, horizon: int) -> SubspaceModel:
    windows = jnp.sum(keep)
    future = jnp.roll(keep, horizon)
    rows = windows.astype(obs.dtype)
    _, y_mean, y_scale = standardise(obs, future, rows)
    _, u_mean, u_scale = standardise(action, future, rows)
    y = (obs - y_mean[None, :]) / y_scale[None, :]
    u = (action - u_mean[None, :]) / u_scale[None, :]
    explained, regressed, corner, finite = _projections(y, u, keep, horizon)
    directions, values, _ = jnp.linalg.svd(explained)
    outputs, basis = obs.shape[1], directions[:, :order]
    a = jnp.linalg.lstsq(basis[:-outputs], basis[outputs:])[0]
    observability = _observability(a, basis[:outputs], horizon)
    orthogonal = jnp.linalg.qr(observability, mode="complete")[0][:, order:]
    response, _, rank, _ = jnp.linalg.lstsq(corner, product(regressed, orthogonal))
    inputs_first, constant = _input_matrices(observability, orthogonal, response, outputs)
    c = y_scale[:, None] * basis[:outputs]
    d = y_scale[:, None] * inputs_first[:outputs] / u_scale[None, :]
    b = inputs_first[outputs:] / u_scale[None, :]
    state_offset = constant[outputs:] - product(b, u_mean)
    output_offset = y_mean + y_scale * constant[:outputs] - product(d, u_mean)
    valid = finite & (windows >= corner.shape[0] + order)
    model = SubspaceModel(
        a,
        b,
        c,
        d,
        state_offset,
        output_offset,
        values / jnp.sqrt(rows),
        jnp.where(finite, rank.astype(jnp.int32), 0),
        windows.astype(jnp.int32),
    )
    return jax.tree.map(
        lambda part: part if jnp.issubdtype(part.dtype, jnp.integer) else nan_unless(valid, part),
        model,
    )


def _projections(
    y: Array, u: Array, keep: Array, horizon: int
) -> tuple[Array, Array, Array, Array]:
    """Future outputs explained by the past and by future inputs, and the inputs' QR factor."""
    past = [jnp.roll(part, -k, axis=0) for k in range(horizon) for part in (u, y)]
    later = range(horizon, 2 * horizon)
    ones = jnp.ones_like(y[:, :1])
    regressors = jnp.concatenate([ones, *(jnp.roll(u, -k, axis=0) for k in later)], axis=1)
    future = jnp.concatenate([jnp.roll(y, -k, axis=0) for k in later], axis=1)
    data = jnp.concatenate([regressors, *past, future], axis=1)
    data = jnp.where(keep[:, None], data, 0)
    finite = jnp.all(jnp.isfinite(data))
    factor = jnp.linalg.qr(jnp.where(finite, data, 0), mode="r")
    one, two = regressors.shape[1], data.shape[1] - future.shape[1]
    return factor[one:two, two:].T, factor[:one, two:], factor[:one, :one], finite


def _observability(a: Array, c: Array, horizon: int) -> Array:
    """``[C; C A; C A^2; ...]``, the effect of a state on future outputs."""
    blocks = [c]
    for _ in range(horizon - 1):
        blocks.append(product(blocks[-1], a))
    return jnp.concatenate(blocks)


def _input_matrices(
    observability: Array, orthogonal: Array, response: Array, outputs: int
) -> tuple[Array, Array]:
    """``[D; B]`` and its counterpart for a constant, from the part that no state explains.

    An input of row ``k`` acts on the output immediately through ``D`` and later through the state
    ``B``.
    """
    horizon = observability.shape[0] // outputs
    inputs = (response.shape[0] - 1) // horizon
    answers = []
    for k in range(horizon):
        start, after = k * outputs, (k + 1) * outputs
        at_once = orthogonal[start:after].T
        later = product(orthogonal[after:].T, observability[: observability.shape[0] - after])
        answers.append(jnp.concatenate([at_once, later], axis=1))
    each = response[1:].reshape(horizon, inputs, -1).transpose(0, 2, 1)
    both = jnp.linalg.lstsq(jnp.concatenate(answers), each.reshape(-1, inputs))[0]
    constant = jnp.linalg.lstsq(sum(answers[1:], answers[0]), response[0])[0]
    return both, constant
