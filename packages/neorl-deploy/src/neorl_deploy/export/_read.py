"""The first stages of an export: the run's policies and limits, and their answers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neorl_deploy._errors import DeployError, needs
from neorl_deploy.bundle._manifest import ChannelEntry
from neorl_deploy.bundle._test_vectors import relative_difference
from neorl_deploy.runtime._runtime import SELF_TEST_TOLERANCE
from neorl_deploy.training_run import CONSTRAINTS, GUARD, Run

if TYPE_CHECKING:
    from neorl_agents import PolicyArtefact
    from neorl_core import Channel, Spec
    from neorl_safety.constraints import Constraints
    from neorl_safety.guards import GuardedPolicy, GuardSettings

# First stage of an export: loads a run's policies and limits and checks that they fit together.


class GuardedParts(NamedTuple):
    """A policy wrapped in the limits of its run.

    Attributes:
        policy: The guarded policy, which is the one exported.
        candidate: Artefact of the learned policy.
        fallback: Artefact of the controller that takes over.
        constraints: The hard limits.
        settings: Supervisor, monitors, ages and the order of the fallbacks.
    """

    policy: GuardedPolicy
    candidate: PolicyArtefact
    fallback: PolicyArtefact
    constraints: Constraints
    settings: GuardSettings

    @property
    def spec(self) -> Spec:
        """The control problem that candidate and fallback share."""
        return self.candidate.spec


def guarded_policy(run: Run) -> GuardedParts:
    """Loads candidate, fallback and constraints of a run and wraps them in the guard.

    Raises:
        DeployError: If a part is damaged, belongs to another plant or is not the one that the run
            judged, or a policy acts differently here than where it was trained.
    """
    with needs("an export", "export"):
        from neorl_agents import ArtefactError, load_policy
        from neorl_safety.constraints import constraints_from_dict
        from neorl_safety.guards import guard_with, settings_from_dict
    try:
        candidate, fallback = load_policy(run.candidate), load_policy(run.fallback)
        constraints = constraints_from_dict(run.constraints)
        watched = {name: load_policy(run.policy(name)) for name in _watched_policies(run)}
        further = {name: load_policy(run.policy(name)) for name in _fallbacks(run)}
    except (ArtefactError, OSError) as error:
        raise DeployError(f"cannot use a policy of {run.path}: {error}") from error
    except ValueError as error:
        raise DeployError(f"{run.path / CONSTRAINTS}: {error}") from error
    if candidate.spec != fallback.spec:
        raise DeployError(f"{run.candidate} and {run.fallback} are for different plants")
    _require_channels(run, candidate, constraints)
    for artefact, path in ((candidate, run.candidate), (fallback, run.fallback)):
        _require_judged(run, artefact, path)
        _require_same_actions(artefact, path)
    for name, artefact in {**watched, **further}.items():
        _require_judged(run, artefact, run.policy(name))
    policies = {name: artefact.policy for name, artefact in watched.items()}
    fallbacks = {name: artefact.policy for name, artefact in further.items()}
    try:
        settings = settings_from_dict(run.guard, candidate.spec, policies, str(run.path / GUARD))
        policy = guard_with(settings, candidate.policy, constraints, fallbacks, candidate.spec)
    except ValueError as error:
        raise DeployError(str(error)) from error
    return GuardedParts(policy, candidate, fallback, constraints, settings)


def _watched_policies(run: Run) -> list[str]:
    """The policies whose disagreement a monitor watches."""
    try:
        monitors = run.guard["monitors"]["monitors"]
        return sorted({str(name) for monitor in monitors for name in monitor.get("policies", ())})
    except (KeyError, TypeError, AttributeError) as error:
        raise DeployError(f"{run.path / GUARD} is damaged: it lists no monitors") from error


def _fallbacks(run: Run) -> list[str]:
    names = run.guard.get("fallbacks")
    return [str(name) for name in names] if isinstance(names, list) else []


def entries(channels: Sequence[Channel]) -> tuple[ChannelEntry, ...]:
    """The channels of a specification, in the layout of a manifest."""
    return tuple(ChannelEntry(c.name, c.unit, float(c.low), float(c.high)) for c in channels)


def _require_channels(run: Run, candidate: PolicyArtefact, constraints: Constraints) -> None:
    channels = [(channel.name, channel.unit) for channel in candidate.spec.action]
    limited = list(zip(constraints.names, constraints.units, strict=True))
    if channels != limited:
        raise DeployError(
            f"{run.path / CONSTRAINTS} limits the channels {limited}; the policy sets {channels}"
        )


def _require_judged(run: Run, artefact: PolicyArtefact, path: Path) -> None:
    if run.policy_digest(path) not in (None, artefact.digest):
        raise DeployError(f"{path} is not the policy that the run trained and judged")


def _require_same_actions(artefact: PolicyArtefact, path: Path) -> None:
    """Requires that the artefact's parity observations reproduce their stored actions here."""
    from neorl_agents.artefact import policy_actions

    actions = np.asarray(policy_actions(artefact.policy, artefact.parity_obs))
    difference = relative_difference(
        entries(artefact.spec.action), actions, artefact.parity_actions
    )
    if not difference <= SELF_TEST_TOLERANCE:
        raise DeployError(
            f"{path} gives other actions here than where it was trained (difference "
            f"{difference:.1e} of a channel's size on its parity observations); export with the "
            "package versions of the training"
        )


