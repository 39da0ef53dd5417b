"""How robust loops are while all of them are closed, on the linear part of a plant model."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from neorl_agents.classical._tuning import closed_loop_radius
from neorl_agents.controllers import TrackingPID
from neorl_agents.models import HistoryModel
from neorl_core import Policy
from neorl_core.control import PID

POINTS = 400
"""Frequencies at which the loops are judged, from a thousandth of the sampling rate up to half."""


class LinearPart(NamedTuple):
    """``x_{t+1} = sum_k states[k] x_{t-k} + sum_k inputs[k] u_{t-k}``, as deviations.

    Attributes:
        states: Weights of the predicted channels, this row's first, shape ``(lag, obs, obs)``.
        inputs: Weights of the actions, this row's first, shape ``(lag, obs, act)``.
    """

    states: Float[np.ndarray, "lag obs obs"]
    inputs: Float[np.ndarray, "lag obs act"]

    def response(self, z: Complex[np.ndarray, " point"]) -> Complex[np.ndarray, "point obs act"]:
        """The frequency response at points of the unit circle."""
        past, inputs = (
            np.einsum("kij,kw->wij", part, z[None] ** -np.arange(len(part))[:, None])
            for part in self
        )
        return np.linalg.solve(z[:, None, None] * np.eye(past.shape[1]) - past, inputs)


def linear_part(model: HistoryModel) -> LinearPart:
    """The linear part of a plant model without its networks, in physical units.

    Channels that are not predicted are taken as constant.
    """
    of_obs, of_past, of_action = (np.asarray(part, np.float64) for part in _weights(model))
    inputs = np.concatenate([of_action[:, None], of_past[:, ::-1]], axis=1)
    states = of_obs[:, ::-1, list(model.predicted)]
    return LinearPart(states.swapaxes(0, 1), inputs.swapaxes(0, 1))


@eqx.filter_jit
def _weights(model: HistoryModel) -> tuple[Array, Array, Array]:
    """How the prediction depends on the last observations, the past actions, and the action."""
    # It is affine within the bounds of its inputs, so that its slope at the means is all of it.
    obs, action = model.scales.obs[0], model.scales.action[0]
    past = [jnp.tile(mean, (model.history, 1)) for mean in (obs, action)]
    linear = partial(model.next_obs, member=jnp.asarray(-1))
    return jax.jacobian(linear, argnums=(0, 1, 2))(*past, action)


def sensitivity_together(model: HistoryModel, policy: Policy) -> float:
    """Largest peak sensitivity of a loop while all other loops of a bank are closed too.

    With the frequency response ``G`` of the linear part and the controllers ``K`` of the bank,
    ``S = (I + G K)^-1`` and the result is the maximum of ``|S_ii|`` over loops and frequencies: how
    much a disturbance of one measurement, with whatever the other loops make of it, grows in it.
    For a single loop it is the usual ``Ms``. It does not depend on units.

    Args:
        model: Model of a plant in running operation.
        policy: The bank, which may read its setpoints from the observation.

    Returns:
        The peak; infinite if the closed loops are unstable. NaN if the policy is no bank of two or
        more PIDs that act on predicted channels.

    Source: Skogestad and Postlethwaite, Multivariable feedback control, 2005, chapter 10.
    """
    loops = policy.loops if isinstance(policy, TrackingPID) else policy
    if not isinstance(loops, PID):
        return np.nan
    gains = [np.asarray(leaf, np.float64) for leaf in (loops.kp, loops.ki, loops.kd, loops.tau)]
    acting = [i for i in range(len(loops.measured)) if any(gain[i] for gain in gains[:3])]
    places = {channel: place for place, channel in enumerate(model.predicted)}
    if len(acting) < 2 or any(loops.measured[i] not in places for i in acting):
        return np.nan
    kp, ki, kd, tau = (gain[acting] for gain in gains)
    rows, dt = [places[loops.measured[i]] for i in acting], float(loops.dt)
    part = linear_part(model)
    part = part._replace(inputs=part.inputs[:, :, acting])
    measured = np.eye(part.states.shape[1])[rows]
    if not closed_loop_radius(*part, measured, (kp, ki, kd, tau), dt) < 1:
        return np.inf
    z = np.exp(1j * np.geomspace(2e-3 * np.pi, np.pi, POINTS))
    rise, kept = (1 - 1 / z)[:, None], tau / (tau + dt)
    controllers = kp + ki * dt / rise + kd / (tau + dt) * rise / (1 - kept / z[:, None])
    loop = part.response(z)[:, rows, :] * controllers[:, None, :]
    sensitivity = np.linalg.inv(np.eye(len(acting)) + loop)
    return float(np.abs(np.diagonal(sensitivity, axis1=1, axis2=2)).max())
