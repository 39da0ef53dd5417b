import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.losses import advantage_weights, scaled_advantage, td3_bc_policy_loss
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    decades,
    finite_grad,
    flags,
    in_units,
    mapped,
    reals,
    rows,
    series,
)

BATCH, ACT = 7, 3
TEMPERATURES = st.one_of(reals(0.0, 10.0), decades().map(abs)).map(
    lambda t: {"inverse_temperature": float(t), "max_weight": 100.0}
)
UNIT = reals(-1.0, 1.0)


def weights_by_cases(advantage, *, inverse_temperature, max_weight):
    with np.errstate(over="ignore"):
        return np.minimum(np.exp(inverse_temperature * advantage), max_weight)


def exactly_the_ceiling_above_it(advantage, *, inverse_temperature, max_weight):
    weights = np.asarray(
        mapped(
            advantage_weights,
            advantage,
            inverse_temperature=inverse_temperature,
            max_weight=max_weight,
        )
    )
    above = np.float64(inverse_temperature) * advantage >= np.log(max_weight) + 1e-4
    assert np.all(weights[above] == np.float32(max_weight))


def zero_inverse_temperature_is_plain_regression(advantage, *, inverse_temperature, max_weight):
    plain = mapped(advantage_weights, advantage, inverse_temperature=0.0, max_weight=max_weight)
    assert_close(plain, np.ones_like(advantage))


def no_gradient_through_weights(advantage, *, inverse_temperature, max_weight):
    options = {"inverse_temperature": inverse_temperature, "max_weight": max_weight}
    assert not np.any(finite_grad(advantage_weights, advantage, **options)[0])


def scaled_by_definition(advantage, mask):
    if not mask.any():
        return np.zeros_like(advantage)
    return np.where(mask, advantage / max(np.std(advantage[mask]), 1e-6), 0.0)


def scale_of_reward_is_free(advantage, mask):
    """Where the standard deviation is above its floor."""
    pairs = zip(advantage, mask, strict=True)
    spread = np.asarray([real.any() and np.ptp(one[real]) > 1 for one, real in pairs])
    plain, scaled = (np.asarray(mapped(scaled_advantage, a * advantage, mask)) for a in (1, 8))
    assert_close(scaled[spread], plain[spread])


def masked_rows_are_inert(advantage, mask):
    spoiled = np.where(mask, advantage, np.nan).astype(np.float32)
    assert_close(mapped(scaled_advantage, spoiled, mask), mapped(scaled_advantage, advantage, mask))


def without_mask(advantage):
    return scaled_advantage(advantage)


def no_mask_counts_all(advantage, mask):
    every = np.ones_like(mask)
    assert_close(mapped(without_mask, advantage), mapped(scaled_advantage, advantage, every))


def spread(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(3, BATCH)).astype(np.float32), rng.uniform(size=(3, BATCH)) < 0.7


def td3_bc_by_definition(q, action, logged_action, mask, *, alpha):
    if not mask.any():
        return 0.0
    q, distance = q[mask], (action[mask] - logged_action[mask]) ** 2
    size = np.mean(np.abs(q))
    return np.mean(distance) - (alpha * np.mean(q) / size if size > 0 else 0.0)


def gradient_in_q(q, action, logged_action, mask, alpha):
    gradients = finite_grad(td3_bc_policy_loss, q, action, logged_action, mask, alpha=alpha)
    return np.asarray(gradients[0]) / 1.5  # The weight of a scalar result in the kit.


def scale_of_q_is_free(q, action, logged_action, mask, *, alpha):
    rest = action, logged_action, mask
    assert_close(
        mapped(td3_bc_policy_loss, 16 * q, *rest, alpha=alpha),
        mapped(td3_bc_policy_loss, q, *rest, alpha=alpha),
    )
    assert_close(16 * gradient_in_q(16 * q, *rest, alpha), gradient_in_q(q, *rest, alpha))


def lambda_carries_no_gradient(q, action, logged_action, mask, *, alpha):
    count = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    size = np.sum(np.abs(q) * mask, axis=1, keepdims=True) / count
    expected = np.where(mask, -alpha / (count * np.where(size > 0, size, 1)), 0.0)
    assert_close(gradient_in_q(q, action, logged_action, mask, alpha), expected, rtol=1e-4)


def no_value_is_no_pull(q, action, logged_action, mask, *, alpha):
    assert not np.any(gradient_in_q(0 * q, action, logged_action, mask, alpha))


