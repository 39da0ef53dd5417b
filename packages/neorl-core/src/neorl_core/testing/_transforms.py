"""One function under eager, jit, vmap and jit of vmap, compiled once for all examples."""

import functools
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import monitoring

from neorl_core.testing._compare import ATOL, RTOL, assert_stable, is_float, is_key, rounding

ROWS = 3
"""Number of samples in one example: the length of the leading axis of every argument."""

COMPILED = "/jax/core/compile/backend_compile_duration"

Options = dict[str, Any]


class _Variants(NamedTuple):
    single: Callable[..., Any]
    single_jit: Callable[..., Any]
    batch: Callable[..., Any]
    batch_jit: Callable[..., Any]
    gradients: Callable[..., Any]


Static = tuple[tuple[str, Hashable, type], ...]


def split_options(options: Options) -> tuple[Options, Static]:
    """Splits options into traced ones (floats and arrays) and static ones, which must be hashable.

    Static options include their type, since True equals 1 as a dictionary key.
    """
    traced = {
        name: v for name, v in options.items() if isinstance(v, float | np.ndarray | jax.Array)
    }
    static_names = sorted(name for name in options if name not in traced)
    static = tuple((name, options[name], type(options[name])) for name in static_names)
    return traced, static


@functools.lru_cache(maxsize=4096)
def variants(fn: Callable[..., Any], static: Static) -> _Variants:
    """The transformed callables of ``fn``, cached by its identity and its static options.

    If gradients were requested, the same program also gives the values, from the same trace: two
    programs, or a second trace, cost nearly twice as much as one.
    """
    fixed = {name: value for name, value, _ in static}

    def single(rows: tuple, options: Options) -> Any:
        return fn(*rows, **options, **fixed)

    def batch(rows: tuple, options: Options) -> Any:
        return jax.vmap(lambda *row: fn(*row, **options, **fixed))(*rows)

    @functools.partial(jax.jit, static_argnums=3)
    def both(floats: list, others: list, options: Options, structure: Any) -> tuple[Any, Any]:
        def weighted_sum(floats: list, others: list) -> tuple[jax.Array, Any]:
            outputs = single(_merge(floats, others, structure), options)
            return _weighted_sum(outputs), outputs

        return jax.vmap(jax.grad(weighted_sum, has_aux=True))(floats, others)

    compiled, with_gradients = jax.jit(batch), set()

    def gradients(rows: tuple, options: Options) -> Any:
        with_gradients.add(_form_of(rows, options))
        return both(*_part_floats(rows, options))[0]

    def batch_jit(rows: tuple, options: Options) -> Any:
        if _form_of(rows, options) in with_gradients:
            return both(*_part_floats(rows, options))[1]
        return compiled(rows, options)

    return _Variants(single, jax.jit(single), batch, batch_jit, gradients)


def _form_of(rows: tuple, options: Options) -> Hashable:
    """A key of the form of a call; calls with equal keys run the same compiled program."""
    leaves, structure = jax.tree.flatten((rows, options))
    return structure, tuple((np.shape(leaf), str(jnp.result_type(leaf))) for leaf in leaves)


def _part_floats(rows: tuple, options: Options) -> tuple[list, list, Options, Any]:
    """The float leaves, which have a gradient, and the other leaves."""
    leaves, structure = jax.tree.flatten(rows)
    floats = [leaf if is_float(leaf) else None for leaf in leaves]
    others = [None if is_float(leaf) else leaf for leaf in leaves]
    return floats, others, options, structure


def everywhere(
    fn: Callable[..., Any], *rows: Any, rtol: float = RTOL, atol: float = ATOL, **options: Any
) -> Any:
    """Runs ``fn`` under vmap and jit of vmap on all rows, and eagerly and under jit on the first.

    Transformed callables are cached by the identity of ``fn``, so pass a function defined at
    module level, not a lambda made inside the test.

    Args:
        fn: A function of one sample.
        *rows: Positional arguments: arrays or PyTrees with ``ROWS`` samples along their first axis.
        rtol: Relative tolerance of the agreement.
        atol: Absolute tolerance, as a fraction of the largest number of a leaf (see
            :func:`oracle`).
        **options: Keyword arguments shared by all rows; floats and arrays are traced, everything
            else is static.

    Returns:
        The result of the jitted ``vmap``, with the rows stacked along the first axis.

    Raises:
        AssertionError: If two of the four disagree, or a second eager call compiles again.
    """
    traced, static = split_options(options)
    calls = variants(fn, static)
    rows = as_rows(rows)
    stacked = calls.batch_jit(rows, traced)
    spread = _spread(calls, rows, traced, atol)
    close = functools.partial(assert_stable, rtol=rtol, atol=atol)
    close(calls.batch(rows, traced), stacked, spread, message="vmap and jit of vmap differ")
    alone = calls.single_jit(take(rows, 0), traced)
    close(alone, take(stacked, 0), lambda: take(spread(), 0), message="jit and vmap differ")
    eager_agrees(fn, *rows, rtol=rtol, atol=atol, **options)
    return stacked


