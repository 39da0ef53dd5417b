"""Predictions of a dynamics model, its parts, and their outputs."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from neorl_agents.networks import Network, step_features
from neorl_agents.networks._windows import FLAGS
from neorl_agents.policies import Preparation
from neorl_core.infrastructure import Registry
from neorl_core.losses import gaussian_nll, soft_clamp
from neorl_core.targets import ensemble_discrepancy, mopo_penalty

# Linear least squares over a log, batch by batch, with a state of fixed size.


RIDGE = 1e-6
"""Weight of the squared coefficients, in rows of inputs with a mean square of one."""
LEAST_SPREAD = 1e-6
"""Smallest standard deviation of a residual in the units of the targets: float32 rounding."""


class LeastSquares(NamedTuple):
    """Sufficient statistics of all batches so far for a linear map.

    Attributes:
        triangle: Upper triangle ``R`` with ``R' R = sum_b mean_{rows of b} z z'``, ``z = (inputs,
            1, targets)``, plus the ridge; shape ``(in + 1 + out, in + 1 + out)``.
        batches: Number of batches with an unmasked row.
    """

    triangle: Float[Array, "row row"]
    batches: Float[Array, ""]


def no_rows(n_inputs: int, n_targets: int) -> LeastSquares:
    """The state before the first batch, in which every coefficient is zero."""
    ridge = jnp.where(jnp.arange(n_inputs + 1 + n_targets) <= n_inputs, jnp.sqrt(RIDGE), 0.0)
    return LeastSquares(jnp.diag(ridge).astype(jnp.float32), jnp.zeros((), jnp.float32))


def with_rows(
    fit: LeastSquares,
    inputs: Float[Array, "batch in"],
    targets: Float[Array, "batch out"],
    mask: Bool[Array, " batch"] | None,
) -> LeastSquares:
    """Adds a batch by an orthogonal triangularisation.

    Normal equations would square the condition number of the inputs, which is large if they are the
    last steps of slow channels.

    Source: Golub and Van Loan, Matrix computations, 2013, section 6.5.3, for adding rows.
    """
    ones = jnp.ones((inputs.shape[0], 1), inputs.dtype)
    rows = jnp.concatenate([inputs, ones, targets], axis=-1)
    valid = jnp.ones(rows.shape[0], rows.dtype) if mask is None else mask.astype(rows.dtype)
    number = jnp.sum(valid)
    rows = rows * valid[:, None] / jnp.sqrt(jnp.maximum(number, 1))
    triangle = jnp.linalg.qr(jnp.concatenate([fit.triangle, rows]), mode="r")
    return LeastSquares(triangle, fit.batches + (number > 0))


def coefficients(fit: LeastSquares, n_targets: int) -> Float[Array, "rows out"]:
    """The linear map, with its intercept as last row."""
    factor, right_side = _split(fit, n_targets)
    return jax.scipy.linalg.solve_triangular(factor, right_side[: factor.shape[0]])


def spread(fit: LeastSquares, n_targets: int) -> Float[Array, " out"]:
    """Root mean square residual of every target, at least :data:`LEAST_SPREAD`."""
    factor, right_side = _split(fit, n_targets)
    squares = jnp.sum(jnp.square(right_side[factor.shape[0] :]), axis=0)
    # The triangle also includes the ridge penalty of the coefficients, which is no residual.
    ridge_penalty = RIDGE * jnp.sum(jnp.square(coefficients(fit, n_targets)), axis=0)
    squares = jnp.maximum(squares - ridge_penalty, 0)
    return jnp.maximum(jnp.sqrt(squares / jnp.maximum(fit.batches, 1)), LEAST_SPREAD)


def _split(fit: LeastSquares, n_targets: int) -> tuple[Array, Array]:
    """The triangle of the inputs, and the columns of the targets."""
    n = fit.triangle.shape[-1] - n_targets
    return fit.triangle[:n, :n], fit.triangle[:, n:]


LOG_VARIANCES = (-10.0, 0.5)
"""Bounds of the log-variances at the start of training."""
NEVER = -60.0
"""Log-odds of an end if no row of the log is terminated."""
CLIP = 8.0
"""Bound on network inputs and predicted observations, in standard deviations."""

Uncertainty = Literal["disagreement", "aleatoric", "discrepancy"]
"""Measure of a prediction's uncertainty; see :func:`uncertainty_of`."""

Termination = Callable[[Array, Array, Array], Array]
"""Function from observation, action and next observation (physical units) to an end flag."""


def never(obs: Array, action: Array, next_obs: Array) -> Array:
    """False: no step ends an episode."""
    return jnp.zeros((), bool)


