"""Encoders of the recent past in front of a perceptron: none, a stack, or a recurrent unit."""

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

    ``"none"``: the observation alone. ``"history"``: the last ``steps`` observations, the actions
    before them and what of it is known, side by side. ``"gru"``: the same numbers, which every
    network reads step by step with a recurrent unit of its own.

    Attributes:
        encoder: Name of the encoder.
        steps: Length of the window; the present observation is its last step.
        n_obs: Number of observation channels.
        n_action: Number of action channels.
    """

    encoder: Encoder
    steps: int
    n_obs: int
    n_action: int

    @property
    def step_width(self) -> int:
        """Numbers of one step of the window."""
        return self.n_obs + self.n_action + FLAGS

    @property
    def width(self) -> int:
        """Numbers of an observation as networks see it."""
        return self.n_obs if self.encoder == "none" else self.steps * self.step_width

    @property
    def window(self) -> int:
        """Length of the window, zero where there is none."""
        return 0 if self.encoder == "none" else self.steps


class RecurrentNetwork(eqx.Module):
    """A recurrent unit over the window, then a perceptron on its last state and the newest step.

    ``head([h, x_newest, rest])``, with ``h`` from zero over the steps of which anything is known.

    Attributes:
        cell: Recurrent unit.
        head: Network, such as a perceptron.
        steps: Length of the window; static.
    """

    cell: GRU
    head: Network
    steps: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """The output for windows laid flat, oldest step first, and whatever stands behind them."""
        width = self.cell.weight.shape[-2]
        window, rest = jnp.split(x, [self.steps * width], axis=-1)
        window = window.reshape(*x.shape[:-1], self.steps, width)
        hidden = self.cell.last(window, jnp.any(window[..., -FLAGS:] > 0, axis=-1))
        return self.head(jnp.concatenate([hidden, window[..., -1, :], rest], axis=-1))

    @property
    def n_outputs(self) -> int:
        """Numbers along the last axis of the result."""
        return self.head.n_outputs

    def first_outputs(self, count: int, *, output: Activation | None = None) -> "RecurrentNetwork":
        """The network of the first outputs alone."""
        return replace(self, head=self.head.first_outputs(count, output=output))


class ZeroInputs(eqx.Module):
    """A network whose last inputs are zero: one that was trained on noise, at its middle.

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
        """Numbers along the last axis of the result."""
        return self.network.n_outputs

    def first_outputs(self, count: int, *, output: Activation | None = None) -> "ZeroInputs":
        """The network of the first outputs alone."""
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
        encoding: Form of the observation; ``None`` is the observation alone.
        **options: Further ones of :func:`init_mlp`.

    Returns:
        A perceptron, behind a recurrent unit for ``"gru"``.
    """
    if encoding is None or encoding.encoder != "gru":
        return NETWORKS.find(kind).init(widths, key, **options)
    cell_key, head_key = jax.random.split(key)
    rest = widths[0] - encoding.width
    head = NETWORKS.find(kind).init(
        (widths[1] + encoding.step_width + rest, *widths[1:]), head_key, **options
    )
    return RecurrentNetwork(
        init_gru(encoding.step_width, widths[1], cell_key), head, encoding.steps
    )