def eager_agrees(
    fn: Callable[..., Any], *rows: Any, rtol: float = RTOL, atol: float = ATOL, **options: Any
) -> None:
    """Checks that the first row gives the same eagerly as by jit of vmap, and compiles only once.

    In an eager call every operation is compiled separately.

    Raises:
        AssertionError: If values or dtypes differ, or a second eager call compiles again.
    """
    traced, static = split_options(options)
    calls = variants(fn, static)
    rows = as_rows(rows)
    spread = _spread(calls, rows, traced, atol)
    row, want = take(rows, 0), take(calls.batch_jit(rows, traced), 0)
    eager = calls.single(row, traced)
    message = "eager and vmap differ"
    assert_stable(eager, want, lambda: take(spread(), 0), rtol=rtol, atol=atol, message=message)
    before = _compilations()
    calls.single(row, traced)
    assert _compilations() == before, (
        "a second eager call compiles again; give its loops functions of the module, or jit it"
    )
    dtypes = [jnp.asarray(leaf).dtype for leaf in jax.tree.leaves(eager)]
    assert dtypes == [leaf.dtype for leaf in jax.tree.leaves(want)], (
        f"eager and compiled results differ in dtype: {dtypes}"
    )


def _spread(calls: _Variants, rows: tuple, traced: Options, atol: float) -> Callable[[], Any]:
    """The effect of rounding the arguments, computed when it is first needed."""

    @functools.cache
    def spread() -> Any:
        return rounding(lambda *rows, **some: calls.batch_jit(rows, some), rows, traced, atol)

    return spread


def finite_grad(fn: Callable[..., Any], *rows: Any, **options: Any) -> Any:
    """The gradient of ``fn`` with respect to every floating argument, which must be finite.

    The outputs are summed with unequal weights, so that outputs with a constant sum (a softmax) are
    tested too. Compiled once per shape, never run eagerly.

    Args:
        fn: A differentiable function of one sample.
        *rows: As for :func:`everywhere`.
        **options: As for :func:`everywhere`.

    Returns:
        One gradient per floating leaf of ``rows``, in the order of the leaves, rows stacked.

    Raises:
        AssertionError: If an entry is NaN or infinite.
    """
    traced, static = split_options(options)
    gradients = variants(fn, static).gradients(as_rows(rows), traced)
    for index, gradient in enumerate(gradients):
        if gradient is not None:
            bad = ~np.isfinite(np.asarray(gradient, np.float64))
            assert not bad.any(), f"the gradient in leaf {index} is not finite: {gradient}"
    return [gradient for gradient in gradients if gradient is not None]


def as_rows(rows: Any) -> Any:
    """The same tree with JAX arrays as leaves."""
    return jax.tree.map(lambda leaf: leaf if is_key(leaf) else jnp.asarray(leaf), rows)


def row_count(rows: Any) -> int:
    """Length of the leading axis."""
    return jax.tree.leaves(rows)[0].shape[0]


def take(rows: Any, index: int) -> Any:
    """One row of every leaf."""

    def row(leaf: Any) -> Any:
        if is_key(leaf) or not isinstance(leaf, jax.Array):
            return leaf[index]
        # Through NumPy, because JAX would compile a program for every shape.
        return jnp.asarray(np.asarray(leaf)[index])

    return jax.tree.map(row, rows)


def _merge(floats: list, others: list, structure: Any) -> tuple:
    leaves = [other if real is None else real for real, other in zip(floats, others, strict=True)]
    return jax.tree.unflatten(structure, leaves)


def _weighted_sum(outputs: Any) -> jax.Array:
    total = jnp.zeros(())
    for leaf in jax.tree.leaves(outputs):
        if is_float(leaf):
            total = total + jnp.sum(leaf.astype(jnp.float32).ravel() * weights_of(leaf))
    return total


def weights_of(leaf: Any) -> np.ndarray:
    """Unequal weights for summing the numbers of an output."""
    return (1 + np.cos(np.arange(leaf.size)) / 2).astype(np.float32)


def _compilations() -> int:
    """Number of programs compiled, or read from disk, since the first call."""
    return len(_events())


@functools.cache
def _events() -> list[str]:
    events: list[str] = []

    def note(event: str, duration_secs: float, **kwargs: Any) -> None:
        if event == COMPILED:
            events.append(event)

    monitoring.register_event_duration_secs_listener(note)
    return events
