"""What ``core.py`` times, and its cases of returns and losses beside rlax and optax.

A case is in our form and in that of a peer, at three sizes. Its functions get their data as a user
holds it and give comparable numbers: they are compared before they are timed. Compiled functions
are warm by then.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Variants = Mapping[str, Callable[[], Any]]


class Case(NamedTuple):
    """One comparison.

    Attributes:
        name: What is computed.
        peer: Import name of the distribution that it is compared with.
        sizes: Three sizes; what they count is in ``unit``.
        unit: What a size counts.
        build: From a size to the two functions without arguments, ``ours`` and the peer's name.
        rtol: How near the two results must be; random intervals are only alike.
    """

    name: str
    peer: str
    sizes: tuple[int, int, int]
    unit: str
    build: Callable[[int], Variants]
    rtol: float = 1e-4


def random(*shape: int, seed: int = 0) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def pair(peer: str, ours: Callable, theirs: Callable, *args: Any) -> Variants:
    """Both compiled, on the same arguments."""
    import jax

    compiled = {"ours": jax.jit(ours), peer: jax.jit(theirs)}
    return {name: (lambda fn=fn: fn(*args)) for name, fn in compiled.items()}


def cases() -> list[Case]:
    """Of the returns and losses."""
    steps, batch = (100, 1_000, 10_000), (256, 16_384, 1_048_576)
    return [
        Case("generalised advantages", "rlax", steps, "steps of 16 trajectories", _gae, 1e-3),
        Case("TD(lambda) returns", "rlax", steps, "steps of 16 trajectories", _lambda_returns),
        Case("discounted returns", "rlax", steps, "steps of 16 trajectories", _discounted),
        Case("5-step returns", "rlax", steps, "steps of 16 trajectories", _n_step),
        Case("quantile Huber loss, slope", "rlax", (32, 256, 2_048), "pairs", _quantile_huber),
        Case("PPO loss, slope", "rlax", batch, "actions", _ppo),
        Case("squared loss, slope", "optax", batch, "errors", _squared),
        Case("Huber loss, slope", "optax", batch, "errors", _huber),
        Case("polyak average", "optax", (64, 256, 1_024), "width of three layers", _polyak),
    ]


def _episodes(steps: int) -> tuple[Any, ...]:
    """Rewards, values, next values and terminations of 16 trajectories."""
    values = random(16, steps + 1, seed=1)
    terminated = random(16, steps, seed=2) > 2
    return random(16, steps), values[:, :-1], values[:, 1:], terminated


def _gae(steps: int) -> Variants:
    import jax
    import jax.numpy as jnp

    from neorl_core.returns import generalised_advantages

    rlax = importlib.import_module("rlax")

    def ours(reward: Any, value: Any, following: Any, ended: Any) -> Any:
        def one(*rows: Any) -> Any:
            return generalised_advantages(*rows, discount=0.99, lam=0.95)

        return jax.vmap(one)(reward, value, following, ended)

    def theirs(reward: Any, value: Any, following: Any, ended: Any) -> Any:
        def one(reward: Any, value: Any, following: Any, ended: Any) -> Any:
            values = jnp.append(value, following[-1])
            factor = 0.99 * (1.0 - ended)
            return rlax.truncated_generalized_advantage_estimation(reward, factor, 0.95, values)

        return jax.vmap(one)(reward, value, following, ended)

    return pair("rlax", ours, theirs, *_episodes(steps))


def _of_next_values(ours: Callable, theirs: Callable, steps: int) -> Variants:
    """Returns from rewards, next values and terminations; a factor stands for the last at rlax."""
    import jax

    def with_factors(reward: Any, following: Any, ended: Any) -> Any:
        return theirs(reward, 0.99 * (1.0 - ended), following)

    reward, _, following, ended = _episodes(steps)
    return pair("rlax", jax.vmap(ours), jax.vmap(with_factors), reward, following, ended)


def _lambda_returns(steps: int) -> Variants:
    from neorl_core.returns import td_lambda_returns

    rlax = importlib.import_module("rlax")
    return _of_next_values(
        lambda *rows: td_lambda_returns(*rows, discount=0.99, lam=0.9),
        lambda *rows: rlax.lambda_returns(*rows, 0.9),
        steps,
    )


def _n_step(steps: int) -> Variants:
    from neorl_core.returns import n_step_returns

    rlax = importlib.import_module("rlax")
    return _of_next_values(
        lambda *rows: n_step_returns(*rows, n=5, discount=0.99),
        lambda *rows: rlax.n_step_bootstrapped_returns(*rows, 5),
        steps,
    )


def _discounted(steps: int) -> Variants:
    import jax

    from neorl_core.returns import discounted_returns

    rlax = importlib.import_module("rlax")

    def ours(reward: Any) -> Any:
        return jax.vmap(lambda reward: discounted_returns(reward, discount=0.99))(reward)

    def theirs(reward: Any) -> Any:
        def one(reward: Any) -> Any:
            return rlax.discounted_returns(reward, 0.99 + 0 * reward, 0 * reward)

        return jax.vmap(one)(reward)

    return pair("rlax", ours, theirs, random(16, steps))


def _quantile_huber(pairs: int) -> Variants:
    import jax
    import jax.numpy as jnp

    from neorl_core.losses import quantile_huber_loss

    rlax = importlib.import_module("rlax")
    levels = (jnp.arange(32) + 0.5) / 32

    def slope(loss: Callable) -> Callable:
        def mean(prediction: Any, target: Any) -> Any:
            return jnp.mean(jax.vmap(loss)(prediction, target))

        return jax.value_and_grad(mean)

    return pair(
        "rlax",
        slope(lambda p, t: quantile_huber_loss(p, t, levels, delta=1.0)),
        slope(lambda p, t: rlax.quantile_regression_loss(p, levels, t, 1.0)),
        random(pairs, 32),
        random(pairs, 32, seed=1),
    )


def _ppo(batch: int) -> Variants:
    import jax
    import jax.numpy as jnp

    from neorl_core.losses import ppo_clipped_loss

    rlax = importlib.import_module("rlax")

    def ours(new: Any, old: Any, advantage: Any) -> Any:
        return jnp.mean(ppo_clipped_loss(new, old, advantage, epsilon=0.2))

    def theirs(new: Any, old: Any, advantage: Any) -> Any:
        return rlax.clipped_surrogate_pg_loss(jnp.exp(new - old), advantage, 0.2)

    new, old = random(batch), random(batch, seed=1)
    # At the edges of the clip the slope has two values, and rounding chooses.
    ratio = jnp.exp(new - old)
    at_an_edge = jnp.minimum(jnp.abs(ratio - 0.8), jnp.abs(ratio - 1.2)) < 1e-4
    data = (jnp.where(at_an_edge, new + 0.01, new), old, random(batch, seed=2))
    return pair("rlax", jax.value_and_grad(ours), jax.value_and_grad(theirs), *data)


def _regression(ours: Callable, theirs: Callable, batch: int) -> Variants:
    import jax
    import jax.numpy as jnp

    def slope(loss: Callable) -> Callable:
        return jax.value_and_grad(lambda a, b: jnp.mean(loss(a, b)))

    return pair("optax", slope(ours), slope(theirs), random(batch), random(batch, seed=1))


def _squared(batch: int) -> Variants:
    import optax

    from neorl_core.losses import squared_loss

    return _regression(squared_loss, optax.squared_error, batch)


def _huber(batch: int) -> Variants:
    import optax

    from neorl_core.losses import huber_loss

    return _regression(huber_loss, optax.huber_loss, batch)


def _polyak(width: int) -> Variants:
    import optax

    from neorl_core.targets import polyak

    def network(seed: int) -> Any:
        return [{"w": random(width, width, seed=seed + i), "b": random(width)} for i in range(3)]

    return pair(
        "optax",
        lambda target, online: polyak(target, online, tau=0.005),
        lambda target, online: optax.incremental_update(online, target, 0.005),
        network(0),
        network(3),
    )
