import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import special, stats

from neorl_core.distributions import (
    categorical_entropy,
    categorical_kl,
    categorical_log_prob,
    categorical_mode,
    categorical_sample,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    finite_grad,
    integers,
    keys,
    mapped,
    reals,
    rows,
)

CHOICES = 4
RAW_KEY = np.zeros(2, np.uint32)
# Batches of two states and of none.
SEVERAL, NONE = np.arange(2.0 * CHOICES).reshape(2, CHOICES), np.zeros((0, CHOICES))
LOGITS = rows(CHOICES, elements=reals(-20, 20))
NO_CHOICE = Refusal("at least one choice", (jnp.ones(0),))
NOT_A_FORMULA = {"oracle": "a draw; its distribution is tested in test_distributions.py"}


def log_p_by_scipy(index, logits):
    chosen = np.take_along_axis(logits, np.asarray(index)[..., None], axis=-1)[..., 0]
    return chosen - special.logsumexp(logits, axis=-1)


def probabilities_sum_to_one(index, logits):
    choices = [np.full_like(index, choice) for choice in range(CHOICES)]
    log_p = [np.asarray(mapped(categorical_log_prob, c, logits)) for c in choices]
    assert_close(np.exp(log_p).sum(axis=0), np.ones(3))


def a_shift_of_all_logits_changes_nothing(index, logits):
    assert_close(
        mapped(categorical_log_prob, index, logits + 8),
        mapped(categorical_log_prob, index, logits),
        atol=1e-5,
    )


def draws_only_what_is_possible(logits, key):
    only = np.full_like(logits, -np.inf)
    only[:, 2] = logits[:, 2]
    assert np.all(np.asarray(mapped(categorical_sample, only, key)) == 2)
    drawn = np.asarray(mapped(categorical_sample, logits, key))
    assert np.all((drawn >= 0) & (drawn < CHOICES))


def no_states_have_no_draws(logits, key):
    drawn = mapped(categorical_sample, logits[:, None][:, :0], key)
    assert drawn.shape == (len(logits), 0)
    assert drawn.dtype == "int32"


def choice_entropy_by_scipy(logits):
    return stats.entropy(special.softmax(logits, axis=-1), axis=-1)


def at_most_uniform(logits):
    entropy = np.asarray(mapped(categorical_entropy, logits))
    assert np.all(entropy <= np.log(CHOICES) + 1e-5)
    assert np.all(entropy >= -1e-6)


def what_cannot_occur_adds_nothing(logits):
    padded = np.concatenate([logits, np.full_like(logits[:, :1], -np.inf)], axis=1)
    assert_close(mapped(categorical_entropy, padded), mapped(categorical_entropy, logits))
    finite_grad(categorical_entropy, padded)


def choice_kl_by_scipy(logits, other_logits):
    p, q = (special.log_softmax(side, axis=-1) for side in (logits, other_logits))
    return np.sum(special.rel_entr(np.exp(p), np.exp(q)), axis=-1)


def cross_entropy_less_entropy(logits, other_logits):
    kl = np.asarray(mapped(categorical_kl, logits, other_logits))
    p = special.softmax(logits.astype(np.float64), axis=-1)
    cross = -np.sum(p * special.log_softmax(other_logits.astype(np.float64), axis=-1), axis=-1)
    assert_close(kl, cross - stats.entropy(p, axis=-1), atol=1e-5, scale=1.0)
    assert_close(mapped(categorical_kl, logits, logits), np.zeros(3), scale=1.0)


def first_of_the_largest(logits):
    return np.argmax(logits, axis=-1)


def most_probable(logits):
    mode = np.asarray(mapped(categorical_mode, logits))
    best = mapped(categorical_log_prob, mode, logits)
    for choice in range(CHOICES):
        other = mapped(categorical_log_prob, np.full_like(mode, choice), logits)
        assert np.all(np.asarray(best) >= np.asarray(other))


OF_A_SUM = {"size": "the logarithm of a sum that may be near one"}
ROWS = [
    Row(
        categorical_log_prob,
        exempt=OF_A_SUM,
        sample=st.tuples(integers(low=0, high=CHOICES - 1), LOGITS),
        oracle=log_p_by_scipy,
        laws=[probabilities_sum_to_one, a_shift_of_all_logits_changes_nothing],
        edges=[
            Edge((np.int32(1), np.zeros(CHOICES))),
            Edge((np.int32(1), np.asarray([-1e6, 1e6, 0.0, 0.0]))),
            Edge((np.int32(1), np.asarray([-np.inf, 1.0, 0.0, 0.0]))),
            Edge((np.asarray([3, 0], np.int32), SEVERAL)),
            Edge((np.zeros(0, np.int32), NONE)),
        ],
        refuses=[
            Refusal("shape of logits", (jnp.zeros(2, int), jnp.ones(4))),
            Refusal("at least one choice", (jnp.zeros((), int), jnp.ones(0))),
        ],
    ),
    Row(
        categorical_sample,
        sample=st.tuples(LOGITS, keys()),
        oracle=None,
        exempt={**NOT_A_FORMULA, "batch": "NaN logits still give an index"},
        laws=[draws_only_what_is_possible, no_states_have_no_draws],
        edges=[Edge((SEVERAL, RAW_KEY)), Edge((NONE, RAW_KEY))],
        differentiable=False,
        refuses=[Refusal("at least one choice", (jnp.ones(0), jax.random.key(0)))],
    ),
    Row(
        categorical_entropy,
        sample=st.tuples(LOGITS),
        exempt=OF_A_SUM,
        oracle=choice_entropy_by_scipy,
        laws=[at_most_uniform, what_cannot_occur_adds_nothing],
        edges=[
            Edge((np.zeros(CHOICES),)),
            Edge((np.asarray([0.0, -np.inf, -np.inf, -np.inf]),)),
            Edge((np.asarray([1e6, -1e6, 0.0, 0.0]),)),
            Edge((SEVERAL,)),
            Edge((NONE,)),
        ],
        refuses=[NO_CHOICE],
    ),
    Row(
        categorical_kl,
        sample=st.tuples(LOGITS, LOGITS),
        exempt=OF_A_SUM,
        oracle=choice_kl_by_scipy,
        laws=[cross_entropy_less_entropy],
        edges=[
            Edge((np.zeros(CHOICES), np.zeros(CHOICES))),
            Edge((np.asarray([0.0, -np.inf, 1.0, 1.0]), np.zeros(CHOICES))),
            Edge((np.asarray([0.0, -np.inf, 1.0, 1.0]), np.asarray([0.0, -np.inf, 2.0, 1.0]))),
            Edge((SEVERAL, SEVERAL[::-1])),
            Edge((NONE, NONE)),
        ],
        refuses=[
            Refusal("logits and other_logits must have one shape", (jnp.ones(2), jnp.ones(3))),
            Refusal("at least one choice", (jnp.ones(0), jnp.ones(0))),
        ],
    ),
    Row(
        categorical_mode,
        sample=st.tuples(LOGITS),
        oracle=first_of_the_largest,
        laws=[most_probable],
        edges=[Edge((np.zeros(CHOICES),)), Edge((SEVERAL,)), Edge((NONE,))],
        differentiable=False,
        refuses=[NO_CHOICE],
    ),
]
