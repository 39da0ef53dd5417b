"""One update in float64 beside the papers' equations in NumPy.

Steps are plain gradient descent (``sgd``), so that a changed parameter shows its gradient; the
oracle's gradients are central differences of its own losses.
"""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import optax
import pytest

from neorl_agents.learning import unit_rows
from neorl_agents.optimisers import OPTIMISERS
from neorl_agents.testing import sized

RATE, STEP = 0.05, 1e-6
SMALL = {"hidden": (8, 8), "batch_size": 8, "optimiser": "sgd"}


@dataclass(frozen=True)
class Update:
    """One update: the learner, the state before it, its rows in a learner's units, what came."""

    algorithm: Any
    before: Any
    rows: Any
    batch: Any
    key: Any
    after: Any
    metrics: Any


def network(net: Any, x: np.ndarray) -> np.ndarray:
    """A perceptron with ReLU, layer normalisation where it has one, and its output function."""
    layers = list(zip(net.weights, net.biases, strict=True))
    for i, (weight, bias) in enumerate(layers[:-1]):
        x = np.maximum(x @ weight + bias, 0)
        if net.gains:
            off = x - x.mean(-1, keepdims=True)
            x = off / np.sqrt((off**2).mean(-1, keepdims=True) + 1e-6)
            x = x * net.gains[i] + net.shifts[i]
    weight, bias = layers[-1]
    x = x @ weight + bias
    return np.tanh(x) if net.output.__name__ == "tanh" else x


def member(critics: Any, i: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], critics)


def values(critics: Any, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """One row of values for every critic; any leading axes."""
    inputs = np.concatenate([obs, action], axis=-1)
    members = range(len(critics.weights[0]))
    return np.stack([network(member(critics, i), inputs)[..., 0] for i in members])


def descended(loss: Callable[[Any], float], tree: Any, rate: float = RATE) -> Any:
    """``tree`` one plain step down the gradient of ``loss``, by central differences."""
    leaves, structure = jax.tree.flatten(tree)
    leaves = [np.array(leaf, np.float64) for leaf in leaves]
    slopes = [np.zeros_like(leaf) for leaf in leaves]
    for leaf, slope in zip(leaves, slopes, strict=True):
        for index in np.ndindex(leaf.shape):
            here = leaf[index]
            leaf[index] = here + STEP
            above = loss(structure.unflatten(leaves))
            leaf[index] = here - STEP
            below = loss(structure.unflatten(leaves))
            leaf[index] = here
            slope[index] = (above - below) / (2 * STEP)
    moved = [leaf - rate * slope for leaf, slope in zip(leaves, slopes, strict=True)]
    return structure.unflatten(moved)


def mixed(slow: Any, fast: Any, tau: float) -> Any:
    return jax.tree.map(lambda s, f: (1 - tau) * s + tau * f, slow, fast)


def squashed(net: Any, obs: np.ndarray, noise: np.ndarray, low: float, high: float) -> Any:
    """Action of a tanh-Gaussian and its log-density, with the noise given."""
    mean, log_std = np.split(network(net, obs), 2, axis=-1)
    log_std = np.clip(log_std, low, high)
    latent = mean + np.exp(log_std) * noise
    density = -(noise**2) / 2 - log_std - np.log(2 * np.pi) / 2
    slope = 2 * (np.log(2) - np.logaddexp(latent, -latent))
    return np.tanh(latent), (density - slope).sum(-1)


def normal(key: Any, shape: tuple[int, ...]) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.random.normal(key, shape, np.float64))


def split(key: Any, number: int) -> list[Any]:
    return list(jax.random.split(key, number))


