import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.targets import (
    clipped_double_td_target,
    ensemble_discrepancy,
    ensemble_lower_bound,
    fitted_q_target,
    mopo_penalty,
    soft_td_target,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    finite_grad,
    flags,
    in_units,
    mapped,
    reals,
    rows,
    simplex,
)

BATCH, MEMBERS, CHOICES = 7, 3, 4
SHARE = reals(0, 1)
DISCOUNT = SHARE.map(lambda discount: {"discount": discount})
SOFT = st.fixed_dictionaries({"discount": SHARE, "temperature": reals(0, 5)})


def soft_by_cases(reward, values, log_prob, terminated, *, discount, temperature):
    return np.asarray(
        [
            r if ended else r + discount * (min(values[:, i]) - temperature * log_prob[i])
            for i, (r, ended) in enumerate(zip(reward, terminated, strict=True))
        ]
    )


def cold_is_the_clipped_double_target(
    reward, values, log_prob, terminated, *, discount, temperature
):
    assert_close(
        mapped(
            soft_td_target, reward, values, log_prob, terminated, discount=discount, temperature=0.0
        ),
        mapped(clipped_double_td_target, reward, values, terminated, discount=discount),
    )


def what_terminates_has_no_next(reward, values, log_prob, terminated, **options):
    hidden = np.where(terminated, np.float32(np.nan), log_prob)
    assert_close(
        mapped(soft_td_target, reward, values, hidden, terminated, **options),
        mapped(soft_td_target, reward, values, log_prob, terminated, **options),
    )


def expected_by_loops(reward, values, terminated, probability, *, discount):
    return np.asarray(
        [
            r if ended else r + discount * sum(p * v for p, v in zip(probs, vs, strict=True))
            for r, vs, ended, probs in zip(reward, values, terminated, probability, strict=True)
        ]
    )


def sampled(reward, values, terminated, *, discount):
    return fitted_q_target(reward, values, terminated, discount=discount)


def one_share_each_is_the_mean(reward, values, terminated, probability, *, discount):
    even = np.full_like(probability, 1 / CHOICES)
    assert_close(
        mapped(fitted_q_target, reward, values, terminated, even, discount=discount),
        mapped(sampled, reward, values, terminated, discount=discount),
    )


def an_impossible_action_may_have_any_value(reward, values, terminated, probability, *, discount):
    last = np.arange(CHOICES) == CHOICES - 1
    without = np.where(last, 0, probability).astype(np.float32)
    wild = np.where(last, np.float32(np.nan), values)
    assert_close(
        mapped(fitted_q_target, reward, wild, terminated, without, discount=discount),
        mapped(fitted_q_target, reward, values, terminated, without, discount=discount),
    )
    finite_grad(fitted_q_target, reward, wild, terminated, without, discount=discount)


def bound_by_numpy(values, *, coefficient):
    return np.mean(values, axis=0) - coefficient * np.std(values, axis=0)


def the_least_of_two(values, *, coefficient):
    pair = values[:, :2]
    assert_close(mapped(ensemble_lower_bound, pair, coefficient=1.0), pair.min(axis=1), atol=1e-5)


def never_above_the_mean(values, *, coefficient):
    bound = np.asarray(mapped(ensemble_lower_bound, values, coefficient=coefficient))
    assert np.all(bound <= values.mean(axis=1) + 1e-5 * np.max(np.abs(values), axis=1))


def largest_norm(std):
    return np.max(np.sqrt(np.sum(std**2, axis=-1)), axis=0)


def scales_with_its_units(std):
    assert_close(mapped(mopo_penalty, 4 * std), 4 * mapped(mopo_penalty, std))


def farthest_pair(means):
    gaps = [[np.sqrt(np.sum((a - b) ** 2, axis=-1)) for a in means] for b in means]
    return np.max(gaps, axis=(0, 1))


def only_differences_count(means):
    assert_close(
        mapped(ensemble_discrepancy, means + 8),
        mapped(ensemble_discrepancy, means),
        rtol=1e-4,
        atol=1e-5,
    )


ZEROS, NO = np.zeros(BATCH), np.zeros(BATCH, bool)
ALIKE = np.ones((MEMBERS, BATCH))
TWO = (jnp.ones(2), jnp.ones((2, 2)), jnp.ones(2), jnp.zeros(2, bool))
HALF = {"discount": 0.5}

