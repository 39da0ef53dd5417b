import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.targets import (
    categorical_td_target,
    support_mean,
    symexp,
    symlog,
    truncated_quantile_target,
    two_hot,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    flags,
    mapped,
    reals,
    rows,
    series,
    simplex,
)

DISCOUNT = st.sampled_from([0.0, 0.5, 0.9375, 1.0]).map(lambda discount: {"discount": discount})
ATOMS = 5
EVEN = np.linspace(-2, 2, ATOMS).astype(np.float32)
UNEVEN = np.asarray([-9.0, -1.0, 0.0, 0.5, 8.0], np.float32)
SUPPORT = st.sampled_from([EVEN, UNEVEN]).map(lambda points: np.stack([points] * 3))
BATCH = 4
PLACES = st.integers(-256, 256).map(lambda n: n / 64)


def two_hot_by_interpolation(x, support):
    """Hat functions: each point's weight is the interpolation of its own indicator."""
    return np.stack([np.interp(x, support, unit) for unit in np.eye(len(support))], axis=-1)


def the_mean_comes_back(x, support):
    mean = mapped(support_mean, mapped(two_hot, x, support), support)
    assert_close(mean, np.clip(x, support[:, :1], support[:, -1:]), atol=1e-5)


def sums_to_one(x, support):
    weights = np.asarray(mapped(two_hot, x, support))
    assert_close(weights.sum(axis=-1), np.ones_like(x))
    assert (weights >= 0).all()
    assert ((weights > 0).sum(axis=-1) <= 2).all()


def mean_by_dot(probability, support):
    return probability @ support


def symmetric_cancels(probability, support):
    even = (probability + probability[..., ::-1]) / 2
    far = np.stack([np.asarray([-1e6, -1e3, 0, 1e3, 1e6], np.float32)] * 3)
    assert not np.any(mapped(support_mean, even, far))


def projection_by_loops(reward, probability, terminated, support, *, discount):
    """Algorithm 1 of C51 for any increasing support: each atom's mass to its two neighbours."""
    result = np.zeros(probability.shape)
    for row, r in enumerate(reward):
        atoms = [(1.0, 0.0)] if terminated[row] else zip(probability[row], support, strict=True)
        for mass, atom in atoms:
            place = r + discount * atom
            place = min(max(place, support[0]), support[-1])
            above = int(np.searchsorted(support, place))
            if support[above] == place:
                result[row, above] += mass
            else:
                share = (place - support[above - 1]) / (support[above] - support[above - 1])
                result[row, above - 1] += mass * (1 - share)
                result[row, above] += mass * share
    return result


def keeps_the_mean_inside(reward, probability, terminated, support, *, discount):
    small = np.clip(reward, -1, 1) / 8
    options = {"discount": discount / 4}
    wide = np.stack([EVEN] * 3)
    target = mapped(categorical_td_target, small, probability, terminated, wide, **options)
    follows = np.where(terminated, 0, probability @ EVEN)
    assert_close(target @ EVEN, small + options["discount"] * follows, atol=1e-5)


def termination_hides_the_next(reward, probability, terminated, support, *, discount):
    hidden = np.where(terminated[..., None], np.float32(np.nan), probability)
    assert_close(
        mapped(categorical_td_target, reward, hidden, terminated, support, discount=discount),
        mapped(categorical_td_target, reward, probability, terminated, support, discount=discount),
        atol=1e-5,
    )


def pooled_and_sorted(reward, quantiles, terminated, *, discount, drop):
    members, _, count = quantiles.shape
    result = []
    for row, r in enumerate(reward):
        pool = sorted(z for member in quantiles[:, row] for z in member)
        kept = pool[: members * (count - drop)]
        result.append([r if terminated[row] else r + discount * z for z in kept])
    return np.reshape(result, (len(reward), members * (count - drop)))


def order_of_members_is_free(reward, quantiles, terminated, **options):
    assert_close(
        mapped(truncated_quantile_target, reward, quantiles[:, ::-1], terminated, **options),
        mapped(truncated_quantile_target, reward, quantiles, terminated, **options),
    )


def entropy_may_be_taken_first(reward, quantiles, terminated, **options):
    """A shift of all quantiles of a state is a shift of its target by the discount."""
    shifted = mapped(truncated_quantile_target, reward, quantiles + 2, terminated, **options)
    plain = mapped(truncated_quantile_target, reward, quantiles, terminated, **options)
    shift = 2 * options["discount"] * ~terminated
    assert_close(shifted - plain, np.broadcast_to(shift[..., None], plain.shape), scale=200.0)


def signed_log(x):
    return np.sign(x) * np.log1p(np.abs(x))


def signed_exp(x):
    return np.sign(x) * np.expm1(np.abs(x))


def odd_and_inverse(x):
    assert_close(mapped(symlog, -x), -mapped(symlog, x))
    assert_close(mapped(symexp, mapped(symlog, x)), x, rtol=1e-4)