def agree(got: Any, expected: Any, tolerance: float = 1e-7) -> None:
    """Every leaf, relative to the largest of it."""
    paths = jax.tree_util.tree_leaves_with_path(got)
    for (path, mine), theirs in zip(paths, jax.tree.leaves(expected), strict=True):
        mine, theirs = np.asarray(mine), np.asarray(theirs)
        assert mine.dtype == np.float64
        scale = tolerance * max(np.abs(theirs).max(), 1e-3)
        np.testing.assert_allclose(mine, theirs, atol=scale, rtol=0, err_msg=str(path))


@contextmanager
def _sgd():
    if "sgd" not in OPTIMISERS:
        OPTIMISERS.register("sgd", optax.sgd)
    yield


@pytest.fixture(scope="session")
def parity(problem, state_of_form):
    """Functions of this file, and ``update(kind, **fields)``, which runs one update.

    The last ``masked`` rows of every batch do not count. ``log_std`` is added to the biases of the
    actor's log-deviations, channel by channel, so that some rows reach where they are clipped,
    ``returns`` to the log's returns. ``of`` is another problem, ``shifted`` what is added to the
    outputs of networks and of their targets, ``warmer`` to the logarithm of the temperature. The
    weights are those of ``init`` if ``from_init``.
    """

    def update(
        kind: type,
        *,
        at_step: int = 0,
        masked: int = 0,
        log_std: tuple = (),
        returns: float = 0.0,
        of: Any = problem,
        shifted: dict[str, float] | None = None,
        from_init: bool = False,
        warmer: float = 0.0,
        **fields: Any,
    ) -> Update:
        with _sgd():
            plain = sized(kind(), **SMALL, **fields)
            rates = {
                name: RATE
                for name in type(plain).__dataclass_fields__
                if name.endswith("learning_rate")
            }
            plain = replace(plain, **rates)
            state = (
                plain.init(of.spec, of.statistics, jax.random.key(0))
                if from_init
                else state_of_form(plain, of)
            )
            before = jax.tree.map(_perturbed(np.random.default_rng(3)), state)
            preparation = jax.tree.map(_wide, state.preparation)
            before = replace(before, preparation=preparation)
            if at_step:
                before = before.with_counters(updates=np.asarray(at_step, np.int32))
            if log_std:
                before.parameters["actor"].biases[-1][-len(log_std) :] += log_std
            for name, shift in (shifted or {}).items():
                for part in (before.parameters, before.targets):
                    if name in part:
                        part[name].biases[-1][:] += shift
            batch = jax.tree.map(_wide, of.batch(plain))
            _arrange(before, warmer)
            if returns:
                batch = batch._replace(mc_return=batch.mc_return + returns)
            if masked:
                shape = (plain.batches_per_update, plain.batch_size)
                mask = np.broadcast_to(np.arange(shape[1]) < shape[1] - masked, shape)
                batch = batch._replace(mask=mask)
            key = jax.random.key(7)
            with jax.enable_x64(True):
                learner = jax.tree.map(_wide, plain)
                after, metrics = jax.jit(kind.update)(learner, before, batch, key)
                after, metrics = jax.device_get((after, metrics))
                rows = jax.device_get(unit_rows(preparation, batch))
        return Update(plain, before, rows, batch, key, after, metrics)

    names = (network, member, values, descended, mixed, squashed, normal, split, agree)
    return SimpleNamespace(update=update, **{one.__name__: one for one in names}, rate=RATE)


def _arrange(before: Any, warmer: float) -> None:
    """Adds to the logarithm of the temperature, and lets the model predict every observation."""
    if "model" in before.context:  # Noise would have made some negative.
        before.context["model"].parameters["structure"].predicted[:] = 1
    if warmer:
        before.parameters["log_temperature"] = before.parameters["log_temperature"] + warmer


def _wide(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def _perturbed(rng: np.random.Generator) -> Callable[[Any], np.ndarray]:
    """So that no two networks are equal and no bias is zero."""

    def leaf(x: Any) -> np.ndarray:
        x = _wide(x)
        return x + 0.1 * rng.normal(size=x.shape) if x.dtype.kind == "f" else x

    return leaf