ROWS = [
    Row(
        soft_td_target,
        sample=st.tuples(rows(BATCH), rows(MEMBERS, BATCH), rows(BATCH), flags(BATCH)),
        options=SOFT,
        oracle=soft_by_cases,
        laws=[cold_is_the_clipped_double_target, what_terminates_has_no_next],
        edges=[
            Edge((ZEROS, ALIKE, ZEROS, NO), {"discount": 1.0, "temperature": 1.0}),
            Edge((ZEROS, ALIKE, np.full(BATCH, 1e6), ~NO), {"discount": 1.0, "temperature": 1.0}),
            Edge(
                (ZEROS[:0], ALIKE[:, :0], ZEROS[:0], NO[:0]), {"discount": 1.0, "temperature": 0.0}
            ),
        ],
        refuses=[
            Refusal("ensemble member", (TWO[0], TWO[0], *TWO[2:]), {**HALF, "temperature": 1.0}),
            Refusal(
                "reward and next_log_prob must have one shape",
                (*TWO[:2], jnp.ones(3), TWO[3]),
                {**HALF, "temperature": 1.0},
            ),
            Refusal(
                "temperature must be finite and not negative", TWO, {**HALF, "temperature": -1.0}
            ),
            Refusal("discount must be in [0, 1]", TWO, {"discount": 2.0, "temperature": 1.0}),
        ],
    ),
    Row(
        fitted_q_target,
        sample=st.tuples(rows(BATCH), rows(BATCH, CHOICES), flags(BATCH), simplex(BATCH, CHOICES)),
        options=DISCOUNT,
        oracle=expected_by_loops,
        laws=[one_share_each_is_the_mean, an_impossible_action_may_have_any_value],
        edges=[
            Edge((ZEROS, np.zeros((BATCH, 1)), NO, np.ones((BATCH, 1))), {"discount": 1.0}),
            Edge((ZEROS[:0], np.zeros((0, 2)), NO[:0], np.ones((0, 2))), {"discount": 1.0}),
        ],
        refuses=[
            Refusal("at least one action", (jnp.ones(2), jnp.ones(2), jnp.zeros(2, bool)), HALF),
            Refusal(
                "next_values and next_probability must have one shape",
                (jnp.ones(2), jnp.ones((2, 3)), jnp.zeros(2, bool), jnp.ones(3)),
                HALF,
            ),
            Refusal(
                "discount must be in [0, 1]",
                (jnp.ones(2), jnp.ones((2, 3)), jnp.zeros(2, bool)),
                {"discount": -1.0},
            ),
        ],
    ),
    Row(
        ensemble_lower_bound,
        # Deviations below one and above.
        sample=in_units(st.tuples(rows(MEMBERS, BATCH)), base=2),
        options=reals(0, 5).map(lambda coefficient: {"coefficient": coefficient}),
        oracle=bound_by_numpy,
        laws=[the_least_of_two, never_above_the_mean],
        edges=[
            Edge((ALIKE,), {"coefficient": 2.0}),
            Edge((np.asarray([[1e30], [-1e30]]),), {"coefficient": 1.0}),
            Edge((np.zeros((2, 0)),), {"coefficient": 1.0}),
        ],
        refuses=[
            Refusal("one or more members", (jnp.ones((0, 2)),), {"coefficient": 1.0}),
            Refusal("one or more members", (jnp.ones(()),), {"coefficient": 1.0}),
            Refusal(
                "coefficient must be finite and not negative",
                (jnp.ones((2, 2)),),
                {"coefficient": -1.0},
            ),
        ],
    ),
    Row(
        mopo_penalty,
        sample=st.tuples(rows(MEMBERS, BATCH, 2, elements=reals(0, 100))),
        oracle=largest_norm,
        laws=[scales_with_its_units],
        edges=[
            Edge((np.zeros((2, 3, 2)),)),
            Edge((np.full((2, 3, 2), 1e30),)),
            Edge((np.zeros((2, 3, 0)),)),
        ],
        refuses=[Refusal("a last one of channels", (jnp.ones(2),))],
    ),
    Row(
        ensemble_discrepancy,
        sample=st.tuples(rows(MEMBERS, BATCH, 2)),
        oracle=farthest_pair,
        laws=[only_differences_count],
        edges=[Edge((np.ones((2, 3, 2)),)), Edge((np.ones((1, 3, 2)),))],
        refuses=[Refusal("a last one of channels", (jnp.ones(2),))],
    ),
]
