import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.targets import (
    clipped_double_td_target,
    ensemble_discrepancy,
    mopo_penalty,
    soft_td_target,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    flags,
    mapped,
    reals,
    rows,
)

BATCH, MEMBERS, CHOICES = 7, 3, 4
SHARE = reals(0, 1)
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
