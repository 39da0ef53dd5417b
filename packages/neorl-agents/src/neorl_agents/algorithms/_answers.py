"""What a learner's functions must give back, checked by shapes alone while they are traced."""

from typing import Any

import jax

from neorl_core import InputError, Policy


def require_answer(algorithm: Any, state: Any, answer: Any) -> tuple[Any, dict[str, Any]]:
    """What ``update`` gave back, if it is a state like the one before and scalar metrics.

    Args:
        algorithm: Learner that was asked; named in messages.
        state: State that it was given.
        answer: What its ``update`` returned; shapes and types are looked at, never values.

    Returns:
        The state and the metrics.

    Raises:
        InputError: Naming the learner and what is wrong: no pair, a state of another form, or a
            metric that is no single number.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_agents import BC
        >>> state = {"weight": jnp.ones(3)}
        >>> after, metrics = require_answer(BC(), state, (state, {"loss": jnp.float32(1.0)}))
        >>> list(metrics)
        ['loss']
    """
    name = type(algorithm).__name__
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        kinds = [answer] if not isinstance(answer, tuple) or not answer else list(answer)
        raise InputError(
            f"{name}.update must return a state and a dictionary of metrics, got a "
            f"{' and a '.join(type(one).__name__ for one in kinds)}"
        )
    after, metrics = answer
    fault = _other_form(state, after)
    if fault:
        raise InputError(f"{name}.update must return a state like the one it was given: {fault}")
    for key, metric in metrics.items():
        if not (isinstance(metric, int | float) or getattr(metric, "shape", None) == ()):
            raise InputError(
                f"{name}.update must return metrics that are single numbers: {key!r} is "
                f"{_form(metric)}"
            )
    return after, metrics


def require_policy(algorithm: Any, policy: Any) -> Policy:
    """What ``policy`` gave back, if it can act.

    Args:
        algorithm: Learner that was asked; named in messages.
        policy: What its ``policy`` returned.

    Returns:
        The policy.

    Raises:
        InputError: Naming the learner, and what its policy has not.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_agents import BC
        >>> from neorl_core.control import ConstantPolicy
        >>> type(require_policy(BC(), ConstantPolicy(jnp.ones(1)))).__name__
        'ConstantPolicy'
    """
    if isinstance(policy, Policy):
        return policy
    missing = [part for part in ("initial_carry", "__call__", "sent") if not hasattr(policy, part)]
    raise InputError(
        f"{type(algorithm).__name__}.policy must return a neorl_core.Policy, such as "
        f"neorl_agents.policies.network_policy(scaling, actor): a {type(policy).__name__} has no "
        f"{', '.join(missing)}"
    )


def _other_form(before: Any, after: Any) -> str:
    """The first difference in words; empty where the trees have one form."""
    ours, theirs = (
        {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}
        for tree in (before, after)
    )
    for name in ours:
        if name not in theirs:
            return f"{name} is missing"
    for name in theirs:
        if name not in ours:
            return f"{name} was not there"
    for name, leaf in theirs.items():
        if _form(leaf) != _form(ours[name]):
            return f"{name} was {_form(ours[name])} and is {_form(leaf)}"
    if jax.tree.structure(before) != jax.tree.structure(after):
        return "a part of it is of another class, or has another static field"
    return ""


def _form(leaf: Any) -> str:
    if not hasattr(leaf, "dtype"):
        return f"a {type(leaf).__name__}"
    return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"
