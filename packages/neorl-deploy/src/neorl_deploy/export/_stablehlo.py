"""Exports a guarded policy as two programs (extra ``export``)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._manifest import ArrayEntry

if TYPE_CHECKING:
    from neorl_safety.guards import GuardedPolicy

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


class Exported(NamedTuple):
    """Two serialised programs and the information needed to call them.

    Attributes:
        step: ``(*carry, obs, last_sent) -> (*carry, action, flags, limits, intervention, alarms)``.
        initial_carry: ``() -> carry``.
        platforms: Platforms for which the programs were lowered.
        calling_convention: Version of the exported calling convention.
        jax: Release of JAX that lowered and serialised them.
    """

    step: bytes
    initial_carry: bytes
    platforms: tuple[str, ...]
    calling_convention: int
    jax: str


def flat_step(policy: GuardedPolicy) -> Callable[..., tuple[Any, ...]]:
    """One step of a guarded policy on the carry's arrays; ``sent`` is called first.

    The carry contains the report of the last step; an unknown last action is NaN.
    """
    import jax

    structure = jax.tree.structure(policy.initial_carry())

    def step(*inputs: Any) -> tuple[Any, ...]:
        *leaves, obs, last_sent = inputs
        carry = policy.sent(jax.tree.unflatten(structure, leaves), last_sent)
        carry, action = policy(carry, obs, None)
        report = carry.report
        summary = report.flags, report.limits, report.intervention, report.alarms
        return (*jax.tree.leaves(carry), action, *summary)

    return step


def carry_entries(policy: GuardedPolicy) -> tuple[ArrayEntry, ...]:
    """Name, shape and dtype of every array of the carry, in the order of the programs."""
    import jax

    named, _ = jax.tree_util.tree_flatten_with_path(policy.initial_carry())
    return tuple(
        ArrayEntry(jax.tree_util.keystr(path), tuple(leaf.shape), str(leaf.dtype))
        for path, leaf in named
    )


def export_programs(
    policy: GuardedPolicy, n_obs: int, platforms: Sequence[str], names: tuple[str, str]
) -> Exported:
    """Lowers and serialises a guarded policy, with its weights and limits as constants.

    One program serves all platforms. The CPU, where parity is checked, must be one of them.
    """
    import jax

    if "cpu" not in platforms or not set(platforms) <= set(PLATFORMS):
        raise DeployError(
            f"cannot export for {', '.join(platforms)}: choose from {', '.join(PLATFORMS)}; cpu "
            "must be among them, because parity is checked on it"
        )
    dtype = str(policy.constraints.dtype)
    inputs = [
        *carry_entries(policy),
        ArrayEntry("obs", (n_obs,), dtype),
        ArrayEntry("last_sent", (policy.constraints.n_action,), dtype),
    ]

    def initial_carry() -> tuple[Any, ...]:
        return tuple(jax.tree.leaves(policy.initial_carry()))

    return lowered(flat_step(policy), initial_carry, inputs, platforms, names)


def lowered(
    one_step: Callable[..., tuple[Any, ...]],
    initial_carry: Callable[[], tuple[Any, ...]],
    inputs: Sequence[ArrayEntry],
    platforms: Sequence[str],
    names: tuple[str, str],
) -> Exported:
    """Lowers and serialises a step and its fresh carry; what they take and give are flat arrays."""
    import jax
    from jax import export

    # The names hold the seal, which the loader compares with the manifest.
    one_step.__name__, initial_carry.__name__ = names
    shapes = [jax.ShapeDtypeStruct(entry.shape, entry.dtype) for entry in inputs]
    with _without_source_locations(), _exact_products(platforms):
        step = export.export(jax.jit(one_step), platforms=tuple(platforms))(*shapes)
        start = export.export(jax.jit(initial_carry), platforms=tuple(platforms))()
    return Exported(
        step=bytes(step.serialize()),
        initial_carry=bytes(start.serialize()),
        platforms=tuple(step.platforms),
        calling_convention=int(step.calling_convention_version),
        jax=jax.__version__,
    )


def _exact_products(platforms: Sequence[str]) -> contextlib.AbstractContextManager[object]:
    """Requests full precision, which accelerators otherwise reduce in products of float32 matrices.

    Parity is checked on the CPU; its programs do not need this, and their bytes stay the same.
    """
    import jax

    return jax.default_matmul_precision("default" if set(platforms) == {"cpu"} else "highest")


@contextlib.contextmanager
def _without_source_locations() -> Iterator[None]:
    """Keeps this machine's paths out of the programs, so that equal policies give equal bytes."""
    import jax

    names = ("jax_traceback_in_locations_limit", "jax_include_full_tracebacks_in_locations")
    before = {name: getattr(jax.config, name) for name in names}
    try:
        for name, value in zip(names, (0, True), strict=True):
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
