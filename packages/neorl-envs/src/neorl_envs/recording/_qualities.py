"""Qualities of logs: which controllers act, and how operators intervene."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from neorl_core import Policy, highs, lows
from neorl_core.control import UniformPolicy
from neorl_core.infrastructure import unknown_name
from neorl_envs.recording._operators import OperatorPlan, excitation_plan
from neorl_envs.recording._recordable import Recordable


class Quality(NamedTuple):
    """Controllers and operators with which a log is recorded.

    Attributes:
        controllers: The policies that take turns, by name.
        plan: Plan of the operators.
    """

    controllers: Mapping[str, Policy]
    plan: OperatorPlan


def _random(env: Recordable) -> Quality:
    low, high = (jnp.asarray(ends(env.spec.action)) for ends in (lows, highs))
    return Quality({"random": UniformPolicy(low, high)}, _undisturbed_plan(env))


def _medium(env: Recordable) -> Quality:
    name, first = next(iter(env.tunings().items()))
    return Quality({name: first}, env.operator_plan())


def _mixed_quality(env: Recordable) -> Quality:
    return Quality(env.tunings(), env.operator_plan())


def _expert(env: Any) -> Quality:
    return Quality({env.reference: env.tunings()[env.reference]}, _undisturbed_plan(env))


def _undisturbed_plan(env: Recordable) -> OperatorPlan:
    """A plan without interventions, of the same structure as the plant's, to share its program."""
    loops = env.operator_plan().setpoint_step.size
    return excitation_plan(jnp.zeros(env.spec.n_action), loops, env.spec.n_obs)


QUALITIES: Mapping[str, Callable[[Any], Quality]] = {
    "random": _random,
    "medium": _medium,
    "mixed": _mixed_quality,
    "expert": _expert,
}


def quality(env: Recordable, name: str) -> Quality:
    """Controllers and operators of a quality, for :func:`neorl_envs.collect_log`.

    ``"random"``: uniform actions without operators. ``"medium"``: the plant's first, ordinary
    tuning with operators. ``"mixed"``: all tunings in equal parts, with operators. ``"expert"``:
    only the reference, without operators.

    Args:
        env: A plant.
        name: One of ``random``, ``medium``, ``mixed``, ``expert``.

    Raises:
        InputError: If the name is unknown; the message suggests the nearest one.

    Example:
        >>> import neorl_envs
        >>> found = quality(neorl_envs.make("ChemicalReactor-v0"), "medium")
        >>> list(found.controllers)
        ['PID 100/1500']
    """
    if name not in QUALITIES:
        raise unknown_name("quality", name, QUALITIES)
    return QUALITIES[name](env)
