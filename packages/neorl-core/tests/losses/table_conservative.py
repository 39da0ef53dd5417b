import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import special

from neorl_core.losses import cal_ql_clamp, cql_regulariser
from neorl_core.testing import (
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

SAMPLES = 5
TEMPERATURE = st.one_of(reals(0.25, 10.0), decades().map(lambda t: abs(t) or 1.0)).map(
    lambda temperature: {"temperature": temperature}
)


def cql_by_scipy(q_data, q_samples, log_prob, *, temperature):
    scores = (q_samples - log_prob) / temperature
    return temperature * special.logsumexp(scores, axis=-1) - q_data


def uncorrected(q_data, q_samples, *, temperature):
    return cql_regulariser(q_data, q_samples, temperature=temperature)


def uncorrected_by_scipy(q_data, q_samples, *, temperature):
    scores = np.concatenate([q_samples, q_data[:, None]], axis=-1) / temperature
    return temperature * special.logsumexp(scores, axis=-1) - q_data


def a_constant_critic_leaves_the_densities(q_data, q_samples, log_prob, *, temperature):
    constant = np.broadcast_to(q_data[..., None], q_samples.shape)
    assert_close(
        mapped(cql_regulariser, q_data, constant, log_prob, temperature=1.0),
        special.logsumexp(-log_prob.astype(np.float64), axis=-1),
        scale=20 + float(np.abs(q_data).max()),
    )


def gradients_cancel(q_data, q_samples, log_prob, *, temperature):
    """Raising every value alike changes nothing: gradients over samples and data sum to zero."""
    to_data, to_samples, to_density = finite_grad(
        cql_regulariser, q_data, q_samples, log_prob, temperature=temperature
    )
    assert_close(np.sum(to_samples, axis=-1), -np.asarray(to_data), atol=1e-5)
    assert not np.any(to_density)


def shifting_all_values_changes_nothing(q_data, q_samples, *, temperature):
    assert_close(
        mapped(uncorrected, q_data + 16, q_samples + 16, temperature=temperature),
        mapped(uncorrected, q_data, q_samples, temperature=temperature),
        scale=16 + float(max(np.abs(q_data).max(), np.abs(q_samples).max(), temperature)),
    )


def never_negative(q_data, q_samples, *, temperature):
    """The data's own value is among the scores of the uncorrected form."""
    least = np.min(mapped(uncorrected, q_data, q_samples, temperature=temperature), axis=1)
    assert np.all(least >= -1e-6 * np.abs(q_data).max(axis=1))


def clamped_by_cases(q_policy, reference_return):
    return np.asarray(
        [
            [max(q, floor) for q in row]
            for row, floor in zip(q_policy, reference_return, strict=True)
        ]
    )


def a_clamped_value_gets_no_gradient(q_policy, reference_return):
    to_q, _ = finite_grad(cal_ql_clamp, q_policy, reference_return)
    above = q_policy > reference_return[..., None]
    assert np.all((np.asarray(to_q) != 0) == above)


def idempotent(q_policy, reference_return):
    once = mapped(cal_ql_clamp, q_policy, reference_return)
    assert_close(mapped(cal_ql_clamp, once, reference_return), once, rtol=0, atol=0)


BATCH = 4
ZERO, FLAT, FAR = np.zeros(BATCH), np.zeros((BATCH, SAMPLES)), np.full((BATCH, SAMPLES), 1e6)
COLD = {"temperature": 0.25}

ROWS = [
    Row(
        cql_regulariser,
        sample=st.tuples(
            in_units(st.tuples(rows(BATCH), rows(BATCH, SAMPLES))),
            rows(BATCH, SAMPLES, elements=reals(-20, 20)),
        ).map(lambda drawn: (*drawn[0], drawn[1])),
        options=TEMPERATURE,
        oracle=cql_by_scipy,
        laws=[a_constant_critic_leaves_the_densities, gradients_cancel],
        edges=[
            Edge((ZERO, FLAT, FLAT), COLD),
            Edge((ZERO, FAR, FLAT), COLD),
            Edge((ZERO, -FAR, FLAT), COLD),
            Edge((np.zeros(0), np.zeros((0, SAMPLES)), np.zeros((0, SAMPLES))), COLD),
        ],
        refuses=[
            Refusal("last axis of samples", (jnp.ones(2), jnp.ones(2), jnp.ones(2))),
            Refusal("last axis of samples", (jnp.ones(2), jnp.ones((3, 2)), jnp.ones((3, 2)))),
            Refusal(
                "q_samples and log_prob must have one shape",
                (jnp.ones(2), jnp.ones((2, 3)), jnp.ones((2, 1))),
            ),
            Refusal("at least one sample", (jnp.ones(2), jnp.ones((2, 0)), jnp.ones((2, 0)))),
            Refusal(
                "temperature must be finite and positive",
                (jnp.ones(2), jnp.ones((2, 3))),
                {"temperature": 0.0},
            ),
        ],
    ),
    Row(
        uncorrected,
        name="cql_regulariser",
        sample=in_units(st.tuples(rows(BATCH), rows(BATCH, SAMPLES))),
        options=TEMPERATURE,
        oracle=uncorrected_by_scipy,
        laws=[shifting_all_values_changes_nothing, never_negative],
        edges=[
            Edge((ZERO, FAR), COLD),
            Edge((ZERO, -FAR), COLD),
            Edge((np.ones(BATCH), np.zeros((BATCH, 0))), COLD),
        ],
    ),
    Row(
        cal_ql_clamp,
        sample=in_units(st.tuples(rows(BATCH, SAMPLES), rows(BATCH))),
        oracle=clamped_by_cases,
        laws=[a_clamped_value_gets_no_gradient, idempotent],
        edges=[Edge((FLAT, ZERO)), Edge((np.zeros((BATCH, 0)), ZERO))],
        refuses=[
            Refusal("last axis of samples", (jnp.ones(2), jnp.ones(2))),
            Refusal("last axis of samples", (jnp.ones((3, 2)), jnp.ones(2))),
        ],
    ),
]
