"""Inputs moved by their last bit: what an export asks the training side with."""

import jax
import numpy as np

from neorl_deploy.export._read import entries, perturbed_observations, perturbed_policy
from neorl_safety.constraints import action_constraints
from neorl_safety.guards import guard


def test_every_observation_moves_to_a_neighbour_and_stays_in_range(spec):
    low, high = np.float32(280), np.float32(400)
    rows = np.array([[1, low, 3], [1, high, 3], [1, 1e30, 3], [np.nan, -np.inf, 3]], np.float32)
    finite = np.isfinite(rows)
    copies = [copy for _, copy in perturbed_observations(entries(spec.obs), rows)]
    for copy in copies:
        assert copy.dtype == np.float32
        np.testing.assert_array_equal(copy[~finite], rows[~finite])
        assert (np.abs(copy[finite] - rows[finite]) <= np.spacing(np.abs(rows[finite]))).all()
        assert copy[0, 1] >= low
        assert copy[1, 1] <= high
        assert (copy[:, 2] != rows[:, 2]).all(), "inside its range every number moves"
    assert any((copies[0] != copy)[0].any() for copy in copies[1:])


def test_every_number_of_policy_and_fallback_moves_to_a_neighbour(network, pid, spec):
    policy = guard(network, action_constraints(spec, [0.5, None]), pid, spec)
    moved = [jax.jit(perturbed_policy)(policy, jax.random.key(seed)) for seed in range(2)]
    assert jax.tree.structure(moved[0]) == jax.tree.structure(policy)
    differ = False
    before, *after = (jax.tree.leaves((p.policy, p.fallback)) for p in (policy, *moved))
    for old, new, other in zip(before, *after, strict=True):
        old, new = np.asarray(old), np.asarray(new)
        assert (old.dtype, old.shape) == (new.dtype, new.shape)
        assert (np.abs(new - old) <= np.spacing(np.abs(old))).all()
        assert ((new != old) == (old != 0)).all(), "a structural zero stays"
        differ = differ or (new != other).any()
    assert differ
    limits, kept = (jax.tree.leaves(p.constraints) for p in (policy, moved[0]))
    assert all((old == new).all() for old, new in zip(limits, kept, strict=True))
