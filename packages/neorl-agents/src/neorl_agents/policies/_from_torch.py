"""Policies trained elsewhere: the layers of a PyTorch actor as a network policy."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neorl_agents.networks import ACTIVATIONS, MLP
from neorl_agents.policies._network_policy import NetworkPolicy
from neorl_core import Affine, InputError, Spec, highs, lows, unit_interval

WEIGHT, BIAS = ".weight", ".bias"


def policy_from_torch(
    spec: Spec,
    state: Mapping[str, Any],
    *,
    layers: Sequence[str] = (),
    mean: Float[np.ndarray, " obs"] | None = None,
    std: Float[np.ndarray, " obs"] | None = None,
    activation: str = "relu",
    output: str = "tanh",
) -> NetworkPolicy:
    """The policy of a linear-layer actor that PyTorch trained, such as one of CORL or d3rlpy.

    ``action = clip(to_physical(output(W_n a(... a(W_1 (obs - mean) / std + b_1)) + b_n)))``, where
    1 and -1 are the ends of every action channel. An actor with twice as many outputs as actions
    predicts means and standard deviations; the means are used.

    Args:
        spec: Channels of the plant, in the order of the actor's inputs and outputs.
        state: ``actor.state_dict()``: tensors on the host or arrays by name; PyTorch itself is not
            needed.
        layers: Names of the linear layers in the order of the forward pass, such as
            ``("trunk.0", "trunk.2", "mu")``; by default all of them, in the order of ``state``.
        mean: Mean subtracted from the observations in training; zero by default.
        std: Divisor of the observations in training; one by default.
        activation: Function between the layers, a name in ``ACTIVATIONS``.
        output: Function after the last layer; ``"tanh"`` if the actor was squashed.

    Returns:
        A policy in physical units, without memory.

    Raises:
        InputError: If a layer does not exist, if ``state`` contains other than linear layers and
            ``layers`` is not given, or if widths do not match each other or the channels.

    Example:
        >>> from neorl_core import Channel
        >>> level, valve = Channel("level", "m", 0, 2), Channel("valve", "%", 0, 100)
        >>> spec = Spec((level,), (valve,), (), 1.0, 9)
        >>> state = {"net.0.weight": [[1.0], [-1.0]], "net.0.bias": [0.0, 0.0],
        ...          "net.2.weight": [[0.5, 0.5]], "net.2.bias": [0.0]}
        >>> policy = policy_from_torch(spec, state, mean=np.array([1.0]))
        >>> float(policy((), jnp.array([1.0]))[1][0])
        50.0
    """
    names = list(layers) or _linear_layers(state)
    weights, biases = zip(*(_layer(state, name) for name in names), strict=True)
    widths = [len(spec.obs), *(len(bias) for bias in biases)]
    for name, weight, inputs in zip(names, weights, widths, strict=False):
        if weight.shape[0] != inputs:
            raise InputError(
                f"the layer {name!r} takes {weight.shape[0]} inputs, but the layer before it (or "
                f"the observation) has {inputs} outputs; name the layers in their order, and check "
                "the channels"
            )
    count = len(spec.action)
    if widths[-1] not in (count, 2 * count):
        raise InputError(
            f"the last layer {names[-1]!r} must have {count} outputs, one for every action, or "
            f"{2 * count}, for means and deviations, got {widths[-1]}"
        )
    network = MLP(
        tuple(map(jnp.asarray, weights)),
        tuple(map(jnp.asarray, biases)),
        activation=ACTIVATIONS.find(activation),
        output=ACTIVATIONS.find(output),
    )
    return NetworkPolicy(
        obs=Affine(_numbers("mean", mean, spec, 0.0), _numbers("std", std, spec, 1.0)),
        network=network.first_outputs(count),
        action=unit_interval(spec.action),
        low=jnp.asarray(lows(spec.action), jnp.float32),
        high=jnp.asarray(highs(spec.action), jnp.float32),
    )


def _linear_layers(state: Mapping[str, Any]) -> list[str]:
    names = [name.removesuffix(WEIGHT) for name in state if name.endswith(WEIGHT)]
    linear = [name for name in names if np.ndim(state[name + WEIGHT]) == 2]
    linear_entries = {name + part for name in linear for part in (WEIGHT, BIAS)}
    others = [name for name in state if name not in linear_entries]
    if not linear:
        holds = f"it has {', '.join(map(repr, others[:4]))}" if others else "it is empty"
        raise InputError(
            "the state must have linear layers with entries NAME.weight and NAME.bias, but "
            f"{holds}; give the state_dict() of the actor alone, such as checkpoint['actor']"
        )
    if others:
        raise InputError(
            f"the state has entries that do not belong to a linear layer: "
            f"{', '.join(map(repr, others[:4]))}; name the layers that compute the action with "
            f"layers=, from {', '.join(map(repr, linear))}"
        )
    return linear


def _layer(state: Mapping[str, Any], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Weight, shape ``(in, out)``, and bias, shape ``(out,)``, of one layer."""
    missing = [name + part for part in (WEIGHT, BIAS) if name + part not in state]
    if missing:
        raise InputError(f"the state has no {missing[0]!r}; it has {', '.join(map(repr, state))}")
    weight, bias = (np.asarray(state[name + part], np.float32) for part in (WEIGHT, BIAS))
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise InputError(
            f"the weight and bias of the linear layer {name!r} must have the shapes (out, in) and "
            f"(out,), got {weight.shape} and {bias.shape}"
        )
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise InputError(f"weight and bias of the layer {name!r} must be finite, but some are not")
    return weight.T, bias


def _numbers(name: str, source: Any, spec: Spec, default: float) -> Any:
    values = np.full(len(spec.obs), default) if source is None else np.asarray(source)
    if values.shape != (len(spec.obs),) or not np.isfinite(values).all():
        raise InputError(
            f"{name} must be one finite number for each of the {len(spec.obs)} observations, got "
            f"shape {values.shape}"
        )
    if name == "std" and (values <= 0).any():
        raise InputError(
            "std must be positive for every observation; give 1 for a constant channel"
        )
    return jnp.asarray(values, jnp.float32)
