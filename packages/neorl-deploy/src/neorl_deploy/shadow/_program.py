"""Replays a whole log: as one compiled scan (extra ``jax``), or row by row with NumPy alone."""

from typing import Any, NamedTuple

import numpy as np

from neorl_deploy.bundle._read import Bundle
from neorl_deploy.runtime._forms import FormName, open_form
from neorl_deploy.runtime._programs import one_line_of, open_programs
from neorl_deploy.runtime._trial import require_trial


class Shadow(NamedTuple):
    """Actions that a bundle would have taken, row by row.

    Attributes:
        action: Proposed action, shape ``(row, act)``, physical units.
        flags: Decisions of the filter, shape ``(row,)``.
        limits: Active limits, shape ``(row, act)``.
        intervention: Distance by which the filter moved each channel, shape ``(row, act)``.
        alarms: Bits of the monitors that raise an alarm, shape ``(row,)``.
    """

    action: np.ndarray
    flags: np.ndarray
    limits: np.ndarray
    intervention: np.ndarray
    alarms: np.ndarray


def shadow(
    bundle: Bundle,
    obs: np.ndarray,
    last_sent: np.ndarray,
    starts_episode: np.ndarray,
    form: FormName = "stablehlo",
) -> Shadow:
    """Runs the exported step over a log, with a fresh carry at the start of each episode.

    Args:
        bundle: A verified bundle.
        obs: Observations, shape ``(row, obs)``, float32.
        last_sent: Action that the plant had received before each row, NaN if unknown, shape ``(row,
            act)``, float32.
        starts_episode: Whether a row is the first of its episode, shape ``(row,)``.
        form: ``"stablehlo"``, compiled, or ``"numpy"``, one row after the other.

    Returns:
        What the bundle would have done, as host arrays.

    Raises:
        BundleError: If the bundle does not have the form, or it does not run.
        DeployError: If the form needs an extra that is not installed.
    """
    if form == "numpy":
        return _row_by_row(bundle, obs, last_sent, starts_episode)
    programs = open_programs(bundle)
    require_trial(bundle)
    import jax
    import jax.numpy as jnp

    fresh = tuple(programs.initial_carry.call())

    def row(carry: tuple[Any, ...], inputs: tuple[Any, Any, Any]) -> tuple[tuple[Any, ...], Any]:
        obs, sent, starts = inputs
        carry = tuple(jnp.where(starts, new, old) for new, old in zip(fresh, carry, strict=True))
        outputs = programs.step.call(*carry, obs, sent)
        return tuple(outputs[: len(fresh)]), Shadow(*outputs[len(fresh) :])

    def rows(inputs: tuple[Any, Any, Any]) -> Shadow:
        return jax.lax.scan(row, fresh, inputs)[1]

    return Shadow(*(np.asarray(out) for out in jax.jit(rows)((obs, last_sent, starts_episode))))


def _row_by_row(
    bundle: Bundle, obs: np.ndarray, last_sent: np.ndarray, starts_episode: np.ndarray
) -> Shadow:
    form = open_form(bundle, "numpy")
    words, rows = form.initial, []
    with one_line_of(bundle, "its operations do not run"):
        for seen, sent, starts in zip(obs, last_sent, starts_episode, strict=True):
            words = form.step(form.initial if starts else words, seen, sent)
            rows.append([form.layout.get(words, name) for name in Shadow._fields])
    return Shadow(*(np.array(column) for column in zip(*rows, strict=True)))