def _check_termination(name: str, entry: Any) -> None:
    if not callable(entry) or getattr(entry, "__name__", "") == "<lambda>":
        raise TypeError(
            "expected a named module-level function of observation, action and next observation, "
            f"got {entry!r}"
        )


TERMINATIONS: Registry[Termination] = Registry(
    "neorl.terminations", "termination", {"never": never}, _check_termination
)
"""Rules for when the plant ends an episode, by name; other packages can add to this mapping.

``"learned"``, which has no entry here, learns the end from the log.
"""


class PredictedStep(NamedTuple):
    """Predicted step in physical units.

    Attributes:
        next_obs: Next observation, shape ``(obs,)``.
        reward: Reward of the step, on the scale that the model's learner was given.
        cost: Costs of the step, shape ``(cost,)``; of length zero if the model predicts none.
        terminated: Whether the plant ends the episode.
        disagreement: Uncertainty of the prediction, in units of the model's preparation.
    """

    next_obs: Float[Array, " obs"]
    reward: Float[Array, ""]
    cost: Float[Array, " cost"]
    terminated: Bool[Array, ""]
    disagreement: Float[Array, ""]


class DynamicsMembers(eqx.Module):
    """The networks that a dynamics model trains.

    Attributes:
        networks: Stacked networks.
        low: Lower bound of every log-variance; of length zero without variances.
        high: Upper bound of every log-variance, likewise.
    """

    networks: Network
    low: Float[Array, " target"]
    high: Float[Array, " target"]


class ModelStructure(eqx.Module):
    """Parts of a dynamics model that have no gradients.

    Attributes:
        change: Least squares from the network input and the action to the change of the
            observation.
        outcome: Least squares from these and the next observation to the reward and the costs.
        predicted: 1 for every observation that is predicted, 0 for exogenous ones.
        ends: 1 if a row of the log is terminated, 0 if none is.
    """

    change: LeastSquares
    outcome: LeastSquares
    predicted: Float[Array, " obs"]
    ends: Float[Array, ""]


class Calibration(NamedTuple):
    """Calibration of a model on held-out episodes.

    Attributes:
        elites: Indices of the members that predict, the best one first.
        mean: Mean disagreement over the rows.
        largest: Their largest disagreement.
        percentiles: Their disagreement at 0 %, 1 %, ..., 100 %, shape ``(101,)``.
    """

    elites: Int[Array, " elite"]
    mean: Float[Array, ""]
    largest: Float[Array, ""]
    percentiles: Float[Array, " percent"]

    def quantile(self, share: float | Float[Array, ""]) -> Float[Array, ""]:
        """The disagreement that a share of the held-out rows does not exceed.

        Args:
            share: Part of the rows, from 0 to 1; between two per cents it is interpolated.
        """
        percent = jnp.linspace(0, 1, len(self.percentiles))
        return jnp.interp(jnp.asarray(share), percent, self.percentiles)


def percentiles_of(
    values: Float[Array, " row"], valid: Bool[Array, " row"]
) -> Float[Array, " percent"]:
    """The values of the valid rows at 0 %, 1 %, ..., 100 %, as NumPy's quantiles are."""
    # Without a NaN for invalid rows, as it would stop a run with `devices.debug_nans`.
    largest = jnp.max(jnp.where(valid, values, -jnp.inf))
    # Invalid rows stand behind all others, where no percentage reaches.
    in_order = jnp.sort(jnp.where(valid, values, largest))
    places = jnp.linspace(0, 1, 101) * (jnp.sum(valid) - 1)
    return jnp.interp(places, jnp.arange(len(values)), in_order)


class Moments(NamedTuple):
    """Means and standard deviations of every member, in units of the preparation.

    Attributes:
        mean: One number per target.
        std: Their standard deviations; zero for a deterministic model.
    """

    mean: Float[Array, "ens *batch target"]
    std: Float[Array, "ens *batch target"]


def linear_answer(
    fit: LeastSquares | None, inputs: Float[Array, "*batch in"], targets: int
) -> tuple[Float[Array, "*batch target"], Float[Array, " target"]]:
    """Output of the linear part, and the standard deviation of its residual; without gradients.

    Without a ``fit`` these are zero and one.
    """
    if fit is None:
        return jnp.zeros((*inputs.shape[:-1], targets), inputs.dtype), jnp.ones(targets)
    solution = jax.lax.stop_gradient((coefficients(fit, targets), spread(fit, targets)))
    answer = inputs @ solution[0][:-1]
    return answer + along(solution[0][-1], answer), solution[1]


