import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.targets import polyak
from neorl_core.testing import Edge, Refusal, Row, mapped, reals, rows


def convex_step(target, online, *, tau):
    return {name: (1 - tau) * target[name] + tau * online[name] for name in target}


def ends_copy(target, online, *, tau):
    for end, expected in ((0.0, target), (1.0, online)):
        actual = mapped(polyak, target, online, tau=end)
        for name, array in expected.items():
            np.testing.assert_array_equal(actual[name], array)


TREES = st.tuples(*[st.fixed_dictionaries({"w": rows(2, 3), "b": rows(3)}) for _ in range(2)])

ROWS = [
    Row(
        polyak,
        sample=TREES,
        options=reals(0.0, 1.0).map(lambda tau: {"tau": float(tau)}),
        oracle=convex_step,
        laws=[ends_copy],
        edges=[Edge(({"w": np.zeros(0)}, {"w": np.zeros(0)}), {"tau": 0.5})],
        refuses=[
            Refusal(
                "a leaf of target and its leaf of online must have one shape",
                (jnp.ones(3), jnp.ones(1)),
                {"tau": 0.5},
            ),
            Refusal(
                "target must be floating point, got a leaf of type int32; leave counters and keys "
                "out",
                (jnp.arange(3), jnp.ones(3)),
                {"tau": 0.5},
            ),
            Refusal("tau must be in [0, 1]", (jnp.ones(3), jnp.ones(3)), {"tau": 1.5}),
            Refusal(
                "target and online must have one structure; only target has the leaf ['w']; give",
                ({"w": jnp.ones(3)}, {"v": jnp.ones(3)}),
                {"tau": 0.5},
            ),
            Refusal(
                "target and online must have one structure; they are of types list and tuple; give",
                ([jnp.ones(3)], (jnp.ones(3),)),
                {"tau": 0.5},
            ),
        ],
    ),
]
