"""An actor that PyTorch trained acts as it did there."""

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import load_policy, save_policy
from neorl_agents.policies import policy_from_torch
from neorl_core import Channel, InputError, Spec

SPEC = Spec(
    obs=(Channel("level", "m", 0.0, 2.0), Channel("flow", "l/s", 0.0, 9.0)),
    action=(Channel("valve", "%", 0.0, 100.0), Channel("heat", "kW", -5.0, 15.0)),
    cost=(),
    dt=1.0,
    horizon=10,
)
MEAN, STD = np.array([1.0, 4.0]), np.array([0.5, 2.0])


def state(*widths, names=("net.0", "net.2", "net.4"), seed=0):
    """Weights as ``torch.nn.Linear`` keeps them: ``(out, in)``."""
    draw = np.random.default_rng(seed)
    tensors = {}
    for name, before, after in zip(names, widths, widths[1:], strict=False):
        tensors[f"{name}.weight"] = draw.normal(size=(after, before)).astype(np.float32)
        tensors[f"{name}.bias"] = draw.normal(size=after).astype(np.float32)
    return tensors


def acted(tensors, names, obs, count=2):
    """The definition of ``torch.nn.Linear``, ReLU and tanh, in float64."""
    x = (obs - MEAN) / STD
    for i, name in enumerate(names):
        x = tensors[f"{name}.weight"].astype(float) @ x + tensors[f"{name}.bias"]
        x = np.maximum(x, 0) if i < len(names) - 1 else np.tanh(x[:count])
    low, high = np.array([0.0, -5.0]), np.array([100.0, 15.0])
    return low + (x + 1) / 2 * (high - low)


@pytest.mark.parametrize("outputs", [2, 4], ids=["actions", "means and deviations"])
def test_it_acts_as_the_formula_of_its_layers(outputs):
    tensors = state(2, 16, 8, outputs)
    policy = policy_from_torch(SPEC, tensors, mean=MEAN, std=STD)
    for obs in np.random.default_rng(1).uniform((0, 0), (2, 9), size=(20, 2)):
        _, action = policy((), jnp.asarray(obs, jnp.float32))
        expected = acted(tensors, ("net.0", "net.2", "net.4"), obs)
        np.testing.assert_allclose(action, expected, rtol=1e-4, atol=1e-4)


def test_named_layers_are_taken_in_their_order():
    names = ("trunk.0", "trunk.2", "mu")
    tensors = dict(reversed(state(2, 16, 8, 2, names=names).items()))
    tensors |= {"log_sigma.weight": np.zeros((2, 8)), "log_sigma.bias": np.zeros(2)}
    policy = policy_from_torch(SPEC, tensors, layers=names, mean=MEAN, std=STD)
    obs = np.array([0.3, 7.0])
    _, action = policy((), jnp.asarray(obs, jnp.float32))
    np.testing.assert_allclose(action, acted(tensors, names, obs), rtol=1e-4, atol=1e-4)


def test_it_is_stored_and_read_like_every_policy(tmp_path):
    policy = policy_from_torch(SPEC, state(2, 8, 2), mean=MEAN, std=STD)
    path = tmp_path / "actor.safetensors"
    obs = jnp.array([1.2, 3.0])
    save_policy(path, policy, SPEC, jnp.tile(obs, (32, 1)))
    assert np.array_equal(load_policy(path).policy((), obs)[1], policy((), obs)[1])


REFUSED = {
    "a further tensor": (state(2, 8, 2) | {"log_std": np.zeros(2)}, {}, "'log_std'.*layers="),
    "a normalisation": (state(2, 8, 2) | {"norm.weight": np.ones(8)}, {}, "'norm.weight'.*layers="),
    "nothing": ({}, {}, "must have linear layers .* but it is empty"),
    "a checkpoint": (
        {"actor": state(2, 8, 2), "qf": {}},
        {},
        r"has 'actor', 'qf'; give the state_dict\(\) of the actor alone",
    ),
    "no such layer": (state(2, 8, 2), {"layers": ["mu"]}, "no 'mu.weight'; it has 'net.0.weight'"),
    "another order": (
        state(2, 8, 2),
        {"layers": ["net.2", "net.0"]},
        "takes 8 inputs, but the layer before it",
    ),
    "other observations": (state(3, 8, 2), {}, "takes 3 inputs, but the layer before it"),
    "other actions": (state(2, 8, 3), {}, "must have 2 outputs, .* got 3"),
    "a convolution": (
        {"c.weight": np.ones((2, 2, 1)), "c.bias": np.ones(2)},
        {"layers": ["c"]},
        "must have the shapes",
    ),
    "not a number": ({"a.weight": [[np.nan] * 2] * 2, "a.bias": [0, 0]}, {}, "must be finite"),
    "a short mean": (
        state(2, 2),
        {"mean": [0.0]},
        "mean must be one finite number",
    ),
    "no deviation": (state(2, 2), {"std": [1.0, 0.0]}, "std must be positive"),
    "an activation": (state(2, 2), {"activation": "rellu"}, "did you mean 'relu'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_such_actor_is_refused_in_one_line(case):
    tensors, options, message = REFUSED[case]
    with pytest.raises(InputError, match=message) as error:
        policy_from_torch(SPEC, tensors, **options)
    assert "\n" not in str(error.value)
