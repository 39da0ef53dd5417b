"""Checks of third-party learners: of the class on request, of its results while tracing."""

import contextlib
import dataclasses
import keyword
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from neorl_agents.learning._protocol import Algorithm
from neorl_core import InputError, Policy, Spec, Transition, as_arrays

_REQUIRED = (
    "fields",
    "batch_size",
    "batches_per_update",
    "sampler",
    "schedules",
    "validate",
    "prepare",
    "fits",
    "source",
    "init",
    "update",
    "policy",
)


def check_algorithm(name: str, kind: Any) -> None:
    """Refuses a class that training, configurations or the command line could not work with.

    Nothing is compiled and no network is created.

    Args:
        name: The name that configurations are to use.
        kind: A class that should fulfil :class:`neorl_agents.Algorithm`.

    Raises:
        ValueError: If the name or a field cannot be used in a configuration.
        TypeError: If the class is not an algorithm; the message names what is missing.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(
            "its name must be an identifier such as my_learner, because it names a section of "
            "configurations"
        )
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        raise TypeError(
            "expected a frozen dataclass registered with JAX, such as an equinox.Module with "
            f"fields, got {kind!r}"
        )
    missing = [part for part in _REQUIRED if not hasattr(kind, part) and part not in _fields(kind)]
    if missing:
        raise TypeError(f"expected a neorl_agents.Algorithm, but it has no {', '.join(missing)}")
    instance = _by_default(kind)
    if not isinstance(instance, Algorithm):
        raise TypeError(
            "expected a neorl_agents.Algorithm; compare its methods with those of that protocol"
        )
    unknown = set(instance.fields) - set(Transition._fields)
    if unknown:
        raise ValueError(
            f"its fields must be columns of a Transition ({', '.join(Transition._fields)}), got "
            f"{', '.join(sorted(unknown))}"
        )
    _check_leaves(instance, "")
    _check_form(instance)
    instance.validate()


def _fields(kind: type) -> dict[str, dataclasses.Field]:
    return {field.name: field for field in dataclasses.fields(kind)}


def _by_default(kind: type) -> Any:
    for name, field in _fields(kind).items():
        has_no_default = (field.default, field.default_factory) == (dataclasses.MISSING,) * 2
        if field.init and has_no_default:
            raise TypeError(
                f"its field {name} needs a default, because configurations may leave it out"
            )
    return kind()


def _check_leaves(instance: Any, where: str) -> None:
    for name in _fields(type(instance)):
        value = getattr(instance, name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            _check_leaves(value, f"{where}{name}.")
            continue
        parts = value if isinstance(value, tuple) else (value,)
        if not all(isinstance(part, bool | int | float | str) for part in parts):
            raise TypeError(
                f"its field {where}{name} must be a number, a string, a tuple of these or nested "
                "settings, because files and the command line can express nothing else, got "
                f"{value!r}"
            )


def _check_form(instance: Any) -> None:
    if jax.tree_util.all_leaves([instance]):
        raise TypeError(
            "JAX treats it as one leaf; make it an equinox.Module, or register it with "
            "jax.tree_util.register_dataclass"
        )
    try:
        hash(jax.tree.structure(instance))
        as_arrays(instance)
    except TypeError as error:
        raise TypeError(f"its strings and shapes must be static fields: {error}") from error


def updated_once(algorithm: Any, state: Any, batch: Any, key: Any) -> tuple[Any, dict[str, Any]]:
    """Calls ``update`` of a learner; an error while it is traced is one line of ``InputError``.

    It names the learner, its line, both shapes, and the shapes of the given rows.
    """
    with in_one_line(algorithm, "update", state, f"; its rows are {_shapes(batch)}"):
        answer = algorithm.update(state, batch, key)
    return require_answer(algorithm, state, answer)


@contextlib.contextmanager
def in_one_line(algorithm: Any, method: str, state: Any = None, more: str = "") -> Iterator[None]:
    """An error while a method of a learner is traced as one line, which names the learner's own."""
    try:
        yield
    except InputError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise InputError(
            f"{type(algorithm).__name__}.{method} cannot be compiled"
            f"{_place(type(algorithm), error)}: {_reason(error, state)}{more}"
        ) from error


def _reason(error: Exception, state: Any) -> str:
    """The first line of an error, and what to do about it where that is not plain."""
    lines = (line.strip() for line in str(error).splitlines())
    reason = next(filter(None, lines), type(error).__name__)
    if isinstance(error, KeyError):
        held = {part: ", ".join(getattr(state, part, ())) for part in ("parameters", "targets")}
        words = [f"{part} {names or '(none)'}" for part, names in held.items()]
        return f"there is no {reason}; its state holds the {' and the '.join(words)}"
    if "'NoneType'" in reason:
        return f"{reason}: a field that is not among `reads` is None, and so may be the mask"
    needs_values = (jax.errors.ConcretizationTypeError, jax.errors.TracerIntegerConversionError)
    if isinstance(error, needs_values) or "JitTracer" in reason:  # a shape in a TypeError
        return (
            f"{reason.rstrip('.')}: use jnp.where in place of Python's `if`, and make a setting "
            "that decides a shape static"
        )
    return reason


