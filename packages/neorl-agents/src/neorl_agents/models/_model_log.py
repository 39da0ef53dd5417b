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

    Args:
        terminated: Rows in order, shape ``(row,)``.
        truncated: The same.
        share: Fraction of the episodes, in [0, 0.5]; none at 0.
        xp: ``numpy`` on the host, ``jax.numpy`` in a program.

    Returns:
        One flag per row.
    """
    ends = xp.asarray(terminated, bool) | xp.asarray(truncated, bool)
    if share == 0:
        return xp.zeros_like(ends)
    number = xp.cumsum(ends) - ends
    every = xp.minimum(round(1 / share), number[-1] + 1)
    return (number % every == every - 1) & (every > 1)


def exogenous_mask(spec: Spec, names: Sequence[str]) -> Float[Array, " obs"]:
    """1 for every observation that is predicted, 0 for those that no controller influences.

    Raises:
        InputError: If a name is not an observation, or nothing is left to predict.
    """
    mask = np.ones(spec.n_obs, np.float32)
    mask[list(exogenous_indices(spec, names))] = 0
    return jnp.asarray(mask)


def require_model_log(
    learner: str, spec: Spec, rows: Transition, exogenous: Sequence[str], held_out: float
) -> None:
    """Refuses a log from which no model can be learned, before anything is compiled.

    Args:
        learner: Name of the model's class, for messages.
        spec: Channels.
        rows: Rows in order, host arrays.
        exogenous: Names of the observations that are not predicted.
        held_out: Fraction of the episodes to hold out.

    Raises:
        InputError: If a name is not an observation, if any action or all predicted observations
            are constant, if a log with one episode is to be split, or if fewer rows are left than
            a one-step linear map has coefficients.
    """
    beside = set(exogenous_indices(spec, exogenous))
    action, obs, after = (np.asarray(x) for x in (rows.action, rows.obs, rows.next_obs))
    still = [
        channel.name
        for channel, column in zip(spec.action, action.T, strict=True)
        if np.ptp(column) == 0
    ]
    if still:
        raise InputError(
            f"the action {', '.join(still)} never moves in the log, so that a model cannot learn "
            "what it does; take a log in which it moves, or a learner without a model, such as bc"
        )
    predicted = [i for i in range(spec.n_obs) if i not in beside]
    if not np.any(obs[:, predicted] != after[:, predicted]):
        raise InputError(
            "no observation that is to be predicted ever changes in the log, so that there is "
            "nothing to model; check the log's next_obs and the channels declared exogenous"
        )
    ends = np.asarray(rows.terminated, bool) | np.asarray(rows.truncated, bool)
    episodes = int(ends[:-1].sum()) + 1
    if held_out and episodes < 2:
        raise InputError(
            f"the log has one episode, and {learner} holds out whole episodes to compare its "
            "members; record or split into more, or set held_out to 0 in the learner's model"
        )
    needed = spec.n_obs + spec.n_action + 1
    fitted = int(np.sum(~held_out_rows(rows.terminated, rows.truncated, held_out)))
    if fitted < needed:
        raise InputError(
            f"a model of {spec.n_obs} observations and {spec.n_action} actions needs {needed} rows "
            f"at least, and the log leaves {fitted} beside the episodes that are held out; record "
            "more"
        )
