"""The kinds of policies that an artefact can hold: those of this package and of others."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.controllers._linear_quadratic import (
    Estimator,
    LinearQuadraticPolicy,
    SteadyTarget,
)
from neorl_agents.controllers._pid_loops import SmithPredictor, TrackingPID
from neorl_agents.controllers._predictive import Plan, PredictivePolicy, QuadraticProgram
from neorl_agents.networks import (
    ACTIVATIONS,
    MLP,
    ActingNetwork,
    BudgetedChoice,
    Encoding,
    HeaviestComponent,
    PerturbedDecoder,
    RecurrentNetwork,
    SequenceShape,
    ZeroInputs,
    activation_name,
    init_gru,
    init_sequence_network,
    network_static,
    network_template,
)
from neorl_agents.policies._combined import AveragePolicy, BudgetedPolicy, ResidualPolicy
from neorl_agents.policies._network_policy import NetworkPolicy
from neorl_agents.policies._sequence_policy import HistoryPolicy, SequencePolicy
from neorl_core import Affine, Policy, Spec
from neorl_core.control import PID, BaseStock, ConstantPolicy, StateFeedback
from neorl_core.infrastructure import Registry

# Conversion of nested dataclasses of arrays to static JSON and back.


PARTS: dict[str, type] = {
    part.__name__: part
    for part in (
        Affine,
        BaseStock,
        Estimator,
        LinearQuadraticPolicy,
        MLP,
        PID,
        Plan,
        PredictivePolicy,
        QuadraticProgram,
        SmithPredictor,
        StateFeedback,
        SteadyTarget,
        TrackingPID,
    )
}
"""The classes that a file may name; no other class is instantiated from one."""


def nested_static(tree: Any) -> dict[str, Any]:
    """Shapes, dtypes and static fields of a dataclass, and of the dataclasses in it."""
    return {field.name: _describe(getattr(tree, field.name)) for field in dataclasses.fields(tree)}


def nested_template(kind: type) -> Callable[[Spec, dict[str, Any]], Any]:
    """The function that makes a template of this class from its static part."""

    def template(spec: Spec, static: dict[str, Any]) -> Any:
        return _build(kind, static)

    return template


def _describe(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value):
        return {"part": type(value).__name__, "fields": nested_static(value)}
    if hasattr(value, "dtype"):
        return {"shape": list(np.shape(value)), "dtype": value.dtype.name}
    if isinstance(value, tuple) and any(hasattr(item, "dtype") for item in value):
        return {"tuple": [_describe(item) for item in value]}
    if callable(value):
        return {"activation": activation_name(value)}
    return {"value": list(value) if isinstance(value, tuple) else value}


def _build(kind: type, static: dict[str, Any]) -> Any:
    return kind(
        **{field.name: _build_part(static[field.name]) for field in dataclasses.fields(kind)}
    )


def _build_part(description: dict[str, Any]) -> Any:
    if "part" in description:
        return _build(PARTS[description["part"]], description["fields"])
    if "shape" in description:
        return jnp.zeros(tuple(int(n) for n in description["shape"]), description["dtype"])
    if "tuple" in description:
        return tuple(_build_part(item) for item in description["tuple"])
    if "activation" in description:
        return ACTIVATIONS.find(description["activation"])
    value = description["value"]
    return tuple(value) if isinstance(value, list) else value


class PolicyKind(NamedTuple):
    """Functions that store and restore one class of policies.

    Attributes:
        policy: Class of the policies; a subclass is another kind.
        static: Function from a policy to everything in it except arrays, as plain JSON.
        template: Function from a specification and that JSON to a policy whose arrays have the
            right shapes and dtypes; their values are ignored, and nothing is allocated.
    """

    policy: type
    static: Callable[[Any], dict[str, Any]]
    template: Callable[[Spec, dict[str, Any]], Policy]


def kind_of(policy: Policy) -> str:
    """The name of the kind of ``policy``; a ``TypeError`` if no kind has its class."""
    # The package's kinds come first, so entry points are imported only for a foreign policy.
    for name, kind in POLICY_KINDS.items():
        if type(policy) is kind.policy:
            return name
    raise TypeError(
        f"a {type(policy).__name__} cannot be stored in an artefact, which takes one of "
        f"{', '.join(kind.policy.__name__ for kind in POLICY_KINDS.values())}; add another class "
        "by an entry point in neorl.policies, or with neorl_agents.artefact.POLICY_KINDS.register"
    )


def _network_static(policy: NetworkPolicy) -> dict[str, Any]:
    return _body_static(policy.network)


def _network_template(spec: Spec, static: dict[str, Any]) -> NetworkPolicy:
    if "choice" in static:
        choice = _choice_template(static["choice"], None)
        return NetworkPolicy(*_identity_maps(spec.n_obs, choice, choice.n_action))
    if "perturbation" in static:
        perturbed = _perturbed_template(static, None)
        return NetworkPolicy(*_identity_maps(spec.n_obs, perturbed, spec.n_action))
    network = network_template(static)
    zeros = int(static.get("zeros", 0))
    obs, act = int(static["widths"][0]) - zeros, network.n_outputs
    if zeros:
        return NetworkPolicy(*_identity_maps(obs, ZeroInputs(network, zeros), act))
    if static["mixture"]:
        act = spec.n_action
        return NetworkPolicy(*_identity_maps(obs, HeaviestComponent(network, act), act))
    return NetworkPolicy(*_identity_maps(obs, network, act))


def _history_static(policy: HistoryPolicy) -> dict[str, Any]:
    shapes = {"steps": policy.steps, "obs": policy.obs.offset.shape[0], "act": len(policy.low)}
    return {**shapes, **_body_static(policy.network)}


def _history_template(spec: Spec, static: dict[str, Any]) -> HistoryPolicy:
    steps, obs, act = (int(static[name]) for name in ("steps", "obs", "act"))
    encoding = Encoding("gru", steps, obs, act)
    if "choice" in static:
        choice = _choice_template(static["choice"], encoding)
        return HistoryPolicy(*_identity_maps(obs, choice, act), steps=steps)
    if "perturbation" in static:
        return HistoryPolicy(
            *_identity_maps(obs, _perturbed_template(static, encoding), act), steps=steps
        )
    network: Any = _body_template(static, encoding)
    if static["mixture"]:
        network = HeaviestComponent(network, act)
    if static.get("zeros", 0):
        network = ZeroInputs(network, int(static["zeros"]))
    return HistoryPolicy(*_identity_maps(obs, network, act), steps=steps)


def _sequence_static(policy: SequencePolicy) -> dict[str, Any]:
    return {"shape": policy.network.shape._asdict(), "predictor": network_static(policy.predictor)}


def _sequence_template(spec: Spec, static: dict[str, Any]) -> SequencePolicy:
    shape = SequenceShape(**{name: int(n) for name, n in static["shape"].items()})
    network = init_sequence_network(shape, jax.random.key(0))
    obs_scale, _, *action_scale = _identity_maps(shape.n_obs, network, shape.n_action)
    action, low, high = action_scale
    predictor: Any = network_template(static["predictor"])
    zero, costs = jnp.zeros(()), jnp.zeros(shape.aims - 1)
    return SequencePolicy(
        obs_scale, network, predictor, action, low, high, zero, costs, zero, zero, costs
    )


def _budgeted_static(policy: BudgetedPolicy) -> dict[str, Any]:
    kind = kind_of(policy.inner)
    inner = {"kind": kind, "static": POLICY_KINDS.find(kind).static(policy.inner)}
    return {"inner": inner, "predictor": network_static(policy.predictor)}


def _budgeted_template(spec: Spec, static: dict[str, Any]) -> BudgetedPolicy:
    kind, predictor = static["inner"]["kind"], network_template(static["predictor"])
    inner: Any = POLICY_KINDS.find(kind).template(spec, static["inner"]["static"])
    horizon = jnp.zeros((), jnp.int32)
    return BudgetedPolicy(inner, predictor, jnp.zeros(len(inner.network.budget)), horizon)


def _residual_static(policy: ResidualPolicy) -> dict[str, Any]:
    base = kind_of(policy.base)
    inner = {"kind": base, "static": POLICY_KINDS.find(base).static(policy.base)}
    return {"base": inner, **network_static(policy.network)}


def _residual_template(spec: Spec, static: dict[str, Any]) -> ResidualPolicy:
    inner = static["base"]
    base = POLICY_KINDS.find(inner["kind"]).template(spec, inner["static"])
    network: Any = network_template(static)
    obs_scale, action_scale = jnp.zeros(spec.n_obs), jnp.zeros(spec.n_action)
    maps = Affine(obs_scale, obs_scale), Affine(action_scale, action_scale)
    return ResidualPolicy(base, *maps, network, action_scale, action_scale, action_scale)


def _average_static(policy: AveragePolicy) -> dict[str, Any]:
    kinds = [kind_of(member) for member in policy.members]
    return {
        "members": [
            {"kind": kind, "static": POLICY_KINDS.find(kind).static(member)}
            for kind, member in zip(kinds, policy.members, strict=True)
        ]
    }


def _average_template(spec: Spec, static: dict[str, Any]) -> AveragePolicy:
    return AveragePolicy(
        tuple(
            POLICY_KINDS.find(one["kind"]).template(spec, one["static"])
            for one in static["members"]
        )
    )


def _body_static(network: ActingNetwork) -> dict[str, Any]:
    if isinstance(network, HeaviestComponent):
        return {**_body_static(network.components), "mixture": True}
    if isinstance(network, BudgetedChoice):
        return {"choice": _choice_static(network)}
    if isinstance(network, PerturbedDecoder):
        parts = {"decoder": network.decoder, "perturbation": network.perturbation}
        return {name: _body_static(part) for name, part in parts.items()}
    if isinstance(network, ZeroInputs):
        return {**_body_static(network.network), "zeros": network.count}
    if isinstance(network, RecurrentNetwork):
        hidden = network.cell.recurrent.shape[0]
        return {"recurrent": hidden, "mixture": False, **network_static(network.head)}
    return {"recurrent": 0, "mixture": False, **network_static(network)}


def _body_template(static: dict[str, Any], encoding: Encoding | None) -> Any:
    network, hidden = network_template(static), int(static["recurrent"])
    if not hidden or encoding is None:
        return network
    cell = init_gru(encoding.step_width, hidden, jax.random.key(0))
    return RecurrentNetwork(cell, network, encoding.steps)


def _choice_static(choice: BudgetedChoice) -> dict[str, Any]:
    parts: dict[str, Any] = {"heads": _body_static(choice.heads)}
    for name in ("critics", "cost_critics"):
        stacked = getattr(choice, name)
        member = jax.tree.map(lambda leaf: leaf[0], stacked)
        parts[name] = {**_body_static(member), "members": len(jax.tree.leaves(stacked)[0])}
    return {**parts, "costs": len(choice.budget), "act": choice.n_action}


def _choice_template(static: dict[str, Any], encoding: Encoding | None) -> BudgetedChoice:
    def stacked(part: dict[str, Any]) -> Any:
        member, count = _body_template(part, encoding), int(part["members"])
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), member)

    heads, costs = _body_template(static["heads"], encoding), jnp.zeros(int(static["costs"]))
    critics, cost_critics = stacked(static["critics"]), stacked(static["cost_critics"])
    return BudgetedChoice(heads, critics, cost_critics, costs, costs, int(static["act"]))


def _perturbed_template(static: dict[str, Any], encoding: Encoding | None) -> PerturbedDecoder:
    decoder, perturbed = (
        _body_template(static[part], encoding) for part in ("decoder", "perturbation")
    )
    return PerturbedDecoder(decoder, perturbed, jnp.zeros(()))


def _identity_maps(obs: int, network: Any, act: int) -> tuple[Any, ...]:
    obs_scale, action_scale = jnp.zeros(obs), jnp.zeros(act)
    return (
        Affine(obs_scale, obs_scale),
        network,
        Affine(action_scale, action_scale),
        action_scale,
        action_scale,
    )


def _check_kind(name: str, kind: Any) -> None:
    # Checked by its parts, so that a distribution with policies need not depend on this package.
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


def _nested_kind(policy: type) -> PolicyKind:
    return PolicyKind(policy, nested_static, nested_template(policy))


POLICY_KINDS: Registry[PolicyKind] = Registry(
    "neorl.policies",
    "policy kind",
    {
        "network": PolicyKind(NetworkPolicy, _network_static, _network_template),
        "history": PolicyKind(HistoryPolicy, _history_static, _history_template),
        "pid": _nested_kind(PID),
        "constant": _nested_kind(ConstantPolicy),
        "tracking_pid": _nested_kind(TrackingPID),
        "smith_predictor": _nested_kind(SmithPredictor),
        "state_feedback": _nested_kind(StateFeedback),
        "linear_quadratic": _nested_kind(LinearQuadraticPolicy),
        "predictive": _nested_kind(PredictivePolicy),
        "base_stock": _nested_kind(BaseStock),
        "residual": PolicyKind(ResidualPolicy, _residual_static, _residual_template),
        "budgeted": PolicyKind(BudgetedPolicy, _budgeted_static, _budgeted_template),
        "sequence": PolicyKind(SequencePolicy, _sequence_static, _sequence_template),
        "average": PolicyKind(AveragePolicy, _average_static, _average_template),
    },
    _check_kind,
)
"""Every kind by the name that a file carries; other packages can add to this mapping.

A distribution adds its own through the entry points ``neorl.policies``, a script through
``POLICY_KINDS.register("mpc", PolicyKind(MPC, static, template))``. A file can be read if its kind
is known; only modules named in the entry points of installed distributions are imported.
"""


def abstract_policy(name: str, spec: Spec, static: dict[str, Any]) -> Policy:
    """The policy with shapes and dtypes in place of its arrays; nothing is allocated."""
    return eqx.filter_eval_shape(POLICY_KINDS.find(name).template, spec, static)