def zero_alpha_is_cloning(q, action, logged_action, mask, *, alpha):
    cloning = mapped(td3_bc_policy_loss, q, action, logged_action, mask, alpha=0.0)
    other = mapped(td3_bc_policy_loss, q + 1, action, logged_action, mask, alpha=0.0)
    assert_close(cloning, other)


FAR = (np.ones(BATCH), np.ones((BATCH, ACT)), -np.ones((BATCH, ACT)))
TWO_CHANNELS = (
    np.array([3.0, -1.0, 2.0]),
    np.array([[0.5, -1.0], [0.25, 0.0], [1.0, 0.75]]),
    np.array([[0.0, 1.0], [0.5, -0.5], [1.0, -1.0]]),
    np.array([True, False, True]),
)
Q = reals(0.0078125, 100.0).flatmap(lambda size: st.sampled_from([size, -size]))
ROWS = [
    Row(
        advantage_weights,
        sample=series(1, elements=st.one_of(reals(-20.0, 20.0), decades())),
        options=TEMPERATURES,
        oracle=weights_by_cases,
        laws=[
            exactly_the_ceiling_above_it,
            zero_inverse_temperature_is_plain_regression,
            no_gradient_through_weights,
        ],
        edges=[
            Edge(
                (np.array([1e30, -1e30, 0.0]),), {"inverse_temperature": 3.0, "max_weight": 100.0}
            ),
            Edge((np.zeros(0),), {"inverse_temperature": 3.0, "max_weight": 100.0}),
        ],
        refuses=[
            Refusal(
                "inverse_temperature must be finite and not negative",
                (jnp.ones(2),),
                {"inverse_temperature": -1.0},
            ),
            Refusal(
                "max_weight must be finite and positive",
                (jnp.ones(2),),
                {"inverse_temperature": 1.0, "max_weight": 0.0},
            ),
        ],
    ),
    Row(
        scaled_advantage,
        sample=in_units(st.integers(0, 2**31 - 1).map(spread)),
        oracle=scaled_by_definition,
        exempt={"slope": "the deviation carries no gradient"},
        laws=[scale_of_reward_is_free, masked_rows_are_inert, no_mask_counts_all],
        edges=[
            Edge((np.zeros(7), np.ones(7, bool))),
            Edge((np.ones(7), np.zeros(7, bool))),
            Edge((np.zeros(0), np.zeros(0, bool))),
        ],
        refuses=[
            Refusal("advantage and mask must have one shape", (jnp.ones(2), jnp.ones(3, bool))),
            Refusal("min_std must be finite and positive", (jnp.ones(2),), {"min_std": 0.0}),
        ],
    ),
    Row(
        td3_bc_policy_loss,
        sample=st.tuples(
            in_units(rows(BATCH, elements=Q)),
            rows(BATCH, ACT, elements=UNIT),
            rows(BATCH, ACT, elements=UNIT),
            flags(BATCH),
        ),
        options=reals(0.0, 5.0).map(lambda alpha: {"alpha": float(alpha)}),
        oracle=td3_bc_by_definition,
        laws=[
            scale_of_q_is_free,
            lambda_carries_no_gradient,
            no_value_is_no_pull,
            zero_alpha_is_cloning,
        ],
        edges=[
            Edge((*FAR, np.ones(BATCH, bool)), {"alpha": 2.5}),
            Edge((*FAR, np.zeros(BATCH, bool)), {"alpha": 2.5}),
            Edge((np.zeros(BATCH), *FAR[1:], np.ones(BATCH, bool)), {"alpha": 100.0}),
            Edge(TWO_CHANNELS, {"alpha": 2.5}),
            Edge((np.zeros(0), *[np.zeros((0, ACT))] * 2, np.zeros(0, bool)), {"alpha": 2.5}),
        ],
        refuses=[
            Refusal(
                "action and logged_action must have one shape",
                (jnp.ones(2), jnp.ones((2, 3)), jnp.ones((2, 1))),
                {"alpha": 1.0},
            ),
            Refusal(
                "q must be one value for each row of action, got shapes (3,) and (2, 3)",
                (jnp.ones(3), jnp.ones((2, 3)), jnp.ones((2, 3))),
                {"alpha": 1.0},
            ),
            Refusal(
                "alpha must be finite and not negative",
                (jnp.ones(2), jnp.ones((2, 3)), jnp.ones((2, 3))),
                {"alpha": -1.0},
            ),
        ],
    ),
]
