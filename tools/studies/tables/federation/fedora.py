"""FEDORA, restated from its paper and its published code, on the logs of the study of retuning.

Sites train TD3+BC and send actor and critic. The server averages them with weights that grow with
what each site's critic thinks of its own actor on its own log. A site is pulled towards the common
actor and towards its own last one, takes the larger of its own and the common target value, and
trusts its log less after every round in which the common actor is worth more to it than its own.

Differences: two layers of 64 in place of 256, batches of 128 in place of 256, observations
standardised and rewards divided by their deviation over all logs, and far fewer updates.
Source: Rengarajan, Ragothaman, Kalathil and Shakkottai, NeurIPS 2024, arXiv 2305.03097, and the
simulation in github.com/DesikRengarajan/FEDORA, with its default numbers.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from neorl_core import Spec, Transition, highs, lows

DISCOUNT, TAU, NOISE, NOISE_CLIP, BC, DELAY, RATE = 0.99, 0.005, 0.2, 0.5, 2.5, 2, 3e-4
TO_COMMON, TO_LAST, TEMPERATURE, DECAY = 1.0, 1.0, 0.1, 0.995
WIDTH, BATCH, ROUNDS, CYCLES = 64, 128, 40, 125

Layers = list[tuple[Array, Array]]


class Nets(NamedTuple):
    """An actor and two critics; layers as weights and biases."""

    actor: Layers
    critics: tuple[Layers, Layers]


class Anchors(NamedTuple):
    """What does not move while a site trains: common nets, its own last actor, and its decay."""

    common: Nets
    last: Layers
    decay: Array


class Rows(NamedTuple):
    """Rows of a log in the units of the nets; actions within [-1, 1]."""

    obs: Array
    action: Array
    reward: Array
    next_obs: Array
    alive: Array


def net(layers: Layers, inputs: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
    """Affine layers with ReLU between them."""
    *hidden, last = layers
    for layer in hidden:
        inputs = jnp.maximum(affine(layer, inputs), 0)
    return affine(last, inputs)


def affine(layer: tuple[Array, Array], inputs: Float[Array, "*batch in"]) -> Array:
    """One layer, with its bias for every row."""
    weight, bias = layer
    return inputs @ weight + jnp.broadcast_to(bias, (*inputs.shape[:-1], len(bias)))


def act(layers: Layers, obs: Float[Array, "*batch obs"]) -> Float[Array, "*batch act"]:
    """The actor's action."""
    return jnp.tanh(net(layers, obs))


def value(layers: Layers, obs: Array, action: Array) -> Float[Array, "*batch"]:
    """A critic's value."""
    return net(layers, jnp.concatenate([obs, action], axis=-1))[..., 0]


def critic_loss(
    critics: tuple[Layers, Layers], target: Nets, common: Nets, rows: Rows, noise: Array
) -> Float[Array, ""]:
    """Squared errors from ``r + discount max(min Q_target, min Q_common)`` at the noisy action."""
    after = jnp.clip(act(target.actor, rows.next_obs) + noise, -1, 1)
    own, shared = (
        jnp.minimum(*(value(one, rows.next_obs, after) for one in nets.critics))
        for nets in (target, common)
    )
    goal = rows.reward + DISCOUNT * rows.alive * jnp.maximum(own, shared)
    errors = (value(one, rows.obs, rows.action) - goal for one in critics)
    return sum(jnp.mean(error**2) for error in errors)  # pyright: ignore[reportReturnType]


def actor_loss(actor: Layers, critic: Layers, anchors: Anchors, rows: Rows) -> Float[Array, ""]:
    """TD3+BC times the decay, with squared distances from the common and the last actor."""
    action = act(actor, rows.obs)
    values = value(critic, rows.obs, action)
    scale = BC / jax.lax.stop_gradient(jnp.abs(values).mean())
    cloned = jnp.mean((action - rows.action) ** 2)
    pulled = TO_COMMON * jnp.mean((action - act(anchors.common.actor, rows.obs)) ** 2)
    pulled += TO_LAST * jnp.mean((action - act(anchors.last, rows.obs)) ** 2)
    return anchors.decay * (cloned - scale * values.mean()) + pulled


def worth(nets: Nets, rows: Rows) -> Float[Array, ""]:
    """What the first critic thinks of the actor on a log."""
    return value(nets.critics[0], rows.obs, act(nets.actor, rows.obs)).mean()


def weights(worths: Float[np.ndarray, " site"]) -> Float[np.ndarray, " site"]:
    """The share of every site: ``exp(temperature worth)``, normalised."""
    shares = np.exp(TEMPERATURE * (worths - worths.max()))
    return shares / shares.sum()


