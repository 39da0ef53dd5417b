"""An ensemble of networks whose disagreement shows where the log has no data."""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_agents.learning import LearnerState
from neorl_agents.networks import MLP
from neorl_core import Affine

Target = Literal["dynamics", "behaviour", "value"]
"""What the members of an ensemble predict; see :class:`Ensemble`."""


class Ensemble(eqx.Module):
    """Members with independent initial weights, each with a prior function that is not trained.

    Member ``m`` predicts ``f_m(x) + prior_scale p_m(x)``. Where data determine the sum, members
    agree; elsewhere the priors differ. A ``"dynamics"`` ensemble predicts the change of the
    observation from observation and action, a ``"behaviour"`` ensemble the action from the
    observation, and a ``"value"`` ensemble the learner's return from observation and action.

    Attributes:
        obs: Map that standardises observations.
        action: Map from the range of every action channel to [-1, 1].
        members: Stacked networks.
        priors: Stacked fixed networks; ``None`` for critics of a learner.
        prior_scale: Factor of the priors, scalar.
        outputs: Map from predictions in physical units to those of the networks.
        typical: Root mean square over rows of the log of the members' standard deviation, in the
            units of the networks, shape ``(out,)``; 1 for critics of a learner.
        noise: Standard deviation of the residuals beyond the members' disagreement, physical
            units, shape ``(out,)``.
        spread: Factor of the members' standard deviation, shape ``(out,)``.
        width: Half-width of an interval in standard deviations, shape ``(out,)``; NaN if no
            interval was calibrated.
        target: Name of what is predicted; static.
    """

    obs: Affine
    action: Affine
    members: MLP
    priors: MLP | None
    prior_scale: Float[Array, ""]
    outputs: Affine
    typical: Float[Array, " out"]
    noise: Float[Array, " out"]
    spread: Float[Array, " out"]
    width: Float[Array, " out"]
    target: Target = eqx.field(static=True)


class Prediction(NamedTuple):
    """Prediction of an ensemble for one observation and action, in physical units.

    Attributes:
        mean: Mean of the members, shape ``(out,)``.
        deviation: ``sqrt(noise^2 + (spread std)^2)`` with the standard deviation over the members.
        low: Lower end of the interval of the stated coverage; NaN if none was calibrated.
        high: Upper end.
    """

    mean: Float[Array, " out"]
    deviation: Float[Array, " out"]
    low: Float[Array, " out"]
    high: Float[Array, " out"]


def disagreement(
    ensemble: Ensemble, obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Float[Array, ""]:
    """Disagreement of the members, relative to the log: ``sqrt(mean_k (std_k / typical_k)^2)``.

    A value of 1 is typical of held-out rows. Every output is divided by its own ``typical``, so an
    output that is unpredictable anyway does not mask the others. The function has the signature
    that ``neorl_safety.monitoring.CriticMonitor`` requires of its ``apply``; the monitor sets its
    threshold on episodes not used here, with a guaranteed rate of false alarms.

    Args:
        ensemble: A fitted ensemble.
        obs: One observation in physical units.
        action: The action proposed for it, in physical units; ignored by a behaviour ensemble.

    Returns:
        A scalar, larger for less familiar inputs; NaN if an input is NaN.
    """
    std = jnp.std(member_outputs(ensemble, obs, action), axis=0)
    return jnp.sqrt(jnp.mean(jnp.square(std / ensemble.typical)))


def predicted(
    ensemble: Ensemble, obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Prediction:
    """Mean, calibrated standard deviation and interval of an ensemble's prediction.

    The interval contains one step of a new episode with at least the coverage that it was fitted
    for, on average over exchangeable episodes. There is no guarantee for other data, although the
    standard deviation grows there.

    Args:
        ensemble: A fitted ensemble.
        obs: One observation in physical units.
        action: The action proposed for it, in physical units.

    Returns:
        Prediction of the observation's change, the behaviour's action, or the return.
    """
    outputs = member_outputs(ensemble, obs, action)
    mean = ensemble.outputs.to_physical(jnp.mean(outputs, axis=0))
    std = jnp.std(outputs, axis=0) * ensemble.outputs.scale
    deviation = jnp.sqrt(jnp.square(ensemble.noise) + jnp.square(ensemble.spread * std))
    half = ensemble.width * deviation
    return Prediction(mean, deviation, mean - half, mean + half)


def member_outputs(
    ensemble: Ensemble, obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Float[Array, "ens out"]:
    """Output of every member, in the units of the networks."""
    inputs = ensemble.obs.to_scaled(obs)
    if ensemble.target != "behaviour":
        inputs = jnp.concatenate([inputs, ensemble.action.to_scaled(action)])
    return scaled_outputs(ensemble.members, ensemble.priors, ensemble.prior_scale, inputs)


def scaled_outputs(
    members: MLP, priors: MLP | None, prior_scale: Array, inputs: Float[Array, "*batch in"]
) -> Float[Array, "ens *batch out"]:
    """Output of every member for scaled inputs."""
    outputs = jax.vmap(_member_output, in_axes=(0, None))(members, inputs)
    if priors is None:
        return outputs
    return outputs + prior_scale * jax.vmap(_member_output, in_axes=(0, None))(priors, inputs)


def critic_ensemble(state: LearnerState) -> Ensemble:
    """The critics of a trained learner as an ensemble of its returns.

    Works on the state of every learner with stacked critics (IQL, TD3+BC, CQL, SAC-N, EDAC and
    others). Two critics, which most learners have, carry little information; SAC-N and EDAC train
    many. Returns of the learned policy were not logged, so there is no interval.
    :func:`disagreement` is in units of the reward's scale, and a monitor calibrates its threshold.
    If the learner centred its rewards, values are relative to the log's mean reward.

    Args:
        state: Training state whose parameters have ``critics``, one seed.

    Returns:
        The ensemble.

    Raises:
        TypeError: If the state has no stacked critics, or they see more than one observation.
    """
    critics = state.parameters.get("critics") if isinstance(state, LearnerState) else None
    if critics is None:
        raise TypeError(
            f"this {type(state).__name__} has no critics; give the state of a learner with "
            "stacked critics, such as SACN, EDAC or IQL, or fit an ensemble on the log"
        )
    preparation = state.preparation
    if preparation.window:
        raise TypeError(
            f"an ensemble reads one observation, but the critics of this learner read windows of "
            f"{preparation.window} steps; train with networks.encoder='none', or fit an ensemble "
            "on the log"
        )
    if not isinstance(critics, MLP):
        raise TypeError(
            f"an ensemble has MLPs as members, but the critics of this learner are of the class "
            f"{type(critics).__name__}; train with networks.kind='mlp', or fit an ensemble on the "
            "log"
        )
    unit = jnp.reshape(preparation.reward_unit, (1,))
    zero = jnp.zeros_like(unit)
    return Ensemble(
        obs=preparation.obs,
        action=preparation.action,
        members=critics,
        priors=None,
        prior_scale=jnp.zeros((), unit.dtype),
        outputs=Affine(zero, unit),
        typical=jnp.ones_like(unit),
        noise=zero,
        spread=jnp.ones_like(unit),
        width=jnp.full_like(unit, jnp.nan),
        target="value",
    )


def _member_output(network: MLP, inputs: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
    return network(inputs)
