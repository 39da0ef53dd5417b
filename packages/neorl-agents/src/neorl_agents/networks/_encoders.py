"""Encoders of the recent past before a perceptron: none, a stack, or a recurrent unit."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.networks._activations import Activation
from neorl_agents.networks._gru import GRU, init_gru
from neorl_agents.networks._kinds import NETWORKS, Network
from neorl_agents.networks._windows import FLAGS

Encoder = Literal["none", "history", "gru"]
"""How the networks of a learner see the past; see :class:`Encoding`."""

ENCODERS: tuple[Encoder, ...] = ("none", "history", "gru")


class Encoding(NamedTuple):
    """The form in which observations reach networks: numbers and a name, static.

    ``"none"``: the observation itself. ``"history"``: the last ``steps`` observations, the actions
    before them and flags for what is known, concatenated. ``"gru"``: the same numbers, which every
    network reads step by step with its own recurrent unit.

    Attributes:
        encoder: Name of the encoder.
        steps: Length of the window; the current observation is its last step.
        n_obs: Number of observation channels.
        n_action: Number of action channels.
    """

    encoder: Encoder
    steps: int
    n_obs: int
    n_action: int

    @property
    def step_width(self) -> int:
        """Length of one step of the window."""
        return self.n_obs + self.n_action + FLAGS

    @property
    def width(self) -> int:
        """Length of an observation as networks see it."""
        return self.n_obs if self.encoder == "none" else self.steps * self.step_width

    @property
    def window(self) -> int:
        """Length of the window, zero if there is none."""
        return 0 if self.encoder == "none" else self.steps


class RecurrentNetwork(eqx.Module):
    """A recurrent unit over the window, then a perceptron on its last state and the newest step.

    ``head([h, x_newest, rest])``, where ``h`` starts from zero and skips steps that are unknown.

    Attributes:
        cell: Recurrent unit.
        head: Network, such as a perceptron.
        steps: Length of the window; static.
    """

    cell: GRU
    head: Network
    steps: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """The output for flattened windows, oldest step first, followed by any further inputs."""
        width = self.cell.weight.shape[-2]
        window, n_rest = jnp.split(x, [self.steps * width], axis=-1)
        window = window.reshape(*x.shape[:-1], self.steps, width)
        hidden = self.cell.last(window, jnp.any(window[..., -FLAGS:] > 0, axis=-1))
        return self.head(jnp.concatenate([hidden, window[..., -1, :], n_rest], axis=-1))

    @property
    def n_outputs(self) -> int:
        """Length of the last axis of the result."""
        return self.head.n_outputs

    def first_outputs(self, count: int, *, output: Activation | None = None) -> "RecurrentNetwork":
        """The network with only its first outputs."""
        return replace(self, head=self.head.first_outputs(count, output=output))


class ZeroInputs(eqx.Module):
    """A network whose last inputs are zero: one trained on noise, evaluated at its middle.

    Attributes:
        network: The network.
        count: Number of the inputs that are zero; static.
    """

    network: Network
    count: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """The outputs for the other inputs along the last axis."""
        zeros = jnp.zeros((*x.shape[:-1], self.count), x.dtype)
        return self.network(jnp.concatenate([x, zeros], axis=-1))

    @property
    def n_outputs(self) -> int:
        """Length of the last axis of the result."""
        return self.network.n_outputs

    def first_outputs(self, count: int, *, output: Activation | None = None) -> "ZeroInputs":
        """The network with only its first outputs."""
        return replace(self, network=self.network.first_outputs(count, output=output))


def init_network(
    widths: Sequence[int],
    key: PRNGKeyArray,
    *,
    kind: str = "mlp",
    encoding: Encoding | None = None,
    **options: Any,
) -> Network:
    """A network with fresh weights that reads observations in the form of ``encoding``.

    Args:
        widths: Lengths of the input, of every hidden layer and of the output. The first
            ``encoding.width`` inputs are the observation. A recurrent unit is as wide as the first
            hidden layer.
        key: Random key; consumed.
        kind: Name of an entry of :data:`NETWORKS`.
        encoding: Form of the observation; ``None`` is the observation itself.
        **options: Further options of :func:`init_mlp`.

    Returns:
        A perceptron; for ``"gru"`` after a recurrent unit.
    """
    if encoding is None or encoding.encoder != "gru":
        return NETWORKS.find(kind).init(widths, key, **options)
    cell_key, head_key = jax.random.split(key)
    n_rest = widths[0] - encoding.width
    head = NETWORKS.find(kind).init(
        (widths[1] + encoding.step_width + n_rest, *widths[1:]), head_key, **options
    )
    return RecurrentNetwork(
        init_gru(encoding.step_width, widths[1], cell_key), head, encoding.steps
    )
