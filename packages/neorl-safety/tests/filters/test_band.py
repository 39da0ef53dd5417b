"""A band of authority is kept together with every limit, and yields only to what protects."""

import jax
import jax.numpy as jnp
import numpy as np

from neorl_core import Channel, Spec
from neorl_safety.constraints import Constraints, Linear, action_constraints
from neorl_safety.filters import Context, Flag, filter_action

SPEC = Spec(
    (Channel("level", "m", 0.0, 2.0),),
    (Channel("a", "%", 0.0, 100.0), Channel("b", "%", 0.0, 100.0)),
    (),
    dt=1.0,
    horizon=10,
)


def applied(limits, held, request, band, fallback=(50.0, 50.0)):
    context = Context(
        jnp.ones(1), jnp.array(held), jnp.array(1.0), jnp.array(fallback), band=jnp.array(band)
    )
    return filter_action(limits, context, jnp.array(request))


def test_the_request_is_bound_and_the_fallback_is_not():
    limits = action_constraints(SPEC)
    band = [[40.0, 40.0], [60.0, 60.0]]
    action, report = applied(limits, [50.0, 50.0], [90.0, 45.0], band)
    assert action.tolist() == [60.0, 45.0]
    assert report.flags & Flag.AUTHORITY_ACTIVE
    action, report = applied(limits, [50.0, 50.0], [jnp.nan, 45.0], band, (90.0, 90.0))
    assert action.tolist() == [90.0, 90.0]
    assert not report.flags & Flag.AUTHORITY_ACTIVE
    action, _ = applied(limits, [50.0, 50.0], [90.0, 45.0], [[jnp.nan] * 2] * 2)
    assert action.tolist() == [90.0, 45.0]


def test_a_rate_outranks_a_band_that_cannot_be_reached():
    action, _ = applied(action_constraints(SPEC, [5.0, 5.0]), [80.0, 50.0], [90.0, 50.0], BAND)
    assert action.tolist() == [75.0, 50.0]


BAND = [[40.0, 40.0], [60.0, 60.0]]


def test_ten_thousand_bands_and_rows_are_kept_at_once():
    """Where a row holds at the present action, row, rate and band hold at once or the fallback
    acts."""
    rng = np.random.default_rng(5)
    n = 10_000
    held = rng.uniform(20, 80, (n, 2)).astype(np.float32)
    request = rng.uniform(0, 100, (n, 2)).astype(np.float32)
    anchor = held + rng.uniform(-5, 5, (n, 2)).astype(np.float32)
    band = np.stack([anchor - 10, anchor + 10], 1).astype(np.float32)
    rows = rng.normal(size=(n, 1, 2)).astype(np.float32)
    bounds = ((rows[:, 0] * held).sum(1) + rng.uniform(0, 10, n)).astype(np.float32)[:, None]

    limits = action_constraints(SPEC, [8.0, 8.0])

    def one(held, request, band, rows, bounds):
        full = Constraints(limits, {"linear": Linear(rows, bounds, jnp.zeros((1, 0)))})
        context = Context(jnp.ones(0), held, jnp.array(1.0), held, band=band)
        return filter_action(full, context, request)

    actions, report = jax.vmap(one)(*map(jnp.asarray, (held, request, band, rows, bounds)))
    fell_back = np.asarray(report.flags & Flag.FALLBACK_USED) != 0
    inside = (actions >= band[:, 0] - 1e-4) & (actions <= band[:, 1] + 1e-4)
    assert (inside.all(1) | fell_back).all()
    assert fell_back.mean() < 0.01
    assert ((rows[:, 0] * actions).sum(1) <= bounds[:, 0] + 1e-3).all()
    assert (np.abs(actions - held) <= 8.0 + 1e-4).all()
