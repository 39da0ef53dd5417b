"""The default optimiser, number by number."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from neorl_agents.optimisers import descend, init_optimiser
from neorl_core.testing import assert_close


def adam(parameters, state, gradient, rate):
    return descend("adam", parameters, state, gradient, rate)


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param({"b": (2,), "w": (3, 2)}, id="two leaves"),
        pytest.param({"b": (2,), "u": (32, 32), "w": (3,), "x": ()}, id="many leaves"),
        pytest.param({"b": (1,)}, id="one leaf"),
    ],
)
def test_adam_equals_the_paper_in_float64(shapes):
    rng = np.random.default_rng(0)
    parameters = {
        name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()
    }
    parameters["b"] = jnp.zeros(shapes["b"])
    state = init_optimiser("adam", parameters, 0.01)
    exact = {name: np.asarray(leaf, np.float64) for name, leaf in parameters.items()}
    m = {name: np.zeros_like(leaf) for name, leaf in exact.items()}
    v = {name: np.zeros_like(leaf) for name, leaf in exact.items()}
    step = jax.jit(adam)
    for t in range(1, 6):
        gradient = {name: np.asarray(rng.normal(size=leaf.shape)) for name, leaf in exact.items()}
        gradient["b"][0] = 0.0
        as_float32 = jax.tree.map(lambda g: jnp.asarray(g, jnp.float32), gradient)
        parameters, state = step(parameters, state, as_float32, jnp.float32(0.01))
        for name, g in gradient.items():
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.999 * v[name] + 0.001 * g**2
            corrected = (m[name] / (1 - 0.9**t)) / (np.sqrt(v[name] / (1 - 0.999**t)) + 1e-8)
            exact[name] = exact[name] - 0.01 * corrected
        assert_close(parameters, exact, rtol=1e-5)
    assert jnp.all(parameters["b"][0] == 0.0)
    assert optax.tree.get(state, "count") == 5
