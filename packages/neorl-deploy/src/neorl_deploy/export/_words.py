"""What a manifest says in words for people: what the controllers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neorl_agents import PolicyArtefact


def policy_words(artefact: PolicyArtefact) -> str:
    """What a policy does, as far as its kind can be said in one sentence.

    Args:
        artefact: The policy with its channels.

    Returns:
        For a constant the action that it holds, for a PID its loops; empty for other kinds.
    """
    spec = artefact.spec
    policy: Any = artefact.policy  # of the class of its kind
    if artefact.kind == "constant":
        held = zip(spec.action, policy.action, strict=True)
        values = ", ".join(f"{c.name} {_number(value)} {c.unit}" for c, value in held)
        return f"always {values}"
    if artefact.kind == "pid":
        loops = [
            f"{spec.action[i].name} holds {spec.obs[j].name} at {_number(setpoint)} "
            f"{spec.obs[j].unit}"
            for i, (j, setpoint) in enumerate(zip(policy.measured, policy.setpoint, strict=True))
        ]
        return "; ".join(loops)
    return ""


def _number(value: Any) -> str:
    return f"{float(value):g}"
