"""The kinds of policies that an artefact can hold."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from neorl_agents.networks._mlp import ACTIVATIONS, MLP
from neorl_agents.policies._network_policy import NetworkPolicy
from neorl_core import Affine, Policy, Spec
from neorl_core.control import PID, ConstantPolicy


class Kind(NamedTuple):
    """How one class of policies is taken apart and put together.

    Attributes:
        policy: The class.
        static: What is not an array in a policy, as JSON.
        template: A policy of the shapes that a specification and that JSON imply.
    """

    policy: type
    static: Callable[[Any], dict[str, Any]]
    template: Callable[[Spec, dict[str, Any]], Policy]


def kind_of(policy: Policy) -> str:
    """The name of the kind of ``policy``.

    Raises:
        TypeError: If no kind has its class.
    """
    for name, kind in KINDS.items():
        if type(policy) is kind.policy:
            return name
    known = ", ".join(kind.policy.__name__ for kind in KINDS.values())
    raise TypeError(f"a {type(policy).__name__} cannot be stored; an artefact holds {known}")


def _network_static(policy: NetworkPolicy) -> dict[str, Any]:
    network = policy.network
    return {
        "widths": [network.weights[0].shape[0], *(bias.shape[0] for bias in network.biases)],
        "activation": _activation_name(network.activation),
        "output": _activation_name(network.output),
    }


def _network_template(spec: Spec, static: dict[str, Any]) -> NetworkPolicy:
    widths = [int(width) for width in static["widths"]]
    obs, act = jnp.zeros(widths[0]), jnp.zeros(widths[-1])
    network = MLP(
        tuple(jnp.zeros(shape) for shape in pairwise(widths)),
        tuple(jnp.zeros(width) for width in widths[1:]),
        activation=ACTIVATIONS[static["activation"]],
        output=ACTIVATIONS[static["output"]],
    )
    return NetworkPolicy(Affine(obs, obs), network, Affine(act, act), act, act)


def _activation_name(activation: Any) -> str:
    for name, known in ACTIVATIONS.items():
        if known is activation:
            return name
    raise ValueError(
        f"activation {activation!r} cannot be stored by name; use one of {', '.join(ACTIVATIONS)}"
    )


def _pid_static(policy: PID) -> dict[str, Any]:
    return {
        "measured": list(policy.measured),
        "override_output": list(policy.override_output),
        "override_measured": list(policy.override_measured),
    }


def _pid_template(spec: Spec, static: dict[str, Any]) -> PID:
    measured, output, below = (
        tuple(int(i) for i in static[name])
        for name in ("measured", "override_output", "override_measured")
    )
    loop, override = jnp.zeros(len(measured)), jnp.zeros(len(output))
    return PID(
        kp=loop,
        ki=loop,
        kd=loop,
        tau=loop,
        setpoint=loop,
        bias=loop,
        low=loop,
        high=loop,
        dt=jnp.zeros(()),
        override_below=override,
        override_cap=override,
        measured=measured,
        override_output=output,
        override_measured=below,
    )


def _constant_static(policy: ConstantPolicy) -> dict[str, Any]:
    return {}


def _constant_template(spec: Spec, static: dict[str, Any]) -> ConstantPolicy:
    return ConstantPolicy(jnp.zeros(spec.n_action))


KINDS: dict[str, Kind] = {
    "network": Kind(NetworkPolicy, _network_static, _network_template),
    "pid": Kind(PID, _pid_static, _pid_template),
    "constant": Kind(ConstantPolicy, _constant_static, _constant_template),
}
"""Every kind by the name that a file carries. Adding an entry adds its tests."""


def abstract_policy(name: str, spec: Spec, static: dict[str, Any]) -> Policy:
    """The policy with shapes and dtypes in place of its arrays; nothing is allocated."""
    return eqx.filter_eval_shape(KINDS[name].template, spec, static)
