"""The settings that learners share: networks, gradient steps and schedules; their checks."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from operator import attrgetter
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.networks import (
    ACTIVATIONS,
    NETWORKS,
    Encoder,
    Encoding,
    Network,
    ensemble,
    init_network,
)
from neorl_agents.policies import RewardScale
from neorl_core import Spec
from neorl_core.infrastructure import setting


def _as_tuple(value: Any) -> Any:
    """A list as a tuple; text or a single number is kept, so that a check can name it."""
    return value if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)


OWN = "own"
"""Value of a network setting that leaves it to the learner."""


class Networks(eqx.Module):
    """Widths, memory and kind of all networks of a learner.

    Every field is static: another value needs another compilation.

    Attributes:
        hidden: Widths of the hidden layers.
        encoder: ``"none"``, ``"history"`` or ``"gru"``: whether networks also see the previous
            steps, concatenated or through a recurrent unit each.
        history_steps: Number of steps in that window, including the current one.
        kind: Name of the kind of network in ``neorl_agents.networks.NETWORKS``.
        graph: For a kind that reads graphs: the node or edge of each channel whose name does not
            give it, ``"LI-101 = tank3.level"``, and nodes or edges without a channel,
            ``"line2-3"``; see :func:`neorl_agents.networks.graph_layout`.
        activation: Name of the function after every hidden layer of a perceptron, in
            ``neorl_agents.networks.ACTIVATIONS``; ``"own"`` is the learner's own, mostly ReLU.
        layer_norm: Whether layer normalisation follows every hidden layer of a perceptron:
            ``"yes"``, ``"no"``, or ``"own"`` for what the learner does, network by network.
    """

    hidden: tuple[int, ...] = setting((256, 256), low=1, static=True, converter=_as_tuple)
    encoder: Encoder = eqx.field(static=True, default="none")
    history_steps: int = setting(8, low=1, static=True)
    kind: str = eqx.field(static=True, default="mlp")
    graph: tuple[str, ...] = eqx.field(static=True, default=(), converter=_as_tuple)
    activation: str = eqx.field(static=True, default=OWN)
    layer_norm: Literal["own", "yes", "no"] = eqx.field(static=True, default=OWN)

    def encoding(self, spec: Spec) -> Encoding:
        """How observations of a plant are encoded for the networks."""
        return Encoding(self.encoder, self.history_steps, spec.n_obs, spec.n_action)

    def obs_network(
        self, spec: Spec, n_out: int, key: PRNGKeyArray, *, extra_inputs: int = 0, **options: Any
    ) -> Network:
        """A fresh network from observations to ``n_out`` numbers.

        Args:
            spec: Channels of the plant.
            n_out: Number of outputs.
            key: Random key; consumed.
            extra_inputs: Number of further inputs, after those of the observation.
            **options: Further options of the kind, such as those of
                :func:`neorl_agents.networks.init_mlp`.
        """
        return self._network(spec, extra_inputs, n_out, key, options)

    def obs_action_networks(
        self, spec: Spec, n_out: int, key: PRNGKeyArray, *, members: int = 2, **options: Any
    ) -> Network:
        """Fresh networks from observations and actions to ``n_out`` numbers, stacked.

        Args:
            spec: Channels of the plant.
            n_out: Number of outputs.
            key: Random key; consumed.
            members: Number of networks, with independent weights.
            **options: Further options of the kind.
        """

        def member(member_key: PRNGKeyArray) -> Network:
            return self._network(spec, spec.n_action, n_out, member_key, options)

        return ensemble(members, member, key)

    def _network(
        self, spec: Spec, extra_inputs: int, n_out: int, key: Any, options: Any
    ) -> Network:
        if self.activation != OWN:
            options = {**options, "activation": ACTIVATIONS.find(self.activation)}
        if self.layer_norm != OWN:
            options = {**options, "normalised": self.layer_norm == "yes"}
        encoding = self.encoding(spec)
        widths = (encoding.width + extra_inputs, *self.hidden, n_out)
        if self.encoder == "none":
            options = {**options, **NETWORKS.find(self.kind).options_of(spec, self.graph)}
        return init_network(widths, key, kind=self.kind, encoding=encoding, **options)


class Steps(eqx.Module):
    """Batch size, steps ahead, optimiser and reward scale of a gradient step.

    Every field is static: another value needs another compilation.

    Attributes:
        batch_size: Rows of one gradient step.
        n_step: Number of logged rewards in the critics' targets, which are followed by the value of
            the last step's next observation. With more than one, rewards propagate faster, but
            targets are biased towards the behaviour.
        optimiser: Name of the optimiser in ``neorl_agents.optimisers.OPTIMISERS``.
        reward_scale: Divisor of the rewards: ``"std"``, ``"none"`` or ``"return_range"``; see
            :func:`neorl_agents.policies.prepare`.
    """

    batch_size: int = setting(256, low=1, static=True)
    n_step: int = setting(1, low=1, static=True)
    optimiser: str = eqx.field(static=True, default="adam")
    reward_scale: RewardScale = eqx.field(static=True, default="std")


def require(owner: Any, field: str, valid: bool, expected: str) -> None:
    """Raises a ``ValueError`` that names ``field`` of ``owner`` unless ``valid``.

    The field may be a path into nested settings, such as ``"networks.hidden"``.
    """
    if not valid:
        name = f"{type(owner).__name__}.{field}"
        raise ValueError(f"{name} must be {expected}, got {attrgetter(field)(owner)!r}")


def require_choice(owner: Any, field: str, choices: Collection[str]) -> None:
    """Refuses a field that is not one of ``choices``, such as the names in a registry."""
    # The membership test only looks up one name; listing a registry would read the files of every
    # distribution.
    if attrgetter(field)(owner) not in choices:
        require(owner, field, False, f"one of {', '.join(choices)}")


# Learning rates and weights that decay along a run, whose length the training loop sets.


WHOLE_RUN = -1
"""Length of a schedule that stands for the length of the run."""

Learner = TypeVar("Learner")


def cosine(step: Int[Array, ""], updates: int | Int[Array, ""]) -> Float[Array, ""]:
    """The factor ``(1 + cos(pi min(step / updates, 1))) / 2``, or 1 if ``updates`` is 0.

    Args:
        step: Number of updates made so far.
        updates: Updates over which the factor falls from 1 to 0; 0 for no schedule.

    Returns:
        A factor of a learning rate, in [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> [round(float(cosine(jnp.asarray(step), 10)), 2) for step in (0, 5, 10, 20)]
        [1.0, 0.5, 0.0, 0.0]
    """
    length = jnp.asarray(updates)
    progress = jnp.minimum(step / jnp.maximum(length, 1), 1.0)
    return jnp.where(length > 0, 0.5 * (1 + jnp.cos(jnp.pi * progress)), 1.0)


def linear(
    step: Int[Array, ""], updates: int | Int[Array, ""], final: float | Float[Array, ""]
) -> Float[Array, ""]:
    """The factor ``1 + (final - 1) min(step / updates, 1)``, or 1 if ``updates`` is 0.

    Args:
        step: Number of updates made so far.
        updates: Updates over which the factor falls from 1 to ``final``; 0 for no schedule.
        final: Factor at the end.

    Returns:
        A factor of a weight, between 1 and ``final``.

    Example:
        >>> import jax.numpy as jnp
        >>> [round(float(linear(jnp.asarray(step), 10, 0.5)), 2) for step in (0, 5, 10, 20)]
        [1.0, 0.75, 0.5, 0.5]
    """
    length = jnp.asarray(updates)
    progress = jnp.minimum(step / jnp.maximum(length, 1), 1.0)
    return jnp.where(length > 0, 1 + (jnp.asarray(final) - 1) * progress, 1.0)


def for_run(algorithm: Learner, updates: int) -> Learner:
    """The learner with every schedule that spans the run set to the run's length.

    A learner lists in its attribute ``schedules`` the fields that are lengths of schedules, in
    calls of ``update``. A field that is ``WHOLE_RUN`` (-1) becomes the length of the run. Training
    loops call this before anything else.

    Args:
        algorithm: Learner with plain numbers as fields.
        updates: Critic gradient steps of the run.

    Returns:
        The learner; the same object if no schedule spans the run.

    Example:
        >>> from neorl_agents import IQL
        >>> for_run(IQL(decay_updates=-1), 5_000).decay_updates
        5000
    """
    names = [name for name in _schedules(algorithm) if _is_whole_run(getattr(algorithm, name))]
    if not names:
        return algorithm
    calls = updates // algorithm.batches_per_update  # pyright: ignore[reportAttributeAccessIssue]
    return replace(algorithm, **dict.fromkeys(names, calls))  # pyright: ignore[reportArgumentType]


def require_planned(algorithm: Any) -> None:
    """Refuses a schedule that spans the run if the run's length was never set.

    Raises:
        ValueError: If there is one; the message names the field and says what to do.
    """
    for name in _schedules(algorithm):
        if _is_whole_run(getattr(algorithm, name)):
            field = f"{type(algorithm).__name__}.{name}"
            raise ValueError(
                f"{field} is {WHOLE_RUN}, which stands for the length of the run, but that length "
                "is not known here; give a number, or call "
                "neorl_agents.learning.for_run(algorithm, updates) first"
            )


def unfinished_schedules(algorithm: Any, updates: int) -> list[str]:
    """The schedules that end before the run does, so that their network would stop changing.

    Args:
        algorithm: Learner with plain numbers as fields.
        updates: Critic gradient steps of the run.

    Returns:
        Names of the fields.
    """
    calls = updates // algorithm.batches_per_update
    return [name for name in _schedules(algorithm) if 0 < getattr(algorithm, name) < calls]


def _schedules(algorithm: Any) -> tuple[str, ...]:
    return algorithm.schedules


def _is_whole_run(value: Any) -> bool:
    return isinstance(value, int) and value == WHOLE_RUN
