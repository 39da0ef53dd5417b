"""A causal transformer over the last steps: returns and costs aimed at, observations, actions."""

from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_agents.networks._activations import gelu


class SequenceShape(NamedTuple):
    """Sizes of a :class:`SequenceNetwork`; all are integers.

    Attributes:
        steps: Largest number of steps that it sees.
        aims: Numbers aimed at in a step: the return, and each cost.
        n_obs: Observation channels.
        n_action: Action channels.
        n_out: Outputs at every step.
        n_forecast: Predictions at every action; zero for none.
        horizon: Number of step positions in an episode with their own embedding.
        width: Length of an embedding.
        layers: Number of attention blocks.
        heads: Number of attention heads; must divide ``width``.
    """

    steps: int
    aims: int
    n_obs: int
    n_action: int
    n_out: int
    n_forecast: int
    horizon: int
    width: int
    layers: int
    heads: int


class Steps(NamedTuple):
    """The last steps, oldest first, in the units of networks.

    Attributes:
        aim: Return and costs aimed at from each step on, shape ``(step, aim)``.
        obs: Observations, shape ``(step, obs)``.
        action: The action **before** each observation, shape ``(step, act)``.
        obs_known: Whether each observation is known, shape ``(step,)``.
        action_known: Whether each action is known, shape ``(step,)``.
        time: Index of each step in its episode, shape ``(step,)``.
    """

    aim: Float[Array, "step aim"]
    obs: Float[Array, "step obs"]
    action: Float[Array, "step act"]
    obs_known: Bool[Array, " step"]
    action_known: Bool[Array, " step"]
    time: Int[Array, " step"]


class SequenceNetwork(eqx.Module):
    """A causal transformer of ``equinox.nn``, on one sequence; use ``vmap`` for batches.

    Every step has a token for the return aimed at, one for the costs aimed at if there are any, one
    for the observation and, after it, one for the action. Each is an affine map of its numbers plus
    an embedding of the step's index in its episode. Blocks are ``x + attention(norm(x))`` and ``x +
    perceptron(norm(x))`` with GELU and four times the width inside. Unknown tokens are masked from
    attention. Outputs are read at the observations, so no output depends on its own action or on
    anything later.

    Attributes:
        arrays: The arrays of the modules, in their own structure.
        shape: Sizes; static.

    Source: Chen et al., Decision transformer, arXiv 2106.01345; normalisation before each part as
    in CORL's code.
    """

    arrays: Any
    shape: SequenceShape = eqx.field(static=True)

    def __call__(
        self, steps: Steps
    ) -> tuple[Float[Array, "step out"], Float[Array, "step forecast"]]:
        """The outputs at every step, and the predictions at the action of every step.

        The prediction at the newest step has no meaning, because its action is not known yet.
        """
        body = eqx.combine(self.arrays, _without_arrays(self.shape))
        n, tokens_per_step = len(steps.time), 3 if self.shape.aims == 1 else 4
        time = jnp.take(body.time.weight, steps.time, axis=0, mode="clip")
        # The action after each observation; that of the newest is not known yet.
        previous_actions = jnp.concatenate([steps.action[1:], jnp.zeros_like(steps.action[:1])])
        sent_known = jnp.concatenate(
            [steps.action_known[1:], jnp.zeros_like(steps.action_known[:1])]
        )
        parts = [_rows(body.returns, steps.aim[:, :1]) + time]
        if tokens_per_step == 4:
            parts.insert(0, _rows(body.costs, steps.aim[:, 1:]) + time)
        parts.append(_rows(body.obs, steps.obs) + time)
        parts.append(_rows(body.action, previous_actions) + time)
        known = jnp.stack([steps.obs_known] * (tokens_per_step - 1) + [sent_known], axis=1).reshape(
            -1
        )
        x = jax.vmap(body.first_norm)(jnp.stack(parts, axis=1).reshape(n * tokens_per_step, -1))
        order = jnp.arange(n * tokens_per_step)
        # A token always attends to itself, so the softmax is defined even if nothing is known.
        mask = (order[None, :] <= order[:, None]) & known[None, :] | jnp.eye(
            n * tokens_per_step, dtype=bool
        )
        for block in body.blocks:
            y = jax.vmap(block.attention_norm)(x)
            x = x + block.attention(y, y, y, mask=mask)
            y = jax.vmap(block.inner_norm)(x)
            x = x + _rows(block.outer, gelu(_rows(block.inner, y)))
        x = jax.vmap(body.last_norm)(x).reshape(n, tokens_per_step, -1)
        outputs = _rows(body.head, x[:, tokens_per_step - 2])
        if not self.shape.n_forecast:
            return outputs, jnp.zeros((n, 0), outputs.dtype)
        return outputs, _rows(body.forecast, x[:, tokens_per_step - 1])


