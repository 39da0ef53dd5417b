import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.losses import (
    edac_diversity,
    ppo_clipped_loss,
    reinforce_loss,
    sac_policy_loss,
    sac_temperature_loss,
)
from neorl_core.testing import (
    LENGTHS,
    Edge,
    Refusal,
    Row,
    assert_close,
    decades,
    finite_grad,
    in_units,
    mapped,
    reals,
    rows,
    series,
)

GAINS = st.sampled_from(LENGTHS).flatmap(
    lambda n: st.tuples(*[rows(n, elements=reals(-8, 8))] * 2, in_units(rows(n)))
)
PPO = reals(0.0625, 0.5).map(lambda epsilon: {"epsilon": epsilon})
ENTROPY = reals(-10, 10).map(lambda entropy: {"target_entropy": entropy})


def reinforce_by_hand(log_prob, returns, baseline):
    return np.asarray([-p * (g - b) for p, g, b in zip(log_prob, returns, baseline, strict=True)])


def only_log_prob_has_a_gradient(log_prob, returns, baseline):
    to_log_prob, to_returns, to_baseline = finite_grad(reinforce_loss, log_prob, returns, baseline)
    weights = 1 + np.cos(np.arange(log_prob.shape[1])) / 2
    assert_close(to_log_prob, weights * (baseline - returns))
    assert not np.any(to_returns)
    assert not np.any(to_baseline)


def ppo_by_cases(log_prob, old_log_prob, advantage, *, epsilon):
    losses = []
    for new, old, gain in zip(log_prob, old_log_prob, advantage, strict=True):
        ratio = np.exp(new - old)
        clipped = min(max(ratio, 1 - epsilon), 1 + epsilon)
        losses.append(-min(ratio * gain, clipped * gain))
    return np.asarray(losses)


def no_gradient_beyond_the_trusted_gain(log_prob, old_log_prob, advantage, *, epsilon):
    """Where moving further would only add to the gain counted, there is no slope."""
    slope, to_old, to_gain = finite_grad(
        ppo_clipped_loss, log_prob, old_log_prob, advantage, epsilon=epsilon
    )
    ratio = np.exp(log_prob.astype(np.float64) - old_log_prob)
    beyond = ((ratio > 1 + epsilon + 1e-3) & (advantage > 0)) | (
        (ratio < 1 - epsilon - 1e-3) & (advantage < 0)
    )
    assert not np.any(np.where(beyond, slope, 0))
    assert not np.any(to_old)
    assert not np.any(to_gain)


def never_better_than_unclipped(log_prob, old_log_prob, advantage, *, epsilon):
    loss = mapped(ppo_clipped_loss, log_prob, old_log_prob, advantage, epsilon=epsilon)
    plain = -np.exp(log_prob.astype(np.float64) - old_log_prob) * advantage
    assert np.all(np.asarray(loss) >= plain - 1e-5 * np.abs(plain))


def sac_by_cases(log_prob, values, *, temperature):
    return np.asarray([temperature * p - min(values[:, i]) for i, p in enumerate(log_prob)])


def the_least_critic_alone_is_climbed(log_prob, values, *, temperature):
    to_log_prob, to_values = finite_grad(sac_policy_loss, log_prob, values, temperature=temperature)
    weights = 1 + np.cos(np.arange(log_prob.shape[1])) / 2
    assert_close(to_log_prob, np.broadcast_to(weights * np.float32(temperature), log_prob.shape))
    assert_close(np.sum(to_values, axis=1), np.broadcast_to(-weights, log_prob.shape))
    least = values == values.min(axis=1, keepdims=True)
    assert not np.any(np.where(least, 0, to_values))


def temperature_by_hand(log_temperature, log_prob, *, target_entropy):
    return np.asarray([-np.exp(log_temperature) * (p + target_entropy) for p in log_prob])


def falls_where_entropy_is_high(log_temperature, log_prob, *, target_entropy):
    """Gradient descent lowers the temperature where the policy's entropy exceeds the target."""
    slope, to_log_prob = finite_grad(
        sac_temperature_loss, log_temperature, log_prob, target_entropy=target_entropy
    )
    weights = 1 + np.cos(np.arange(log_prob.shape[1])) / 2
    surplus = np.sum(weights * -(log_prob.astype(np.float64) + target_entropy), axis=1)
    assert_close(slope, np.exp(log_temperature) * surplus, atol=1e-5, rtol=1e-4)
    assert not np.any(to_log_prob)


def cosines_by_loops(gradients):
    total = 0.0
    for i, first in enumerate(gradients):
        for j, second in enumerate(gradients):
            sizes = np.sqrt(np.sum(first**2)) * np.sqrt(np.sum(second**2))
            if i != j and min(np.max(np.abs(first)), np.max(np.abs(second))) > np.float32(1e-10):
                total += np.sum(first * second) / sizes
    return total / (len(gradients) - 1)


