"""What a learner from outside must fulfil, checked when it is registered or first asked for."""

import dataclasses
import keyword
from typing import Any

import jax

from neorl_agents.algorithms._protocol import Algorithm
from neorl_core import Transition, as_arrays

_REQUIRED = ("fields", "batch_size", "batches_per_update", "validate", "init", "update", "policy")


def check_algorithm(name: str, kind: Any) -> None:
    """Refuses what training, configurations or the command line could not work with.

    Nothing is compiled and no network is made.

    Args:
        name: The name that configurations are to use.
        kind: A class that should fulfil :class:`neorl_agents.Algorithm`.

    Raises:
        ValueError: If the name or a field cannot stand in a configuration.
        TypeError: If the class is no algorithm; what is missing is named.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError("its name must be an identifier, such as my_learner; it names a section")
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
        raise TypeError("expected a neorl_agents.Algorithm")
    unknown = set(instance.fields) - set(Transition._fields)
    if unknown:
        raise ValueError(f"its fields {', '.join(sorted(unknown))} are none of a Transition")
    _check_leaves(instance)
    instance.validate()


def _fields(kind: type) -> dict[str, dataclasses.Field]:
    return {field.name: field for field in dataclasses.fields(kind)}


def _by_default(kind: type) -> Any:
    for name, field in _fields(kind).items():
        unset = (field.default, field.default_factory) == (dataclasses.MISSING,) * 2
        if field.init and unset:
            raise TypeError(
                f"its field {name} needs a default, for configurations may leave it out"
            )
    return kind()


def _check_leaves(instance: Any) -> None:
    values = {name: getattr(instance, name) for name in _fields(type(instance))}
    for name, value in values.items():
        parts = value if isinstance(value, tuple) else (value,)
        if not all(isinstance(part, bool | int | float | str) for part in parts):
            raise TypeError(
                f"its field {name} must be a number, a text or a tuple of them, for files and the "
                f"command line know no more, got {value!r}"
            )
    if jax.tree_util.all_leaves([instance]):
        raise TypeError("JAX sees it as one leaf; make it an equinox.Module or register it")
    try:
        hash(jax.tree.structure(instance))
        as_arrays(instance)
    except TypeError as error:
        raise TypeError(f"its texts and shapes must be static fields ({error})") from error
