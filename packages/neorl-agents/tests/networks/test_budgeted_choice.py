"""The choice among heads under a budget, beside a search by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.networks import MLP, BudgetedChoice

RNG = np.random.default_rng(0)
HEADS, ACT, OBS, COSTS = 4, 2, 3, 2


def linear(n_in, n_out, members=()):
    weight = jnp.asarray(RNG.normal(size=(*members, n_in, n_out)), jnp.float32)
    bias = jnp.asarray(RNG.normal(size=(*members, n_out)), jnp.float32)
    return MLP((weight,), (bias,))


CHOICE = BudgetedChoice(
    linear(OBS, HEADS * ACT), linear(OBS + ACT, 1, (2,)), linear(OBS + ACT, 1, (2 * COSTS,)),
    jnp.ones(COSTS), jnp.asarray([0.5, 2.0]), ACT,
)  # fmt: skip
ROWS = jnp.asarray(RNG.normal(size=(64, OBS)), jnp.float32)


@jax.jit
def chosen(choice, rows):
    return jax.vmap(choice)(rows)


def by_hand(choice, x):
    def of(net, row):
        return np.asarray(row @ net.weights[0] + net.biases[0])

    actions = of(choice.heads, np.asarray(x)).reshape(HEADS, ACT)
    inputs = np.concatenate([np.repeat(np.asarray(x)[None], HEADS, 0), actions], axis=1)
    value = np.einsum("rj,mjo->mr", inputs, choice.critics.weights[0]) + choice.critics.biases[0]
    cost = np.einsum("rj,mjo->mr", inputs, choice.cost_critics.weights[0])
    cost = (cost + choice.cost_critics.biases[0]).reshape(2, COSTS, HEADS).max(0)
    allowed = np.asarray(choice.budget * choice.cost_value)
    worst = ((cost - allowed[:, None]) / np.where(allowed > 0, allowed, 1)[:, None]).max(0)
    fits = np.flatnonzero(worst <= 0)
    best = fits[value.min(0)[fits].argmax()] if len(fits) else worst.argmin()
    return actions[best], worst[best], len(fits)


def with_budget(factor):
    return BudgetedChoice(**{**vars(CHOICE), "budget": factor * CHOICE.budget})


def test_the_best_head_that_fits_is_taken_and_else_the_one_that_is_least_above():
    collected = []
    for factor in (0.0, 0.2, 1.0, 5.0):
        choice = with_budget(factor)
        expected = [by_hand(choice, x) for x in ROWS]
        np.testing.assert_allclose(
            chosen(choice, ROWS), [e[0] for e in expected], rtol=1e-5, atol=1e-6
        )
        collected.append([e[2] for e in expected])
    counts = np.array(collected)
    assert (np.diff(counts, axis=0) >= 0).all(), "a larger budget allows more heads"
    assert (counts == 0).any()
    assert (counts == HEADS).any()
    assert chosen._cache_size() == 1, "another budget is no other program"
