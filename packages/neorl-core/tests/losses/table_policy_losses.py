import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.losses import (
    edac_diversity,
    ppo_clipped_loss,
    sac_policy_loss,
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
)

GAINS = st.sampled_from(LENGTHS).flatmap(
    lambda n: st.tuples(*[rows(n, elements=reals(-8, 8))] * 2, in_units(rows(n)))
)
PPO = reals(0.0625, 0.5).map(lambda epsilon: {"epsilon": epsilon})


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
