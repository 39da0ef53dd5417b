"""The kinds of policies that an artefact can hold: those of the package, and those of others."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from neorl_agents.artefact._nested_kinds import nested_static, nested_template
from neorl_agents.controllers._linear_quadratic import LinearQuadraticPolicy
from neorl_agents.controllers._predictive import PredictivePolicy
from neorl_agents.controllers._smith_predictor import SmithPredictor
from neorl_agents.controllers._tracking_pid import TrackingPID
from neorl_agents.networks import (
    ACTIVATIONS,
    MLP,
    ActingNetwork,
    Encoding,
    HeaviestComponent,
    RecurrentNetwork,
    init_gru,
)
from neorl_agents.policies._history_policy import HistoryPolicy
from neorl_agents.policies._network_policy import NetworkPolicy
from neorl_core import Affine, Policy, Spec
from neorl_core.control import PID, BaseStock, ConstantPolicy, StateFeedback
from neorl_core.infrastructure import Registry


class PolicyKind(NamedTuple):
    """How one class of policies is taken apart and put together.

    Attributes:
        policy: Class of the policies; a subclass is another kind.
        static: Function from a policy to what is not an array in it, as plain JSON.
        template: Function from a specification and that JSON to a policy whose arrays have the
            right shapes and dtypes; their values are not looked at, and nothing is allocated.
    """

    policy: type
    static: Callable[[Any], dict[str, Any]]
    template: Callable[[Spec, dict[str, Any]], Policy]


def kind_of(policy: Policy) -> str:
    """The name of the kind of ``policy``.

    Raises:
        TypeError: If no kind has its class.
    """
    # The package's kinds come first, so entry points are imported only for a foreign policy.
    for name, kind in POLICY_KINDS.items():
        if type(policy) is kind.policy:
            return name
    raise TypeError(
        f"a {type(policy).__name__} cannot be stored; an artefact holds "
        f"{', '.join(kind.policy.__name__ for kind in POLICY_KINDS.values())}; another class is "
        "added with neorl_agents.artefact.POLICY_KINDS.register"
    )


def _network_static(policy: NetworkPolicy) -> dict[str, Any]:
    return _body_static(policy.network)


def _network_template(spec: Spec, static: dict[str, Any]) -> NetworkPolicy:
    network = _mlp_template(static)
    obs, act = network.weights[0].shape[0], network.weights[-1].shape[1]
    if static["mixture"]:
        act = spec.n_action
        return NetworkPolicy(*_between(obs, HeaviestComponent(network, act), act))
    return NetworkPolicy(*_between(obs, network, act))


def _history_static(policy: HistoryPolicy) -> dict[str, Any]:
    shapes = {"steps": policy.steps, "obs": policy.obs.offset.shape[0], "act": len(policy.low)}
    return {**shapes, **_body_static(policy.network)}


def _history_template(spec: Spec, static: dict[str, Any]) -> HistoryPolicy:
    steps, obs, act, hidden = (int(static[name]) for name in ("steps", "obs", "act", "recurrent"))
    network: Any = _mlp_template(static)
    if hidden:
        encoding = Encoding("gru", steps, obs, act)
        cell = init_gru(encoding.step_width, hidden, jax.random.key(0))
        network = RecurrentNetwork(cell, network, steps)
    if static["mixture"]:
        network = HeaviestComponent(network, act)
    return HistoryPolicy(*_between(obs, network, act), steps=steps)


def _body_static(network: ActingNetwork) -> dict[str, Any]:
    if isinstance(network, HeaviestComponent):
        return {**_body_static(network.components), "mixture": True}
    if isinstance(network, RecurrentNetwork):
        hidden = network.cell.recurrent.shape[0]
        return {"recurrent": hidden, "mixture": False, **_mlp_static(network.head)}
    return {"recurrent": 0, "mixture": False, **_mlp_static(network)}


def _between(obs: int, network: Any, act: int) -> tuple[Any, ...]:
    seen, given = jnp.zeros(obs), jnp.zeros(act)
    return Affine(seen, seen), network, Affine(given, given), given, given


def _mlp_static(network: MLP) -> dict[str, Any]:
    return {
        "widths": [network.weights[0].shape[0], *(bias.shape[0] for bias in network.biases)],
        "activation": activation_name(network.activation),
        "output": activation_name(network.output),
        "layer_norm": bool(network.gains),
    }


def _mlp_template(static: dict[str, Any]) -> MLP:
    widths = [int(width) for width in static["widths"]]
    hidden = widths[1:-1] if static["layer_norm"] else []
    return MLP(
        tuple(jnp.zeros(shape) for shape in pairwise(widths)),
        tuple(jnp.zeros(width) for width in widths[1:]),
        activation=ACTIVATIONS.find(static["activation"]),
        output=ACTIVATIONS.find(static["output"]),
        gains=tuple(jnp.zeros(width) for width in hidden),
        shifts=tuple(jnp.zeros(width) for width in hidden),
    )


def activation_name(activation: Any) -> str:
    """The name by which a file says an activation.

    Raises:
        ValueError: If it has none.
    """
    for name, entry in ACTIVATIONS.items():
        if entry is activation:
            return name
    raise ValueError(
        f"activation {activation!r} cannot be stored by name; use one of {', '.join(ACTIVATIONS)}, "
        "or give it a name with neorl_agents.networks.ACTIVATIONS.register"
    )


def _check_kind(name: str, kind: Any) -> None:
    # By its parts: a distribution that brings policies need not depend on this package.
    if not all(hasattr(kind, part) for part in PolicyKind._fields):
        raise TypeError(f"expected a neorl_agents.artefact.PolicyKind, got a {type(kind).__name__}")
    missing = [
        part for part in ("initial_carry", "__call__", "sent") if not hasattr(kind.policy, part)
    ]
    if not isinstance(kind.policy, type) or missing:
        raise TypeError(
            f"its policy must be a class with the methods of a Policy, got {kind.policy!r}"
        )
    if not callable(kind.static) or not callable(kind.template):
        raise TypeError("its static and its template must be functions")


def _nested(policy: type) -> PolicyKind:
    return PolicyKind(policy, nested_static, nested_template(policy))


POLICY_KINDS: Registry[PolicyKind] = Registry(
    "neorl.policies",
    "policy kind",
    {
        "network": PolicyKind(NetworkPolicy, _network_static, _network_template),
        "history": PolicyKind(HistoryPolicy, _history_static, _history_template),
        "pid": _nested(PID),
        "constant": _nested(ConstantPolicy),
        "tracking_pid": _nested(TrackingPID),
        "smith_predictor": _nested(SmithPredictor),
        "state_feedback": _nested(StateFeedback),
        "linear_quadratic": _nested(LinearQuadraticPolicy),
        "predictive": _nested(PredictivePolicy),
        "base_stock": _nested(BaseStock),
    },
    _check_kind,
)
"""Every kind by the name that a file carries; a mapping that others add to.

A distribution adds its own by the entry points ``neorl.policies``, a script by
``POLICY_KINDS.register("mpc", PolicyKind(MPC, static, template))``. A file is read where its kind
is known; nothing is imported but what an installed distribution names in its entry points.
"""


def abstract_policy(name: str, spec: Spec, static: dict[str, Any]) -> Policy:
    """The policy with shapes and dtypes in place of its arrays; nothing is allocated."""
    return eqx.filter_eval_shape(POLICY_KINDS.find(name).template, spec, static)