def _place(kind: type, error: BaseException) -> str:
    """The deepest line of a learner's own file at which an error occurred; may be empty."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if file and frame.filename == file:
            return f", {Path(file).name} line {frame.lineno} (`{frame.line}`)"
    return ""


def _shapes(batch: Any) -> str:
    """The arrays of a batch in words: ``obs float32[1,256,3], ...``."""
    named = batch._asdict() if hasattr(batch, "_asdict") else {"batch": batch}
    return ", ".join(
        f"{name}{jax.tree_util.keystr(path)} {_form(leaf)}"
        for name, part in named.items()
        for path, leaf in jax.tree.leaves_with_path(part)
    )


def require_answer(algorithm: Any, state: Any, result: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the result of ``update`` if it is a state of the same form and scalar metrics.

    Args:
        algorithm: Learner whose result this is; named in messages.
        state: State that it was given.
        result: Return value of its ``update``; only shapes and types are checked, never values.

    Returns:
        The state and the metrics.

    Raises:
        InputError: If the result is not a pair, the state has another form, or a metric is not a
            single number; the message names the learner.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_agents import BC
        >>> state = {"weight": jnp.ones(3)}
        >>> after, metrics = require_answer(BC(), state, (state, {"loss": jnp.float32(1.0)}))
        >>> list(metrics)
        ['loss']
    """
    name = type(algorithm).__name__
    after, metrics = require_pair(f"{name}.update", result)
    difference = _difference_in_form(state, after)
    if difference:
        raise InputError(
            f"{name}.update must return a state like the one it was given: {difference}"
        )
    for key, metric in metrics.items():
        if not (isinstance(metric, int | float) or getattr(metric, "shape", None) == ()):
            raise InputError(
                f"{name}.update must return metrics that are single numbers: {key!r} is "
                f"{_form(metric)}"
            )
    return after, metrics


def require_pair(method: str, result: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the state and the metrics; refuses anything else as the result of ``method``."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result
    kinds = [result] if not isinstance(result, tuple) or not result else list(result)
    raise InputError(
        f"{method} must return a state and a dictionary of metrics, got a "
        f"{' and a '.join(type(one).__name__ for one in kinds)}"
    )


def require_policy(algorithm: Any, state: Any, spec: Spec) -> Policy:
    """Returns the policy of a state if it can act.

    Args:
        algorithm: Learner whose policy this is; named in messages.
        state: State of the learner.
        spec: Channels of the policy.

    Returns:
        The policy.

    Raises:
        InputError: If something is missing from the policy, it cannot be traced on one observation,
            or its action has another shape than ``(act,)``; the message names it and the learner.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_agents import BC
        >>> from neorl_core import Channel, Spec
        >>> from neorl_core.control import ConstantPolicy
        >>> class Still(BC):
        ...     def policy(self, state):
        ...         return ConstantPolicy(state)
        >>> level, valve = Channel("level", "m", 0, 2), Channel("valve", "%", 0, 100)
        >>> spec = Spec(obs=(level,), action=(valve,), cost=(), dt=1.0, horizon=10)
        >>> type(require_policy(Still(), jnp.ones(1), spec)).__name__
        'ConstantPolicy'
    """
    obs = jax.ShapeDtypeStruct((spec.n_obs,), "float32")
    with in_one_line(algorithm, "policy", state):
        policy = _require_methods(algorithm, algorithm.policy(state))
        _, action = jax.eval_shape(
            lambda obs: policy(policy.initial_carry(), obs, jax.random.key(0)), obs
        )
    if action.shape != (spec.n_action,):
        raise InputError(
            f"{type(algorithm).__name__}.policy must return a policy whose action has the shape "
            f"{(spec.n_action,)}, one number for each of "
            f"{', '.join(channel.name for channel in spec.action)}, got {action.shape}"
        )
    return policy


def _require_methods(algorithm: Any, policy: Any) -> Policy:
    if isinstance(policy, Policy):
        return policy
    missing = [part for part in ("initial_carry", "__call__", "sent") if not hasattr(policy, part)]
    raise InputError(
        f"{type(algorithm).__name__}.policy must return a neorl_core.Policy, such as "
        "neorl_agents.policies.network_policy(state.preparation, actor): "
        f"a {type(policy).__name__} has no {', '.join(missing)}"
    )


def _difference_in_form(before: Any, after: Any) -> str:
    """The first difference in words; empty if the trees have the same form."""
    before_leaves, after_leaves = (
        {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}
        for tree in (before, after)
    )
    for name in before_leaves:
        if name not in after_leaves:
            return f"{name} is missing"
    for name in after_leaves:
        if name not in before_leaves:
            return f"{name} is not in the state that it was given"
    for name, leaf in after_leaves.items():
        if _form(leaf) != _form(before_leaves[name]):
            return f"{name} must be {_form(before_leaves[name])}, got {_form(leaf)}"
    if jax.tree.structure(before) != jax.tree.structure(after):
        return "a part of it has another class, or another value of a static field"
    return ""


def _form(leaf: Any) -> str:
    if not hasattr(leaf, "dtype"):
        return f"a {type(leaf).__name__}"
    return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"
