"""Disturbances have the distribution that they state."""

import jax.numpy as jnp
import numpy as np

from neorl_envs.blocks import random_step


def test_steps_come_as_often_as_a_poisson_process_says() -> None:
    """Within a period of 6 s the chance of a step is ``1 - exp(-6 / every)``."""
    uniform = jnp.asarray((np.arange(10_000) + 0.5) / 10_000, jnp.float32)
    before, after = jnp.zeros(10_000), jnp.ones(10_000)
    for every in (1.0, 60.0, 3600.0):
        share = float(random_step(before, after, uniform, every=every, dt=6.0).mean())
        np.testing.assert_allclose(share, 1 - np.exp(-6 / every), atol=1e-4)
    assert not random_step(before, after, uniform, every=jnp.inf, dt=6.0).any()
