"""Half-precision floats beyond what the table says: sums of many, moments, hyperparameters.

That nothing adds up in them and that their dtype is kept, are laws of every row (``check_form``).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import graphs, returns, statistics

LONG = 1000


@pytest.mark.nightly
def test_ones_are_summed_beyond_256():
    """By hand, not by the same program in another dtype."""
    ones = jnp.ones(LONG, jnp.bfloat16)

    def graph(senders, receivers):
        return graphs.pad_graph(
            ones[:, None], senders, receivers, node_count=LONG + 3, edge_count=LONG + 200
        )

    sums = returns.discounted_returns(ones, discount=0.99)
    np.testing.assert_allclose(float(sums[0]), (1 - 0.99**LONG) / 0.01, rtol=1 / 256)
    assert graphs.pool_nodes(graph([], []), reduction="mean").tolist() == [1.0]
    leaves = np.arange(1, LONG, dtype=np.int32)
    star = graphs.graph_convolution(graph(leaves, 0 * leaves))[0, 0]
    # Each leaf has degree one, the hub a thousand: 999 / sqrt(1000) + 1 / 1000.
    np.testing.assert_allclose(float(star), 999 / LONG**0.5 + 1e-3, rtol=1 / 128)


def test_moments_count_in_float32_and_refuse_less():
    ones = jnp.ones((LONG, 2), jnp.bfloat16)
    moments = statistics.sample_moments(ones)
    assert {leaf.dtype for leaf in moments} == {jnp.dtype("float32")}
    assert moments.count.tolist() == [LONG, LONG]
    more = statistics.update_moments(moments, ones[0])
    assert more.count.tolist() == [LONG + 1, LONG + 1]
    short = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), moments)
    for call in (
        lambda: statistics.update_moments(short, ones[0]),
        lambda: statistics.merge_moments(moments, short),
        lambda: statistics.merge_moments(short, moments),
        lambda: statistics.empty_moments((2,), jnp.bfloat16),
    ):
        with pytest.raises(ValueError, match="got bfloat16, which cannot count beyond 256"):
            call()
