"""The outputs of a network as the parameters of a mixture."""

import jax.numpy as jnp
import numpy as np

from neorl_agents.networks import mixture_outputs, mixture_parameters


def test_outputs_are_weights_then_means_then_log_deviations() -> None:
    count, n_action = 3, 2
    outputs = np.random.default_rng(0).normal(size=(4, mixture_outputs(count, n_action)))
    weights, mean, log_std = mixture_parameters(
        lambda obs: obs, jnp.asarray(outputs, jnp.float32), n_action, (-0.5, 0.5)
    )
    np.testing.assert_allclose(weights, outputs[:, :3], rtol=1e-6)
    np.testing.assert_allclose(mean, np.tanh(outputs[:, 3:9]).reshape(4, 3, 2), atol=1e-6)
    expected = np.clip(outputs[:, 9:], -0.5, 0.5).reshape(4, 3, 2)
    np.testing.assert_allclose(log_std, expected, rtol=1e-6)
