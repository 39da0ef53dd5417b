"""How far a learner looks back and ahead: its fields for it, and what follows from them."""

from typing import Any

from neorl_agents.algorithms._hyperparameters import require_choice, require_count
from neorl_agents.networks import ENCODERS, Encoding
from neorl_agents.sampling import Histories, NSteps, Rows, Sampler
from neorl_core import Spec


def encoding_of(learner: Any, spec: Spec) -> Encoding:
    """The form in which observations reach the networks of a learner.

    Args:
        learner: With the fields ``encoder`` and ``history_steps``.
        spec: Channels of the plant.

    Returns:
        Static description, for ``neorl_agents.networks.init_network`` and ``init_critics``; its
        ``window`` is that of ``neorl_agents.policies.init_scaling``.
    """
    return Encoding(learner.encoder, learner.history_steps, spec.n_obs, spec.n_action)


def require_encoder(learner: Any) -> None:
    """Refuses an unknown ``encoder``, or ``history_steps`` below one.

    Raises:
        ValueError: Naming the field.
    """
    require_choice(learner, "encoder", ENCODERS)
    require_count(learner, "history_steps")


def with_history(learner: Any, rows: Sampler) -> Sampler:
    """The sampler of a learner that would draw ``rows`` without memory."""
    return rows if learner.encoder == "none" else Histories(rows, learner.history_steps)


def steps_ahead(learner: Any) -> Sampler:
    """Rows, over ``n_step`` steps each where that is more than one."""
    return NSteps(learner.n_step, learner.discount) if learner.n_step > 1 else Rows()


def fields_read(learner: Any, *fields: str) -> tuple[str, ...]:
    """``fields``, and for several steps, back or ahead, those that say where episodes end."""
    if learner.encoder == "none" and getattr(learner, "n_step", 1) == 1:
        return fields
    return (*fields, *(name for name in ("terminated", "truncated") if name not in fields))
