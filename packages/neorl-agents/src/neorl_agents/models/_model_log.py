"""Requirements on a log for a model of the plant, and the choice of held-out episodes."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_agents.models._history_fit import exogenous_indices
from neorl_core import InputError, Spec, Transition


def held_out_rows(terminated: Any, truncated: Any, share: float, *, xp: Any = np) -> Any:
    """Whether each row belongs to a held-out episode: every ``round(1 / share)``-th.

    In a log with fewer episodes it is the last one. The choice depends only on the log, so that a
    model and its evaluation agree on it without exchanging data.

    With a ``share`` of 0 there are none. ``xp`` is ``numpy`` on the host, ``jax.numpy`` in a
    program.
    """
    ends = xp.asarray(terminated, bool) | xp.asarray(truncated, bool)
    if share == 0:
        return xp.zeros_like(ends)
    number = xp.cumsum(ends) - ends
    interval = xp.minimum(round(1 / share), number[-1] + 1)
    return (number % interval == interval - 1) & (interval > 1)


def exogenous_mask(spec: Spec, names: Sequence[str]) -> Float[Array, " obs"]:
    """1 for every observation that is predicted, 0 for those that no controller influences.

    Raises an ``InputError`` if a name is not an observation, or nothing is left to predict.
    """
    mask = np.ones(spec.n_obs, np.float32)
    mask[list(exogenous_indices(spec, names))] = 0
    return jnp.asarray(mask)


def require_model_log(
    learner: str, spec: Spec, rows: Transition, exogenous: Sequence[str], held_out: float
) -> None:
    """Refuses a log from which no model can be learned, before anything is compiled.

    Raises an ``InputError`` if a name is not an observation, if any action or all predicted
    observations are constant, if a log with one episode is to be split, or if fewer rows are left
    than a one-step linear map has coefficients.
    """
    exogenous_columns = set(exogenous_indices(spec, exogenous))
    known = slice(None) if rows.mask is None else np.asarray(rows.mask, bool)
    columns = (rows.action, rows.obs, rows.next_obs)
    action, obs, next_obs = (np.asarray(column)[known] for column in columns)
    constant = [
        channel.name
        for channel, column in zip(spec.action, action.T, strict=True)
        if np.ptp(column) == 0
    ]
    if constant:
        raise InputError(
            f"the action {', '.join(constant)} is constant in the log, so a model cannot learn its "
            "effect; give a log in which it varies, or a learner without a model, such as bc"
        )
    predicted = [i for i in range(spec.n_obs) if i not in exogenous_columns]
    if not np.any(obs[:, predicted] != next_obs[:, predicted]):
        raise InputError(
            "the observations that the model predicts never change in the log, so there is "
            "nothing to model; check next_obs of the log and the channels declared exogenous"
        )
    ends = np.asarray(rows.terminated, bool) | np.asarray(rows.truncated, bool)
    episodes = int(ends[:-1].sum()) + 1
    if held_out and episodes < 2:
        raise InputError(
            f"the log has one episode, but {learner} holds out whole episodes to compare the "
            "members of its model; record more episodes, split this one into several, or set "
            "held_out of the learner's model to 0"
        )
    needed = spec.n_obs + spec.n_action + 1
    n_fitted = int(np.sum(~held_out_rows(rows.terminated, rows.truncated, held_out)))
    if n_fitted < needed:
        raise InputError(
            f"a model of {spec.n_obs} observations and {spec.n_action} actions needs at least "
            f"{needed} rows, but the log has {n_fitted} outside the held-out episodes; record more"
        )
