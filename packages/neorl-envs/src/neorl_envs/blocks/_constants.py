"""Physical constants with unit, source and uncertainty, declared once for all uses.

A plant lists them as the defaults of a ``NamedTuple``::

    class Constants(NamedTuple):
        volume: Scalar = constant(50.0, "m3", "own choice")
        rate: Scalar = constant(7.0, "1/h", "Lucia et al. 2014", spread=1.0)

``Constants()`` then holds the declarations, and :func:`constant_values` returns the same tuple with
arrays.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import PRNGKeyArray

Tree = TypeVar("Tree")
Domain = Literal["positive", "not negative", "fraction", "real"]
PRESETS = ("plant", "clean")


@dataclasses.dataclass(frozen=True)
class Constant:
    """A physical constant, or an array of constants of the same kind.

    Attributes:
        value: Nominal value in ``unit``; a (nested) tuple for an array.
        unit: Physical unit, ``"1"`` for none.
        source: Publication, or ``"own choice"``.
        spread: Width of its domain randomisation, as a multiple of the requested spread; 0 for a
            constant that is not randomised.
        clean: Value in the preset ``"clean"``, such as 0 for the size of a disturbance; ``None``
            for the same value.
        domain: Physically possible values.
    """

    value: Any
    unit: str
    source: str
    spread: float = 0.0
    clean: Any = None
    domain: Domain = "positive"


def constant(
    value: Any,
    unit: str,
    source: str,
    *,
    spread: float = 0.0,
    clean: Any = None,
    domain: Domain = "positive",
) -> Any:
    """Declares a :class:`Constant`, typed so that it may be the default of an array field.

    Example:
        >>> constant(7.0, "1/h", "Lucia et al. 2014", spread=1.0).unit
        '1/h'
    """
    return Constant(value, unit, source, spread, clean, domain)


def constant_values(declared: Tree, preset: str = "plant", *, dtype: DTypeLike) -> Tree:
    """The declared constants as arrays, in the same structure.

    Args:
        declared: A tree with :class:`Constant` leaves.
        preset: ``"plant"``, or ``"clean"`` for the values without disturbances.
        dtype: Dtype of every array.

    Raises:
        ValueError: If the preset is unknown.
    """
    require_preset(preset)

    def value(leaf: Constant) -> Any:
        clean = preset == "clean" and leaf.clean is not None
        return jnp.asarray(leaf.clean if clean else leaf.value, dtype)

    return jax.tree.map(value, declared)


def sampled_constants(declared: Any, values: Tree, key: PRNGKeyArray, *, spread: float) -> Tree:
    """Samples randomised constants, uniformly and independently.

    Every entry of a constant with a spread ``s`` is multiplied by a number from ``[1 - s spread,
    1 + s spread]``.

    Args:
        declared: The declarations.
        values: Centre of the distribution, in the same structure.
        key: Random key.
        spread: Requested relative half-width.

    Raises:
        ValueError: If ``spread`` is outside [0, 1), or so large that a factor could reach zero.
    """
    leaves, structure = jax.tree.flatten(declared)
    widest = max((leaf.spread for leaf in leaves), default=0.0)
    if not (0 <= spread < 1 and spread * widest < 1):
        raise ValueError(f"spread must be in [0, {1 / max(widest, 1.0):g}), got {spread}")
    drawn = []
    for i, (leaf, value) in enumerate(zip(leaves, structure.flatten_up_to(values), strict=True)):
        if leaf.spread:
            width = spread * leaf.spread
            factor = jax.random.uniform(
                jax.random.fold_in(key, i), value.shape, value.dtype, 1 - width, 1 + width
            )
            value = value * factor
        drawn.append(value)
    return structure.unflatten(drawn)


def check_constants(declared: Any, values: Any) -> None:
    """Raises for physically impossible constants; traced values are unknown and not checked.

    Raises:
        ValueError: Naming the constant, its unit, and the allowed and given values.
    """
    for name, leaf, value in named_constants(declared, values):
        if isinstance(value, Tracer):
            continue
        given = np.asarray(value)
        if given.shape[-np.ndim(leaf.value) or None :] != np.shape(leaf.value) and np.ndim(
            leaf.value
        ):
            raise ValueError(
                f"constant {name!r} ({leaf.unit}) has shape {np.shape(leaf.value)}, "
                f"got {given.shape}"
            )
        bad = ~np.isfinite(given)
        if leaf.domain == "positive":
            bad = bad | (given <= 0)
        elif leaf.domain == "not negative":
            bad = bad | (given < 0)
        elif leaf.domain == "fraction":
            bad = bad | (given < 0) | (given > 1)
        if bad.any():
            worst = float(given[bad].ravel()[0])
            allowed = {"real": "finite", "fraction": "from 0 to 1"}.get(
                leaf.domain, f"finite and {leaf.domain}"
            )
            raise ValueError(f"constant {name!r} must be {allowed}, got {worst:g} {leaf.unit}")


def named_constants(declared: Any, values: Any = None) -> Iterator[tuple[str, Constant, Any]]:
    """Yields every constant with its name and its value (the declared one by default)."""
    paths, structure = jax.tree_util.tree_flatten_with_path(declared)
    given = [c.value for _, c in paths] if values is None else structure.flatten_up_to(values)
    for (path, leaf), value in zip(paths, given, strict=True):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        yield name, leaf, value


def require_preset(preset: str) -> None:
    """Raises for an unknown preset."""
    if preset not in PRESETS:
        raise ValueError(f"preset must be 'plant' or 'clean', got {preset!r}")
