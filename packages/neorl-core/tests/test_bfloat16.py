"""Half-precision floats beyond what the table says: sums of many.

That nothing adds up in them and that their dtype is kept, are laws of every row (``check_form``).
"""

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import graphs, returns

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
    leaves = np.arange(1, LONG, dtype=np.int32)
    star = graphs.graph_convolution(graph(leaves, 0 * leaves))[0, 0]
    # Each leaf has degree one, the hub a thousand: 999 / sqrt(1000) + 1 / 1000.
    np.testing.assert_allclose(float(star), 999 / LONG**0.5 + 1e-3, rtol=1 / 128)