def likelihood_loss(
    members: DynamicsMembers,
    outputs: Float[Array, "ens *batch output"],
    residual: Float[Array, "*batch target"],
    weights: Float[Array, " target"],
) -> Float[Array, "*batch"]:
    """Negative log-likelihood of the linear part's residual, summed over members and targets.

    ``outputs`` are means, then any log-variances; ``residual`` is divided by its standard
    deviation.
    """
    if not members.low.size:
        losses = jnp.square(residual[None] - outputs) / 2
    else:
        mean, raw = jnp.split(outputs, 2, axis=-1)
        low, high = (along(bound, mean) for bound in _bounds(members))
        losses = gaussian_nll(mean, raw, jnp.broadcast_to(residual, mean.shape), low=low, high=high)
    return jnp.sum(losses * along(weights, losses), axis=(0, -1))


def bound_loss(members: DynamicsMembers, weights: Float[Array, " target"]) -> Float[Array, ""]:
    """The distance between the bounds of the log-variances, which is at least one."""
    if not members.low.size:
        return jnp.zeros(())
    low, high = _bounds(members)
    return jnp.sum(weights * (high - low))


def _bounds(members: DynamicsMembers) -> tuple[Array, Array]:
    # Adam's steps do not shrink with the gradient, so without this the bounds would cross.
    return members.low, jnp.maximum(members.high, members.low + 1)


def member_moments(
    members: DynamicsMembers, outputs: Array, base: Array, size: Array, weights: Array
) -> Moments:
    """Means and standard deviations of all members, in units.

    ``base`` is the output of the linear part, ``size`` the standard deviation of its residual.
    """
    size, weights = along(size, outputs), along(weights, outputs)
    if not members.low.size:
        mean = (base[None] + outputs * size) * weights
        return Moments(mean, jnp.zeros_like(mean))
    learned, raw = jnp.split(outputs, 2, axis=-1)
    low, high = (along(bound, raw) for bound in _bounds(members))
    std = jnp.exp(soft_clamp(raw, low, high) / 2)
    return Moments((base[None] + learned * size) * weights, std * size * weights)


def uncertainty_of(moments: Moments, kind: Uncertainty) -> Float[Array, "*batch"]:
    """Uncertainty of a prediction, over members ``i`` and predicted numbers ``k``.

    Args:
        moments: Moments that every member predicts.
        kind: ``"disagreement"`` for ``sqrt(mean_k var_i mean_ik)``, ``"aleatoric"`` for
            ``max_i ||std_i||``, ``"discrepancy"`` for ``max_ij ||mean_i - mean_j||``.
    """
    if kind == "aleatoric":
        return mopo_penalty(moments.std)
    if kind == "discrepancy":
        return ensemble_discrepancy(moments.mean)
    return jnp.sqrt(jnp.mean(jnp.var(moments.mean, axis=0), axis=-1))


def along(vector: Float[Array, " target"], like: Float[Array, "..."]) -> Float[Array, "..."]:
    """A vector, reshaped to broadcast along the last axis of an array."""
    return vector.reshape(*(1,) * (like.ndim - 1), -1)


def newest(maps: Preparation, inputs: Float[Array, "*batch in"]) -> Float[Array, "*batch obs"]:
    """The current observation in the network input."""
    n_obs, width = maps.obs.offset.shape[-1], maps.low.shape[-1] + FLAGS
    return inputs[..., -width - n_obs : -width] if maps.window else inputs


def next_network_inputs(
    maps: Preparation,
    inputs: Float[Array, "*batch in"],
    action: Float[Array, "*batch act"],
    next_obs: Float[Array, "*batch obs"],
) -> Float[Array, "*batch in"]:
    """Network input of the next step, in its units: the next observation, or its window."""
    if not maps.window:
        return next_obs
    known = jnp.ones(next_obs.shape[:-1], bool)
    step = step_features(next_obs, action, known, known)
    return jnp.concatenate([inputs[..., step.shape[-1] :], step], axis=-1)


def network_answers(members: DynamicsMembers, inputs: Float[Array, "*batch in"]) -> Array:
    """The outputs of every network; their inputs are clipped, unlike those of the linear part."""
    return jax.vmap(_output, in_axes=(0, None))(members.networks, jnp.clip(inputs, -CLIP, CLIP))


def _output(network: Network, inputs: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
    return network(inputs)


def join_moments(change: Moments, outcome: Moments, chosen: Int[Array, " elite"]) -> Moments:
    """Moments of observations, reward and costs of the chosen members."""
    pairs = zip(change, outcome, strict=True)
    return Moments(
        *(jnp.concatenate([one[chosen], other[chosen]], axis=-1) for one, other in pairs)
    )
