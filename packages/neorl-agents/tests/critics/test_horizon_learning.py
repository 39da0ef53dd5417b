"""Targets, loss and draws against plain loops in float64."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.critics import SafetyCriticLearner, horizon_targets
from neorl_agents.critics._log_rows import (
    checked_columns,
    counted_steps,
    fully_observed,
    split_columns,
    window_sums,
)
from neorl_agents.critics._safety_critic import RowsBeforeViolations, head_loss
from neorl_agents.models import actions_along
from neorl_agents.networks import ensemble, init_mlp

from . import chain

RNG = np.random.default_rng(0)
BATCH, COST, HORIZON, MEMBERS = 6, 2, 4, 3


def targets_by_loop(x, values, follows, quantity, discount):
    result = np.zeros_like(values)
    for row, k, j in np.ndindex(*values.shape):
        before = values[row, k, j - 1] if j > 0 else 0.0
        left = 1 - x[row, k] if quantity == "violation" else 1.0
        result[row, k, j] = x[row, k] + left * discount * follows[row] * before
    return result


def test_targets_are_those_of_a_loop():
    values = RNG.uniform(size=(BATCH, COST, HORIZON))
    counted = (RNG.uniform(size=(BATCH, COST)) < 0.4).astype(float)
    follows = np.array([True, True, False, True, False, True])
    for quantity, discount in (("violation", 1.0), ("cost", 0.9)):
        actual = horizon_targets(
            jnp.asarray(counted, jnp.float32),
            jnp.asarray(values, jnp.float32),
            jnp.asarray(follows),
            quantity=quantity,
            discount=discount,
        )
        expected = targets_by_loop(counted, values, follows, quantity, discount)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def loss_by_loop(outputs, targets, known, weight, shift, quantity):
    total = 0.0
    for m, row, k, j in np.ndindex(*targets.shape):
        z = outputs[m, row].reshape(COST, HORIZON)[k] + shift[k]
        y, counts = targets[m, row, k, j], weight[row] * (known[row, k] or j == 0)
        if quantity == "violation":
            hazard = np.log1p(np.exp(z[: j + 1])).sum()
            total += counts * ((1 - y) * hazard - y * np.log(1 - np.exp(-hazard)))
        else:
            total += counts * (z[: j + 1].sum() - y) ** 2 / (j + 1)
    return total / (BATCH * COST * HORIZON)


def test_the_loss_is_that_of_a_loop(in_numpy):
    init = partial(ensemble, MEMBERS, lambda key: init_mlp((3, 8, COST * HORIZON), key))
    members = jax.device_get(jax.jit(init)(jax.random.key(1)))
    inputs = RNG.normal(size=(BATCH, 3))
    targets = RNG.uniform(size=(MEMBERS, BATCH, COST, HORIZON))
    known = RNG.uniform(size=(BATCH, COST)) < 0.5
    weight, shift = RNG.uniform(0.5, 2, BATCH), np.array([-2.0, 0.5])
    f32 = lambda x: np.asarray(x, np.float32)  # noqa: E731
    each = [in_numpy(jax.tree.map(lambda x, m=m: x[m], members), inputs) for m in range(MEMBERS)]
    for quantity in ("violation", "cost"):
        arrays = (members, f32(inputs), f32(targets), known, f32(weight), f32(shift))
        loss, _ = jax.jit(head_loss, static_argnums=6)(*arrays, quantity)
        expected = loss_by_loop(np.array(each), targets, known, weight, shift, quantity)
        np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_weights_undo_the_draws():
    """The weighted frequency of every row is that of a uniform draw."""
    columns = checked_columns(chain.episodes(6, seed=3), chain.SPEC, cost=True)
    counted = counted_steps(columns, chain.SPEC)
    tables = SafetyCriticLearner(horizon=3).log_tables(chain.SPEC, chain.episodes(6, seed=3))
    weight = tables.rows.weight
    drawn = RowsBeforeViolations().numbers(jax.device_put(tables), 400_000, jax.random.key(0))
    share = np.bincount(np.asarray(drawn), minlength=len(weight)) / 400_000
    np.testing.assert_allclose(share * weight, 1 / len(weight), rtol=0.12)
    ahead = window_sums(columns, counted.astype(float), 3, 1.0)[:, 0] > 0
    assert share[ahead].sum() > 0.5 > ahead.mean()
    none = tables._replace(count=np.zeros(0, np.int32))
    uniform = RowsBeforeViolations().numbers(none, 5_000, jax.random.key(0))
    assert len(np.unique(uniform)) == len(weight)


def test_rows_say_what_follows_them_and_where_it_is_known():
    """Nothing behind a termination; behind a truncation the log's next action is not known.

    Nor is it where the next row is masked.
    """
    log = chain.episodes(6, seed=3)
    keep = ~np.isin(np.arange(len(log.reward)), (3, 17))
    masked = log._replace(mask=keep)
    columns = checked_columns(masked, chain.SPEC, cost=True)
    ends = (log.terminated | log.truncated) | np.isin(np.arange(len(keep)), (2, 16))
    np.testing.assert_array_equal(columns.last, ends[keep])
    rows = SafetyCriticLearner(horizon=3).log_tables(chain.SPEC, masked).rows
    counted, last = counted_steps(columns, chain.SPEC), columns.last
    assert (last & ~columns.terminated).any()
    assert columns.terminated.any()
    np.testing.assert_array_equal(rows.follows, ~columns.terminated)
    known = ~last | columns.terminated
    np.testing.assert_array_equal(rows.known, known[:, None] | counted)
    following = np.append(columns.action[1:, 0], 0)
    np.testing.assert_array_equal(rows.next_action[~last, 0], following[~last])
    np.testing.assert_array_equal(rows.next_obs[:-1][~last[:-1]], rows.obs[1:][~last[:-1]])


class Counter(eqx.Module):
    """Its action is how often it was asked before, and ten times what was sent last."""

    def initial_carry(self):
        return jnp.zeros(1), jnp.zeros(1)

    def __call__(self, carry, obs, key=None):
        return (carry[0] + 1, carry[1]), carry[0] + 10 * carry[1]

    def sent(self, carry, action):
        return carry[0], action


def test_a_policy_with_memory_is_told_what_was_done_and_begins_anew_with_every_episode():
    columns = checked_columns(chain.episodes(6, seed=3), chain.SPEC, cost=True)
    actual = actions_along(Counter(), columns.obs, columns.action, columns.next_obs, columns.last)
    np.testing.assert_allclose(actual[:, 0], columns.age + 1 + 10 * columns.action[:, 0])


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_both_sides_of_a_split_have_whole_episodes(share):
    columns = checked_columns(chain.episodes(6, seed=3), chain.SPEC, cost=True)
    sides = split_columns(columns, share, jax.random.key(0), what="calibration")
    parts = [side.episodes for side in sides]
    assert [len(part) for part in parts] == {0.01: [5, 1], 0.5: [3, 3], 0.99: [1, 5]}[share]
    assert sorted([*parts[0], *parts[1]]) == list(range(6))


def test_windows_end_with_their_piece_and_are_kept_by_time_alone():
    log = chain.episodes(40, seed=1)
    columns = checked_columns(log, chain.SPEC, cost=True)
    sums, seen = window_sums(columns, columns.cost, 5, 0.5), fully_observed(columns, 5, 40)
    ends = np.flatnonzero(columns.last)
    for row in range(len(columns.last)):
        end = ends[ends >= row][0]
        inside = columns.cost[row : min(row + 5, end + 1), 0]
        np.testing.assert_allclose(sums[row, 0], inside @ 0.5 ** np.arange(len(inside)))
        complete = row + 5 <= end + 1 or columns.terminated[end]
        assert seen[row] == (complete and columns.age[row] + 5 <= 40)
