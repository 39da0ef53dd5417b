import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.costs import penalised_reward
from neorl_core.losses import masked_mean
from neorl_core.targets import polyak
from neorl_core.testing import Edge, Refusal, Row, assert_close, flags, mapped, reals, rows


def mean_of_the_chosen(x, mask):
    return np.mean(x[mask]) if mask.any() else 0.0


def masked_values_are_inert(x, mask):
    spoiled = np.where(mask, x, np.nan).astype(np.float32)
    assert_close(mapped(masked_mean, spoiled, mask), mapped(masked_mean, x, mask))


def no_mask_counts_all(x, mask):
    assert_close(mapped(_unmasked, x), mapped(masked_mean, x, np.ones_like(mask)))


def nothing_counts_zero(x, mask):
    """Of no element the mean is zero, with a mask and without, in the dtype of the array."""
    for dtype in (jnp.bfloat16, jnp.float32):
        empty = jnp.zeros(0, dtype)
        for none in (None, jnp.zeros(0, bool)):
            mean = masked_mean(empty, none)
            assert (mean.shape, mean.dtype, float(mean)) == ((), dtype, 0.0)
        nothing_kept = masked_mean(jnp.full(3, jnp.nan, dtype), jnp.zeros(3, bool))
        assert (nothing_kept.dtype, float(nothing_kept)) == (dtype, 0.0)


def _unmasked(x):
    return masked_mean(x, None)


def priced_by_sum(reward, cost, penalty):
    return np.array([r - sum(p * c for p, c in zip(penalty, row, strict=True))
                     for r, row in zip(reward, cost, strict=True)])  # fmt: skip


def no_price_no_change(reward, cost, penalty):
    assert_close(mapped(penalised_reward, reward, cost, 0 * penalty), reward)


def prices_add(reward, cost, penalty):
    twice = mapped(penalised_reward, mapped(penalised_reward, reward, cost, penalty), cost, penalty)
    assert_close(twice, mapped(penalised_reward, reward, cost, 2 * penalty), scale=1e4)


def convex_step(target, online, *, rate):
    return {name: (1 - rate) * target[name] + rate * online[name] for name in target}


def ends_copy(target, online, *, rate):
    for end, expected in ((0.0, target), (1.0, online)):
        got = mapped(polyak, target, online, rate=end)
        for name, array in expected.items():
            np.testing.assert_array_equal(got[name], array)


TREES = st.tuples(*[st.fixed_dictionaries({"w": rows(2, 3), "b": rows(3)}) for _ in range(2)])
ROWS = [
    Row(
        masked_mean,
        sample=st.tuples(rows(7), flags(7)),
        oracle=mean_of_the_chosen,
        laws=[masked_values_are_inert, no_mask_counts_all, nothing_counts_zero],
        edges=[
            Edge((np.ones(7), np.zeros(7, bool))),
            Edge((np.zeros(0), np.zeros(0, bool))),
        ],
        refuses=[Refusal("got (2,) for (3,); broadcast it", (jnp.ones(3), jnp.ones(2, bool)))],
    ),
    Row(
        penalised_reward,
        sample=st.tuples(rows(7), rows(7, 2), rows(2, elements=reals(0.0, 10.0))),
        oracle=priced_by_sum,
        laws=[no_price_no_change, prices_add],
        edges=[
            Edge((np.ones(7), np.zeros((7, 0)), np.zeros(0))),
            Edge((np.zeros(0), np.zeros((0, 2)), np.ones(2))),
        ],
        refuses=[
            Refusal(
                "cost must have the shape of reward and one last axis as long as penalty, got "
                "reward (3,), cost (3, 2), penalty (4,)",
                (jnp.ones(3), jnp.ones((3, 2)), jnp.ones(4)),
            ),
            Refusal("last axis", (jnp.ones(3), jnp.ones(3), jnp.ones(()))),
            Refusal(
                "penalty must be finite and not negative",
                (jnp.ones(3), jnp.ones((3, 2)), jnp.array([1.0, -1.0])),
            ),
        ],
    ),
    Row(
        polyak,
        sample=TREES,
        options=reals(0.0, 1.0).map(lambda rate: {"rate": float(rate)}),
        oracle=convex_step,
        laws=[ends_copy],
        edges=[Edge(({"w": np.zeros(0)}, {"w": np.zeros(0)}), {"rate": 0.5})],
        refuses=[
            Refusal(
                "a leaf of target and its leaf of online must have one shape",
                (jnp.ones(3), jnp.ones(1)),
                {"rate": 0.5},
            ),
            Refusal(
                "target must be of floats, got a leaf of int32; leave counters and keys out",
                (jnp.arange(3), jnp.ones(3)),
                {"rate": 0.5},
            ),
            Refusal("rate must be in [0, 1]", (jnp.ones(3), jnp.ones(3)), {"rate": 1.5}),
        ],
    ),
]
