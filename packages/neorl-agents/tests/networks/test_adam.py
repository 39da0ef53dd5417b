"""Adam."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.networks._adam import adam, init_adam
from neorl_core.testing import assert_close


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param({"b": (2,), "w": (3, 2)}, id="small leaves"),
        pytest.param({"b": (2,), "u": (32, 32), "v": (41, 25), "w": (3,), "x": ()}, id="both"),
        pytest.param({"b": (40, 30), "w": (50, 30)}, id="large leaves"),
        pytest.param({"b": (1,)}, id="one leaf"),
    ],
)
def test_adam_equals_the_paper_in_float64(shapes):
    rng = np.random.default_rng(0)
    parameters = {
        name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()
    }
    parameters["b"] = jnp.zeros(shapes["b"])
    moments = init_adam(parameters)
    exact = {name: np.asarray(leaf, np.float64) for name, leaf in parameters.items()}
    m = {name: np.zeros_like(leaf) for name, leaf in exact.items()}
    v = {name: np.zeros_like(leaf) for name, leaf in exact.items()}
    step = jax.jit(adam)
    for t in range(1, 6):
        gradient = {name: np.asarray(rng.normal(size=leaf.shape)) for name, leaf in exact.items()}
        gradient["b"][0] = 0.0
        as_float32 = jax.tree.map(lambda g: jnp.asarray(g, jnp.float32), gradient)
        parameters, moments = step(parameters, moments, as_float32, jnp.float32(0.01))
        for name, g in gradient.items():
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.999 * v[name] + 0.001 * g**2
            corrected = (m[name] / (1 - 0.9**t)) / (np.sqrt(v[name] / (1 - 0.999**t)) + 1e-8)
            exact[name] = exact[name] - 0.01 * corrected
        assert_close(parameters, exact, rtol=1e-5)
    assert jnp.all(parameters["b"][0] == 0.0)
    assert moments.step == 5
