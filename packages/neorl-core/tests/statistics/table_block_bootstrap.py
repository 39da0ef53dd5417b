import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.statistics import (
    Interval,
    block_bootstrap_interval,
    block_bootstrap_replicates,
    bootstrap_replicates,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    in_units,
    keys,
    mapped,
    reals,
    rows,
)

LENGTH, RESAMPLES = 7, 40
KEY, RAW_KEY = jax.random.key(0), np.zeros(2, np.uint32)
BLOCKS = ["stationary", "circular", "moving"]
KINDS = st.sampled_from(BLOCKS)
SERIES = in_units(rows(LENGTH, elements=st.integers(-50, 50).map(float)), low=-30, high=30, base=2)


def of_steps(series):
    """All that is drawn, so that laws can look at neighbours."""
    return series


def blocks_stay_together(series, key, *, block_length, blocks, resamples):
    numbers = np.broadcast_to(np.arange(LENGTH, dtype=np.float32), series.shape)
    options = {"blocks": blocks, "resamples": resamples, "statistic": of_steps}
    drawn = mapped(block_bootstrap_replicates, numbers, key, block_length=3, **options)
    steps = np.diff(np.asarray(drawn), axis=2)
    follows = steps == 1 if blocks == "moving" else np.isin(steps, (1, 1 - LENGTH))
    assert np.isin(drawn, np.arange(LENGTH)).all()
    if blocks != "stationary":
        inside = (np.arange(LENGTH - 1) + 1) % 3 != 0
        assert follows[:, :, inside].all()


def one_block_is_the_series(series, key, *, block_length, blocks, resamples):
    options = {"blocks": "circular", "resamples": resamples}
    means = mapped(block_bootstrap_replicates, series, key, block_length=LENGTH, **options)
    expected = np.broadcast_to(series.mean(axis=1, keepdims=True), means.shape)
    assert_close(means, expected, scale=float(np.abs(series).max()))
    options = {"blocks": "moving", "resamples": resamples, "statistic": of_steps}
    drawn = mapped(block_bootstrap_replicates, series, key, block_length=LENGTH, **options)
    assert_close(drawn, np.broadcast_to(series[:, None], drawn.shape))


def blocks_of_one_are_independent_draws(series, key, *, block_length, blocks, resamples):
    options = {"block_length": 1, "blocks": "moving", "resamples": resamples}
    assert_close(
        mapped(block_bootstrap_replicates, series, key, **options),
        mapped(bootstrap_replicates, series, key, resamples=resamples),
    )


def interval_of_the_replicates(series, key, *, block_length, blocks, level, resamples):
    replicates = block_bootstrap_replicates(
        jnp.asarray(series, jnp.float32),
        jax.random.wrap_key_data(key),
        block_length=block_length,
        blocks=blocks,
        resamples=resamples,
    )
    tails = [(1 - level) / 2, (1 + level) / 2]
    return Interval(series.mean(), *np.quantile(np.asarray(replicates, np.float64), tails))


def moves_and_stretches_with_the_series(series, key, **options):
    plain = mapped(block_bootstrap_interval, series, key, **options)
    moved = mapped(block_bootstrap_interval, 2 * series + 3, key, **options)
    assert_close(moved, Interval(*(2 * limit + 3 for limit in plain)), rtol=1e-4, atol=1e-5)


REFUSES = [
    Refusal("no array", ((), KEY), {"block_length": 1}),
    Refusal("one length", ((jnp.ones(2), jnp.ones(3)), KEY), {"block_length": 1}),
    Refusal("block_length must be 1 or more", (jnp.ones(3), KEY), {"block_length": 0}),
    Refusal("at most the 3 steps", (jnp.ones(3), KEY), {"block_length": 4}),
    Refusal("resamples", (jnp.ones(3), KEY), {"block_length": 1, "resamples": 0}),
    Refusal(
        "stationary, circular, moving", (jnp.ones(3), KEY), {"block_length": 1, "blocks": "fixed"}
    ),
]

ROWS = [
    Row(
        block_bootstrap_replicates,
        sample=st.tuples(SERIES, keys()),
        options=KINDS.map(
            lambda blocks: {"block_length": 3, "blocks": blocks, "resamples": RESAMPLES}
        ),
        oracle=None,
        laws=[blocks_stay_together, one_block_is_the_series, blocks_of_one_are_independent_draws],
        edges=[
            Edge((np.ones(1), RAW_KEY), {"block_length": 1, "blocks": blocks, "resamples": 1})
            for blocks in BLOCKS
        ],
        refuses=[Refusal("length 1", (jnp.ones(0), KEY), {"block_length": 1}), *REFUSES],
        exempt={"oracle": "laws here, and exact variances in test_block_bootstrap"},
    ),
    Row(
        block_bootstrap_interval,
        sample=st.tuples(SERIES, keys()),
        options=st.fixed_dictionaries(
            {
                "block_length": st.just(3),
                "blocks": KINDS,
                "level": reals(0.5, 0.9375).map(float),
                "resamples": st.just(RESAMPLES),
            }
        ),
        oracle=interval_of_the_replicates,
        laws=[moves_and_stretches_with_the_series],
        refuses=[
            Refusal("length 2", (jnp.ones(1), KEY), {"block_length": 1}),
            Refusal("(0, 1)", (jnp.ones(3), KEY), {"block_length": 1, "level": 0.0}),
            *REFUSES,
        ],
        differentiable=False,
        # Quantiles between neighbours of forty rounded replicates.
        rtol=1e-4,
        atol=1e-5,
    ),
]
