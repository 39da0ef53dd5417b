import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import special, stats

from neorl_core.distributions import (
    categorical_entropy,
    categorical_log_prob,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    finite_grad,
    integers,
    mapped,
    reals,
    rows,
)

CHOICES = 4
# Batches of two states and of none.
SEVERAL, NONE = np.arange(2.0 * CHOICES).reshape(2, CHOICES), np.zeros((0, CHOICES))
LOGITS = rows(CHOICES, elements=reals(-20, 20))
NO_CHOICE = Refusal("at least one choice", (jnp.ones(0),))


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
]
