"""With barrier rows on an exactly known plant no policy breaks the limit of the state.

DMSD is linear and without noise, its model is the published one, written here again; why its rows
always leave an action is said in ``tools/studies/benchmarks/known_barrier.py``.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.control import ConstantPolicy
from neorl_envs.plants import DMSD
from neorl_safety.constraints import barrier_records, declared_constraints, spec_channels
from neorl_safety.filters import Flag
from neorl_safety.guards import guard
from neorl_train.judging import rollouts

LIMIT, TAU, DT, MASS = 1.0, 2.0, 0.2, 20.0


def model():
    between = np.array([[-2.0, 1.0], [1.0, -2.0]])
    a, b = np.eye(6), np.zeros((6, 2))
    a[:2, 2:4] += DT * np.eye(2)
    a[2:4, :4] += DT / MASS * np.hstack([2.0 * between, 4.0 * between])
    b[2:4] = DT / MASS * np.eye(2)
    return a, b, np.zeros(6)


def guarded(policy):
    plant = DMSD()
    records = [
        one
        for mass in "12"
        for side in (1.0, -1.0)
        for one in barrier_records(
            spec_channels(plant.spec), model(), at_most=LIMIT, decay=0.5, margin=1e-4,
            keep={f"x{mass}": side, f"v{mass}": side * TAU},
        )
    ]  # fmt: skip
    constraints = declared_constraints(plant.spec, records)
    return guard(policy, constraints, plant.tunings()["LQR"], plant.spec)


def positions(policy, count):
    rows = jax.device_get(rollouts(DMSD(), policy, jax.random.key(3), jnp.arange(count)))
    assert rows.mask.all()
    return rows, np.abs(rows.obs[..., :2]).max(axis=(1, 2))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("push", 64),
        pytest.param("push", 1000, marks=pytest.mark.nightly),
        pytest.param("regulator", 1000, marks=pytest.mark.nightly),
    ],
)
def test_no_mass_passes_its_limit_in_any_episode_and_without_the_filter_most_do(name, count):
    """Row N19: with the filter no episode breaks the limit."""
    bare = DMSD().tunings()["LQR"] if name == "regulator" else ConstantPolicy(jnp.full(2, 30.0))
    _, furthest = positions(bare, count)
    assert (furthest > LIMIT).mean() > 0.7
    rows, furthest = positions(guarded(bare), count)
    assert (furthest > LIMIT).sum() == 0
    assert furthest.max() > 0.99  # no further from the limit than it must be
    flags = np.asarray(rows.flags)
    assert not (flags & int(Flag.FALLBACK_USED | Flag.ROWS_INFEASIBLE)).any()
    assert (flags & int(Flag.ROWS_ACTIVE)).any(axis=1).mean() > 0.9
    a, b, _ = model()
    before = np.concatenate([rows.first_obs[:, None], rows.obs[:, :-1]], axis=1)[..., :4]
    predicted = before.astype(np.float64) @ a[:4, :4].T + rows.applied @ b[:4].T
    np.testing.assert_allclose(rows.obs[..., :4], predicted, atol=1e-6)