def _rows(layer: Any, x: Float[Array, "row inputs"]) -> Float[Array, "row outputs"]:
    """``layer`` of every row as one matrix product, which its own is not under two ``vmap``."""
    return x @ layer.weight.T + layer.bias[None]


class _Block(eqx.Module):
    attention_norm: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    inner_norm: eqx.nn.LayerNorm
    inner: eqx.nn.Linear
    outer: eqx.nn.Linear


class _Body(eqx.Module):
    returns: eqx.nn.Linear
    costs: eqx.nn.Linear | None
    obs: eqx.nn.Linear
    action: eqx.nn.Linear
    time: eqx.nn.Embedding
    first_norm: eqx.nn.LayerNorm
    blocks: tuple[_Block, ...]
    last_norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear
    forecast: eqx.nn.Linear | None


def init_sequence_network(shape: SequenceShape, key: PRNGKeyArray) -> SequenceNetwork:
    """A transformer with fresh weights: matrices from ``N(0, 0.02^2)``, no biases, unit gains.

    Args:
        shape: Sizes.
        key: Random key; consumed.

    Returns:
        The network, float32.

    Raises:
        ValueError: If the heads do not divide the width.
    """
    if shape.width % shape.heads:
        raise ValueError(
            f"the width must be a multiple of the number of heads, got width {shape.width} and "
            f"{shape.heads} heads"
        )
    arrays = eqx.filter(eqx.filter_eval_shape(_body, shape, key), _is_shape)
    leaves, structure = jax.tree.flatten_with_path(arrays)
    sizes = [leaf.size if leaf.ndim == 2 else 0 for _, leaf in leaves]
    noise, start, values = jax.random.normal(key, (sum(sizes),), jnp.float32), 0, []
    for (path, leaf), size in zip(leaves, sizes, strict=True):
        if size:
            values.append(0.02 * noise[start : start + size].reshape(leaf.shape))
            start += size
        else:
            is_gain = "norm" in jax.tree_util.keystr(path) and "weight" in jax.tree_util.keystr(
                path
            )
            values.append(jnp.full(leaf.shape, float(is_gain), jnp.float32))
    return SequenceNetwork(jax.tree.unflatten(structure, values), shape)


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _body(shape: SequenceShape, key: PRNGKeyArray) -> _Body:
    keys, width = iter(jax.random.split(key, 8 + 3 * shape.layers)), shape.width

    def linear(n_in: int, n_out: int) -> eqx.nn.Linear:
        return eqx.nn.Linear(n_in, n_out, key=next(keys))

    def block() -> _Block:
        # A bias of the keys would shift all scores of a query equally, and so change nothing.
        attention = eqx.nn.MultiheadAttention(
            shape.heads, width, use_query_bias=True, use_value_bias=True, use_output_bias=True,
            key=next(keys),
        )  # fmt: skip
        norms = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)
        return _Block(
            norms[0], attention, norms[1], linear(width, 4 * width), linear(4 * width, width)
        )

    return _Body(
        returns=linear(1, width),
        costs=linear(shape.aims - 1, width) if shape.aims > 1 else None,
        obs=linear(shape.n_obs, width),
        action=linear(shape.n_action, width),
        time=eqx.nn.Embedding(shape.horizon, width, key=next(keys)),
        first_norm=eqx.nn.LayerNorm(width),
        blocks=tuple(block() for _ in range(shape.layers)),
        last_norm=eqx.nn.LayerNorm(width),
        head=linear(width, shape.n_out),
        forecast=linear(width, shape.n_forecast) if shape.n_forecast else None,
    )


@cache
def _without_arrays(shape: SequenceShape) -> Any:
    """The parts of the modules that are not arrays; one object per shape, so nothing retraces."""
    body = eqx.filter_eval_shape(_body, shape, jax.random.key(0))
    return eqx.filter(body, _is_shape, inverse=True)
