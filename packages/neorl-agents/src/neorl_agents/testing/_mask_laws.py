"""The laws of masked rows: they have no effect, whatever they hold."""

from functools import partial
from typing import Any

import chex
import equinox as eqx
import jax
import numpy as np

from neorl_agents.testing._subject import (
    Subject,
    batch_of,
    equal,
    masked,
    updated,
    with_rates,
    with_rows,
)
from neorl_core import Transition
from neorl_core.testing import assert_close


def masked_rows_are_inert(subject: Subject) -> None:
    plain, algorithm, state = subject.started()
    batch, key = jax.device_get(subject.problem.batch(plain)), jax.random.key(1)
    shape = (plain.batches_per_update, plain.batch_size)
    mask = np.random.default_rng(5).uniform(size=shape) < 0.6

    def spoiled(rows: Transition) -> Transition:
        def column(x: Any) -> Any:
            if x is None or x.dtype == bool:
                return x
            kept = mask.reshape(mask.shape + (1,) * (x.ndim - 2))
            return np.where(kept, x, np.asarray(np.nan, x.dtype))

        ends = None if rows.terminated is None else rows.terminated ^ ~mask
        return jax.tree.map(column, rows)._replace(mask=mask, terminated=ends)

    clean, _ = updated(algorithm, state, masked(batch, mask), key)
    spoilt, metrics = updated(algorithm, state, with_rows(batch, spoiled), key)
    reached = "NaN in masked rows reach the state: use the rows that `learn` is given"
    chex.assert_trees_all_equal(clean, spoilt, custom_message=reached)
    for name, metric in metrics.items():
        assert np.isfinite(metric), f"masked rows with NaN in them reach metric {name}"
    everything, _ = updated(algorithm, state, masked(batch, np.ones_like(mask)), key)
    unmasked, _ = updated(algorithm, state, batch, key)
    assert_close(everything, unmasked, rtol=1e-3, atol=1e-5)
    assert not equal(clean, everything), "the mask changes nothing, so update does not use it"
    _require_that_masked_rows_weigh_nothing(subject)


def _require_that_masked_rows_weigh_nothing(subject: Subject) -> None:
    """Duplicated rows give the same means as single rows with the duplicates masked."""
    plain, algorithm, state = subject.started()
    algorithm = with_rates(algorithm, 10.0)
    shape, half = (plain.batches_per_update, plain.batch_size), plain.batch_size // 2
    for i in range(3):  # A fresh network maps masked rows, which are zeros, to zeros.
        batch = batch_of(subject.problem, plain, seed=i)
        state, _ = updated(algorithm, state, batch, jax.random.key(i))
    place = np.arange(plain.batch_size)
    again = np.where(place < half, place, place - half)
    twice = jax.tree.map(lambda x: x[:, again] if x.shape[:2] == shape else x, batch)
    once, both = (masked(twice, np.broadcast_to(place < rows, shape)) for rows in (half, 2 * half))
    means, _ = updated(algorithm, state, both, jax.random.key(1))
    drawn, _ = updated(algorithm, state, both, jax.random.key(2))
    if equal(means, drawn):
        same, _ = updated(algorithm, state, once, jax.random.key(1))
        message = "masked rows have weight in a mean: use masked_mean(loss, rows.mask)"
        assert_close(same, means, rtol=1e-3, atol=1e-5, message=message)


def masked_rows_are_in_no_loss(subject: Subject) -> None:
    """If observations are shifted, only the blanks in masked rows look different.

    A loss that averages over all rows, including blanks, satisfies the law above but not this one.
    """
    plain, algorithm, state = subject.started()
    maps = state.preparation
    if maps.window:
        return  # Windows carry their own flags for blanks.
    shape = (plain.batches_per_update, plain.batch_size)
    mask = np.random.default_rng(5).uniform(size=shape) < 0.6
    batch, learners = jax.device_get(subject.problem.batch(plain)), []
    for steps in (0.0, 1.0):  # Blanks at the mean of the log, and one standard deviation away.
        offset = np.float32(steps) * _coarse(maps.obs.scale)
        change = offset - _coarse(maps.obs.offset)
        moved = eqx.tree_at(lambda s: s.preparation.obs.offset, state, offset)
        rows = with_rows(batch, partial(_moved_by, change=change, mask=mask))
        new, _ = updated(algorithm, moved, rows, jax.random.key(1))
        learners.append(eqx.tree_at(lambda s: s.preparation.obs.offset, new, np.zeros_like(offset)))
    others = dict(jax.tree.leaves_with_path(learners[1]))
    for path, leaf in jax.tree.leaves_with_path(learners[0]):
        where = jax.tree_util.keystr(path)
        assert np.array_equal(leaf, others[path]), f"masked rows influence {where}"


def _moved_by(rows: Transition, change: Any, mask: Any) -> Transition:
    def moved(obs: Any) -> Any:
        return None if obs is None else _coarse(obs) + np.broadcast_to(change, obs.shape)

    return rows._replace(obs=moved(rows.obs), next_obs=moved(rows.next_obs), mask=mask)


def _coarse(x: Any) -> Any:
    # Rounded, so that sums of such numbers are exact in float32.
    return np.round(np.asarray(x) * 64) / 64


def nothing_is_learned_where_every_row_is_masked(subject: Subject) -> None:
    plain, algorithm, state = subject.started()
    shape = (plain.batches_per_update, plain.batch_size)
    nothing = masked(batch_of(subject.problem, plain), np.zeros(shape, bool))
    new, metrics = updated(algorithm, state, nothing, jax.random.key(1))
    chex.assert_tree_all_finite((new, metrics))