# Sensitivity of an answer to float32 rounding of its inputs.


SEED = 9
N_PERTURBATIONS = 8


def perturbed_observations(
    obs: Sequence[ChannelEntry], observations: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """Seeds for the policy, with observations each perturbed to a neighbouring float32 number."""
    low = np.array([channel.low for channel in obs], np.float32)
    high = np.array([channel.high for channel in obs], np.float32)
    inside = (observations >= low) & (observations <= high)
    for seed in range(SEED, SEED + N_PERTURBATIONS):
        up = np.random.default_rng(seed).random(observations.shape) < 0.5
        moved = np.nextafter(observations, np.where(up, np.inf, -np.inf).astype(np.float32))
        # A number that left its range would raise another flag instead of testing rounding.
        moved = np.where(inside, np.clip(moved, low, high), moved)
        yield seed, np.where(np.isfinite(observations), moved, observations)


def perturbed_policy(policy: GuardedPolicy, key: Any) -> GuardedPolicy:
    """Perturbs every number of the policy and its fallback to a neighbouring float32 number.

    Each rounding inside a program is equivalent to a small perturbation of its inputs (backward
    error analysis), and a different one each time. A policy that is perturbed anew in every step
    therefore differs about as much as two correct compilations of it may.
    """
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree

    leaves, structure = jax.tree.flatten((policy.policy, policy.fallback))
    places = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    flat, restored = ravel_pytree([leaves[i] for i in places])
    up = jax.random.bernoulli(key, shape=flat.shape)
    neighbour = jnp.nextafter(flat, jnp.where(up, jnp.inf, -jnp.inf).astype(flat.dtype))
    # Rounding leaves zero, infinity and NaN as they are.
    moved = restored(jnp.where(jnp.isfinite(flat) & (flat != 0), neighbour, flat))
    for i, leaf in zip(places, moved, strict=True):
        leaves[i] = leaf
    acting, fallback = jax.tree.unflatten(structure, leaves)
    return dataclasses.replace(policy, policy=acting, fallback=fallback)


# The training side's answers to the test vectors, which the exported programs must reproduce.


@dataclasses.dataclass(frozen=True)
class Reference:
    """The guarded policy as the training side runs it: not exported, with its arrays as arguments.

    The exported program contains the arrays as constants and was lowered separately, so an
    agreement of the two is evidence about the export.

    Attributes:
        policy: The guarded policy.
    """

    policy: GuardedPolicy

    def single(
        self, obs: np.ndarray, last_sent: np.ndarray, seed: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Action and flags for every row, each from a fresh carry.

        Args:
            obs: One observation per row, shape ``(row, obs)``.
            last_sent: Actions that the plant received previously, shape ``(row, act)``.
            seed: Perturbs the numbers of the policy by their last bit, differently in every row;
                ``None`` leaves them unchanged.

        Returns:
            Shapes ``(row, act)`` and ``(row,)``.
        """
        action, flags = self._single(self.policy, (obs, last_sent), _keys(seed, len(obs)))
        return np.asarray(action), np.asarray(flags)

    def sequence(
        self, obs: np.ndarray, overrides: np.ndarray, seed: int | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A sequence of consecutive steps.

        Args:
            obs: One observation per step, shape ``(step, obs)``.
            overrides: Action that the plant received instead of the policy's, NaN where there was
                none, shape ``(step, act)``.
            seed: Perturbs the numbers of the policy by their last bit, differently in every step;
                ``None`` leaves them unchanged.

        Returns:
            The ``last_sent`` input, the action and the flags of every step.
        """
        outputs = self._sequence(self.policy, (obs, overrides), _keys(seed, len(obs)))
        last_sent, action, flags = (np.asarray(output) for output in outputs)
        return last_sent, action, flags

    @functools.cached_property
    def _single(self) -> Callable[..., Any]:
        import jax

        def run(policy: GuardedPolicy, rows: tuple[Any, Any], keys: Any) -> tuple[Any, Any]:
            def first_step(inputs: tuple[tuple[Any, Any], Any]) -> tuple[Any, Any]:
                (obs, last_sent), key = inputs
                acting = policy if key is None else perturbed_policy(policy, key)
                carry = acting.sent(acting.initial_carry(), last_sent)
                carry, action = acting(carry, obs, None)
                return action, carry.report.flags

            return jax.lax.map(first_step, (rows, keys))

        return jax.jit(run)

    @functools.cached_property
    def _sequence(self) -> Callable[..., Any]:
        import jax
        import jax.numpy as jnp

        def run(policy: GuardedPolicy, rows: tuple[Any, Any], keys: Any) -> Any:
            def step(state: tuple[Any, Any], inputs: Any) -> tuple[Any, Any]:
                (carry, last_sent), ((obs, override), key) = state, inputs
                acting = policy if key is None else perturbed_policy(policy, key)
                carry, action = acting(acting.sent(carry, last_sent), obs, None)
                # NaN marks a step in which nobody else acted.
                received = jnp.where(jnp.isnan(override), action, override)
                return (carry, received), (last_sent, action, carry.report.flags)

            unknown = jnp.full((rows[1].shape[1],), jnp.nan, rows[1].dtype)
            return jax.lax.scan(step, (policy.initial_carry(), unknown), (rows, keys))[1]

        return jax.jit(run)


def _keys(seed: int | None, count: int) -> Any:
    import jax

    return None if seed is None else jax.random.split(jax.random.key(seed), count)