def inverse_of_exp(x):
    assert_close(mapped(symlog, mapped(symexp, x)), x, rtol=1e-4)


ROWS = [
    Row(
        two_hot,
        sample=st.tuples(rows(BATCH, elements=reals(-12, 12)), SUPPORT),
        oracle=two_hot_by_interpolation,
        laws=[the_mean_comes_back, sums_to_one],
        edges=[
            Edge((EVEN[:BATCH], EVEN)),
            Edge((np.asarray([-1e30, 1e30, -9.0, 8.0]), UNEVEN)),
            Edge((np.zeros(0), EVEN)),
        ],
        refuses=[
            Refusal("support must be one axis of two points", (jnp.ones(2), jnp.ones(1))),
            Refusal("support must be one axis of two points", (jnp.ones(2), jnp.ones((2, 2)))),
        ],
    ),
    Row(
        support_mean,
        sample=st.tuples(simplex(BATCH, ATOMS), SUPPORT),
        oracle=mean_by_dot,
        laws=[symmetric_cancels],
        edges=[Edge((np.eye(ATOMS), UNEVEN)), Edge((np.zeros((0, ATOMS)), EVEN))],
        refuses=[Refusal("5 points of support", (jnp.ones((2, 4)), EVEN))],
    ),
    Row(
        categorical_td_target,
        sample=st.tuples(
            rows(BATCH, elements=PLACES), simplex(BATCH, ATOMS), flags(BATCH), SUPPORT
        ),
        options=DISCOUNT,
        oracle=projection_by_loops,
        laws=[keeps_the_mean_inside, termination_hides_the_next],
        edges=[
            Edge(
                (EVEN[:BATCH], np.eye(ATOMS)[:BATCH], np.zeros(BATCH, bool), EVEN),
                {"discount": 0.0},
            ),
            Edge(
                (np.full(BATCH, 1e6), np.eye(ATOMS)[:BATCH], np.ones(BATCH, bool), UNEVEN),
                {"discount": 1.0},
            ),
            Edge((np.zeros(0), np.zeros((0, ATOMS)), np.zeros(0, bool), EVEN), {"discount": 1.0}),
        ],
        refuses=[
            Refusal(
                "5 points of support",
                (jnp.ones(2), jnp.ones((2, 4)), jnp.zeros(2, bool), EVEN),
                {"discount": 0.5},
            ),
            Refusal(
                "put the atoms last",
                (jnp.ones(2), jnp.ones((3, 5)), jnp.zeros(2, bool), EVEN),
                {"discount": 0.5},
            ),
            Refusal(
                "discount must be in [0, 1]",
                (jnp.ones(2), jnp.ones((2, 5)), jnp.zeros(2, bool), EVEN),
                {"discount": 1.5},
            ),
        ],
        atol=1e-5,
    ),
    Row(
        truncated_quantile_target,
        sample=st.tuples(rows(BATCH), rows(2, BATCH, 3), flags(BATCH)),
        options=st.fixed_dictionaries({"discount": reals(0, 1), "drop": st.sampled_from([0, 2])}),
        oracle=pooled_and_sorted,
        laws=[order_of_members_is_free, entropy_may_be_taken_first],
        edges=[
            Edge(
                (np.zeros(BATCH), np.zeros((2, BATCH, 3)), np.zeros(BATCH, bool)),
                {"discount": 1.0, "drop": 1},
            ),
            Edge(
                (np.zeros(0), np.zeros((2, 0, 3)), np.zeros(0, bool)), {"discount": 1.0, "drop": 0}
            ),
        ],
        refuses=[
            Refusal(
                "drop must be less than the number of quantiles",
                (jnp.ones(2), jnp.ones((2, 2, 3)), jnp.zeros(2, bool)),
                {"discount": 0.5, "drop": 3},
            ),
            Refusal(
                "drop must be 0 or more",
                (jnp.ones(2), jnp.ones((2, 2, 3)), jnp.zeros(2, bool)),
                {"discount": 0.5, "drop": -1},
            ),
            Refusal(
                "axis of members",
                (jnp.ones(2), jnp.ones((2, 3)), jnp.zeros(2, bool)),
                {"discount": 0.5, "drop": 0},
            ),
        ],
    ),
    Row(
        symlog,
        sample=series(1),
        oracle=signed_log,
        laws=[odd_and_inverse],
        edges=[Edge((np.asarray([0.0, 1e30, -1e30, 1e-30]),)), Edge((np.zeros(0),))],
    ),
    Row(
        symexp,
        sample=series(1, elements=reals(-20, 20)),
        oracle=signed_exp,
        laws=[inverse_of_exp],
        edges=[Edge((np.asarray([0.0, 80.0, -80.0]),)), Edge((np.zeros(0),))],
    ),
]
