"""What a manifest says in words for people: the limits, and what the controllers do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neorl_agents import PolicyArtefact
    from neorl_safety.constraints import ActionConstraints


def constraint_words(constraints: ActionConstraints) -> list[str]:
    """One sentence for every limit of every channel, with its unit.

    Args:
        constraints: The hard limits of the action.

    Returns:
        Such as ``"feed between 0 and 30000 kg/h"``.
    """
    return list(_limits(constraints))


def _limits(c: ActionConstraints) -> Iterator[str]:
    for i, (name, unit) in enumerate(zip(c.names, c.units, strict=True)):
        yield f"{name} between {_number(c.low[i])} and {_number(c.high[i])} {unit}"
        directions = ("rises", c.rate_up[i]), ("falls", c.rate_down[i])
        limited = [
            f"{verb} by at most {_number(rate)} {unit} per second"
            for verb, rate in directions
            if np.isfinite(rate)
        ]
        yield f"{name} {' and '.join(limited) or 'may change at any rate'}"


def policy_words(artefact: PolicyArtefact) -> str:
    """What a policy does, as far as its kind can be said in one sentence.

    Args:
        artefact: The policy with its channels.

    Returns:
        For a constant the action that it holds, for a PID its loops; empty for other kinds.
    """
    policy, spec = artefact.policy, artefact.spec
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


def _number(value: float) -> str:
    return f"{float(value):g}"