def scale_of_each_critic_is_free(gradients):
    scaled = gradients * np.asarray([0.25, 1, 8], np.float32)[None, :, None]
    assert_close(mapped(edac_diversity, scaled), mapped(edac_diversity, gradients), atol=1e-5)


def order_of_critics_is_free(gradients):
    assert_close(mapped(edac_diversity, gradients[:, ::-1]), mapped(edac_diversity, gradients))


def bounded(gradients):
    result = np.asarray(mapped(edac_diversity, gradients))
    assert (result <= 3 + 1e-4).all()
    assert (result >= -1.5 - 1e-4).all()


ZEROS, FAR = np.zeros(7), np.full(7, 1e4)
PAIR = (jnp.ones(2), jnp.ones((2, 1)), jnp.ones(2))

ROWS = [
    Row(
        reinforce_loss,
        sample=in_units(series(3)),
        oracle=reinforce_by_hand,
        laws=[only_log_prob_has_a_gradient],
        edges=[Edge((-FAR, FAR, -FAR)), Edge((np.zeros(0), np.zeros(0), np.zeros(0)))],
        refuses=[
            Refusal("log_prob and returns must have one shape", PAIR),
            Refusal("log_prob and baseline must have one shape", (PAIR[0], PAIR[0], PAIR[1])),
        ],
    ),
    Row(
        ppo_clipped_loss,
        sample=GAINS,
        options=PPO,
        oracle=ppo_by_cases,
        laws=[no_gradient_beyond_the_trusted_gain, never_better_than_unclipped],
        edges=[
            Edge((ZEROS, ZEROS, ZEROS), {"epsilon": 0.25}),
            Edge((np.log(np.full(7, 1.25)), ZEROS, np.ones(7)), {"epsilon": 0.25}),
            Edge((-FAR, ZEROS, -np.ones(7)), {"epsilon": 0.25}),
            Edge((np.full(7, 40.0), -np.full(7, 40.0), np.ones(7)), {"epsilon": 0.25}),
            Edge((np.zeros(0), np.zeros(0), np.zeros(0)), {"epsilon": 0.25}),
        ],
        refuses=[
            Refusal("log_prob and old_log_prob must have one shape", PAIR),
            Refusal("log_prob and advantage must have one shape", (PAIR[0], PAIR[0], PAIR[1])),
            Refusal("epsilon must be finite and positive", (jnp.ones(2),) * 3, {"epsilon": 0.0}),
        ],
    ),
    Row(
        sac_policy_loss,
        sample=st.tuples(rows(7), in_units(rows(2, 7))),
        options=st.one_of(reals(0, 5), decades().map(abs)).map(
            lambda temperature: {"temperature": temperature}
        ),
        oracle=sac_by_cases,
        laws=[the_least_critic_alone_is_climbed],
        edges=[
            Edge((ZEROS, np.zeros((2, 7))), {"temperature": 0.0}),
            Edge((np.zeros(0), np.zeros((3, 0))), {"temperature": 1.0}),
        ],
        refuses=[
            Refusal("ensemble member", (jnp.ones(2), jnp.ones(2)), {"temperature": 1.0}),
            Refusal(
                "temperature must be finite and not negative",
                (jnp.ones(2), jnp.ones((2, 2))),
                {"temperature": -1.0},
            ),
        ],
    ),
    Row(
        sac_temperature_loss,
        sample=st.tuples(rows(elements=reals(-40, 40)), rows(7)),
        options=ENTROPY,
        oracle=temperature_by_hand,
        laws=[falls_where_entropy_is_high],
        edges=[
            Edge((np.zeros(()), ZEROS), {"target_entropy": 0.0}),
            Edge((np.zeros(()), np.zeros(0)), {"target_entropy": -3.0}),
        ],
        refuses=[
            Refusal(
                "log_temperature must be one number, got shape (2,); "
                "index it, or use jax.vmap for several",
                (jnp.ones(2), jnp.ones(2)),
                {"target_entropy": 1.0},
            ),
            Refusal(
                "target_entropy must be one number, got shape (2, 1); "
                "index it, or use jax.vmap for several",
                (jnp.ones(()), jnp.ones(2)),
                {"target_entropy": jnp.ones((2, 1))},
            ),
        ],
    ),
    Row(
        edac_diversity,
        # Above the floor of 1e-10.
        sample=in_units(st.tuples(rows(3, 2)), low=-6),
        oracle=cosines_by_loops,
        exempt={"size": "cosines add up"},
        laws=[scale_of_each_critic_is_free, order_of_critics_is_free, bounded],
        edges=[
            Edge((np.zeros((3, 2)),)),
            Edge((np.full((3, 2), 1e30),)),
            Edge((np.asarray([[0.0, 0.0], [1e-30, 0.0], [1.0, 0.0]]),)),
            Edge((np.asarray([[1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]]),)),
        ],
        refuses=[
            Refusal("two critics", (jnp.ones((1, 2)),)),
            Refusal("gradients must have the axes (ens, act)", (jnp.ones(3),)),
        ],
    ),
]