@partial(jax.jit, static_argnums=0)
def train(cycles: int, state: tuple[Nets, Any], target: Nets, anchors: Anchors, rows: Rows,
          key: Array) -> tuple[tuple[Nets, Any], Nets]:  # fmt: skip
    """Trains a site: in every cycle some steps of the critics and one of the actor."""
    adam = optax.adam(RATE)

    def cycle(carry: Any, key: Array) -> tuple[Any, None]:
        (nets, moments), target = carry
        actor_moments, critic_moments = moments
        batch = rows
        for k in jax.random.split(key, DELAY):
            draw, shake = jax.random.split(k)
            index = jax.random.randint(draw, (BATCH,), 0, len(rows.reward))
            batch = jax.tree.map(lambda column, index=index: column[index], rows)
            noise = NOISE * jax.random.normal(shake, batch.action.shape)
            noise = jnp.clip(noise, -NOISE_CLIP, NOISE_CLIP)
            slope = jax.grad(critic_loss)(nets.critics, target, anchors.common, batch, noise)
            change, critic_moments = adam.update(slope, critic_moments)
            nets = nets._replace(critics=optax.apply_updates(nets.critics, change))
        slope = jax.grad(actor_loss)(nets.actor, nets.critics[0], anchors, batch)
        change, actor_moments = adam.update(slope, actor_moments)
        nets: Any = nets._replace(actor=optax.apply_updates(nets.actor, change))
        target = jax.tree.map(lambda slow, fast: slow + TAU * (fast - slow), target, nets)
        return ((nets, (actor_moments, critic_moments)), target), None

    return jax.lax.scan(cycle, (state, target), jax.random.split(key, cycles))[0]


class ActorPolicy(eqx.Module):
    """The common actor in physical units."""

    actor: Layers
    scale: Array
    low: Array
    high: Array

    def initial_carry(self) -> tuple[()]:
        """No memory."""
        return ()

    def __call__(self, carry: Any, obs: Array, key: Any = None) -> tuple[Any, Array]:
        """The action for one observation."""
        action = act(self.actor, (obs - self.scale[0]) / self.scale[1])
        return carry, self.low + (action + 1) / 2 * (self.high - self.low)

    def sent(self, carry: Any, action: Array) -> Any:
        """Nothing to remember."""
        return carry


def fedora(logs: list[Transition], spec: Spec, seed: int) -> ActorPolicy:
    """The common actor after all rounds of sites with these logs."""
    columns = [np.concatenate([np.asarray(getattr(log, n)) for log in logs])
               for n in ("obs", "reward")]  # fmt: skip
    scale = np.stack([columns[0].mean(axis=0), np.maximum(columns[0].std(axis=0), 1e-6)])
    low, high = (np.asarray(ends(spec.action), np.float32) for ends in (lows, highs))

    def rows_of(log: Transition) -> Rows:
        columns_of: Any = Rows
        obs, after = ((np.asarray(x) - scale[0]) / scale[1] for x in (log.obs, log.next_obs))
        action = 2 * (np.asarray(log.action) - low) / (high - low) - 1
        return jax.tree.map(
            lambda x: jnp.asarray(x, jnp.float32),
            columns_of(obs, action, np.asarray(log.reward) / columns[1].std(), after,
                 ~np.asarray(log.terminated)),
        )  # fmt: skip

    def fresh(key: Array, sizes: tuple[int, ...]) -> Layers:
        keys = jax.random.split(key, len(sizes) - 1)
        bounds = [n**-0.5 for n in sizes]
        return [(jax.random.uniform(k, (n, m), minval=-b, maxval=b), jnp.zeros(m))
                for k, n, m, b in zip(keys, sizes, sizes[1:], bounds, strict=False)]  # fmt: skip

    sites, keys = [rows_of(log) for log in logs], jax.random.split(jax.random.key(seed), 3)
    n, m = spec.n_obs, spec.n_action
    first, second = (fresh(key, (n + m, WIDTH, WIDTH, 1)) for key in keys[1:])
    common = Nets(fresh(keys[0], (n, WIDTH, WIDTH, m)), (first, second))
    adam = optax.adam(RATE)
    moments: list[Any] = [(adam.init(common.actor), adam.init(common.critics)) for _ in sites]
    targets, last, decay = [common] * len(sites), [common.actor] * len(sites), np.ones(len(sites))
    for round_ in range(ROUNDS):
        trained, worths = [], np.zeros(len(sites))
        for i, rows in enumerate(sites):
            key = jax.random.fold_in(jax.random.key(seed), round_ * len(sites) + i)
            anchors = Anchors(common, last[i], jnp.float32(decay[i]))
            (nets, moments[i]), targets[i] = train(
                CYCLES, (common, moments[i]), targets[i], anchors, rows, key
            )
            worths[i], last[i] = float(worth(nets, rows)), nets.actor
            decay[i] *= DECAY if float(worth(common, rows)) > worths[i] else 1.0
            trained.append(nets)
        shares = weights(worths)
        common = jax.tree.map(lambda *x, s=shares: sum(a * b for a, b in zip(s, x, strict=True)),
                              *trained)  # fmt: skip
    return ActorPolicy(common.actor, *(jnp.asarray(x, jnp.float32) for x in (scale, low, high)))
