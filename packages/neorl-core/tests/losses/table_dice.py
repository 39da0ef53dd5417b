import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import optimize, special

from neorl_core.losses import (
    dual_dice_loss,
    f_conjugate,
    f_divergence,
    f_ratio,
    opti_dice_loss,
    opti_dice_weights,
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
    series,
)

BATCH = 5
KINDS = st.sampled_from(["kl", "chi2", "soft_chi2"])
KIND = KINDS.map(lambda kind: {"divergence": kind})
SHARE = reals(0, 1)
DUAL = st.fixed_dictionaries({"discount": SHARE, "power": reals(1.25, 3)})
OPTI = st.fixed_dictionaries(
    {"discount": SHARE, "divergence_weight": reals(4, 8), "divergence": KINDS}
)
MODEST = st.integers(-320, 320).map(lambda n: n / 64)


def generator(x, divergence):
    if divergence == "kl" or (divergence == "soft_chi2" and x < 1):
        return float(special.rel_entr(x, 1)) - x + 1
    return (x - 1) ** 2 / 2


def generators(ratio, *, divergence):
    return np.asarray([generator(x, divergence) for x in ratio])


def least_at_one(ratio, *, divergence):
    value = np.asarray(mapped(f_divergence, ratio, divergence=divergence))
    assert np.all(value >= -1e-6)
    assert not np.any(mapped(f_divergence, np.ones_like(ratio), divergence=divergence))


def convex(ratio, *, divergence):
    ends = ratio, ratio[:, ::-1]
    middle = mapped(f_divergence, (ends[0] + ends[1]) / 2, divergence=divergence)
    above = [mapped(f_divergence, end, divergence=divergence) for end in ends]
    assert np.all(np.asarray(middle) <= np.asarray(above[0] + above[1]) / 2 + 1e-3)


def maximiser(y, divergence):
    """By search on the generator itself, over ratios from zero on."""
    result = optimize.minimize_scalar(
        lambda x: generator(x, divergence) - x * y,
        bounds=(0, 200),
        method="bounded",
        options={"xatol": 1e-10},
    )
    ends = [0.0, float(result.x)]
    return min(ends, key=lambda x: generator(x, divergence) - x * y)


def conjugates(y, *, divergence):
    best = [maximiser(value, divergence) for value in y]
    values = [x * v - generator(x, divergence) for x, v in zip(best, y, strict=True)]
    return np.round(values, 12)  # What the search leaves of a zero.


def ratios(y, *, divergence):
    return np.asarray([maximiser(value, divergence) for value in y])


def the_slope_is_the_ratio(y, *, divergence):
    (slope,) = finite_grad(f_conjugate, y, divergence=divergence)
    weights = 1 + np.cos(np.arange(y.shape[1])) / 2
    ratio = np.asarray(mapped(f_ratio, y, divergence=divergence))
    assert_close(slope, weights * ratio, rtol=1e-4)


def young(y, *, divergence):
    """``f(x) + f*(y) = x y`` at the maximiser."""
    ratio = mapped(f_ratio, y, divergence=divergence)
    both = mapped(f_divergence, ratio, divergence=divergence) + mapped(
        f_conjugate, y, divergence=divergence
    )
    assert_close(both, np.asarray(ratio) * y, atol=1e-4, rtol=1e-4)


def dual_by_cases(value, next_value, initial, terminated, *, discount, power):
    follows = np.where(terminated, 0, next_value)
    return np.abs(value - discount * follows) ** power / power - (1 - discount) * initial


def the_square_by_default(value, next_value, initial, terminated, *, discount, power):
    rest = value, next_value, initial, terminated
    assert_close(
        mapped(dual_dice_loss, *rest, discount=discount),
        mapped(dual_dice_loss, *rest, discount=discount, power=2.0),
    )


def opti_by_search(
    value, next_value, initial, reward, terminated, *, discount, divergence_weight, divergence
):
    """``max_w w e - divergence_weight f(w)`` for every row, by search."""
    follows = np.where(terminated, 0, next_value)
    residual = reward + discount * follows - value
    best = [maximiser(e / divergence_weight, divergence) for e in residual]
    inner = [
        w * e - divergence_weight * generator(w, divergence)
        for w, e in zip(best, residual, strict=True)
    ]
    return np.round((1 - discount) * initial + np.asarray(inner), 12)


def the_slope_in_the_reward_is_the_weight(
    value, next_value, initial, reward, terminated, *, discount, divergence_weight, divergence
):
    _, _, _, slope = finite_grad(
        opti_dice_loss,
        value,
        next_value,
        initial,
        reward,
        terminated,
        discount=discount,
        divergence_weight=divergence_weight,
        divergence=divergence,
    )
    residual = reward + np.float32(discount) * np.where(terminated, 0, next_value) - value
    weights = mapped(
        opti_dice_weights, residual, divergence_weight=divergence_weight, divergence=divergence
    )
    scale = 1 + np.cos(np.arange(reward.shape[1])) / 2
    assert_close(slope, scale * np.asarray(weights), rtol=1e-3, atol=1e-4)


def weights_by_search(residual, *, divergence_weight, divergence):
    return np.asarray([maximiser(e / divergence_weight, divergence) for e in residual])


def weights_have_no_gradient(residual, **options):
    assert not np.any(finite_grad(opti_dice_weights, residual, **options)[0])


def dice_rows(count):
    return st.tuples(*[rows(BATCH, elements=MODEST)] * count, flags(BATCH))


ZEROS, NO = np.zeros(BATCH), np.zeros(BATCH, bool)
THREE = (jnp.ones(2),) * 3
UNKNOWN = "divergence must be one of kl, chi2, soft_chi2"

ROWS = [
    Row(
        f_divergence,
        sample=series(1, elements=reals(0, 20)),
        options=KIND,
        oracle=generators,
        laws=[least_at_one, convex],
        edges=[
            Edge((np.asarray([0.0, 1.0, 1e-30]),), {"divergence": k}) for k in ("kl", "soft_chi2")
        ],
        refuses=[Refusal(UNKNOWN, (jnp.ones(2),), {"divergence": "tv"})],
        exempt={"size": "near a ratio of one, terms of size one cancel"},
    ),
    Row(
        f_conjugate,
        sample=series(1, elements=MODEST),
        options=KIND,
        oracle=conjugates,
        laws=[the_slope_is_the_ratio, young],
        edges=[
            Edge((np.asarray([0.0, -1.0, -80.0, 2.0]),), {"divergence": kind})
            for kind in ("kl", "chi2", "soft_chi2")
        ],
        refuses=[Refusal(UNKNOWN, (jnp.ones(2),), {"divergence": "tv"})],
    ),
    Row(
        f_ratio,
        sample=series(1, elements=MODEST),
        options=KIND,
        oracle=ratios,
        exempt={"slope": "the oracle searches for the maximiser: its small differences are noise"},
        laws=[young],
        edges=[
            Edge((np.asarray([0.0, -1.0, -80.0, 2.0]),), {"divergence": kind})
            for kind in ("kl", "chi2", "soft_chi2")
        ],
        refuses=[Refusal(UNKNOWN, (jnp.ones(2),), {"divergence": "tv"})],
    ),
    Row(
        dual_dice_loss,
        sample=in_units(dice_rows(3)),
        options=DUAL,
        oracle=dual_by_cases,
        laws=[the_square_by_default],
        edges=[
            Edge((ZEROS, ZEROS, ZEROS, NO), {"discount": 1.0, "power": 1.5}),
            Edge((ZEROS[:0], ZEROS[:0], ZEROS[:0], NO[:0]), {"discount": 0.5, "power": 2.0}),
        ],
        refuses=[
            Refusal(
                "value and next_value must have one shape",
                (jnp.ones(2), jnp.ones(3), jnp.ones(2), jnp.zeros(2, bool)),
                {"discount": 0.5},
            ),
            Refusal(
                "value and initial_value must have one shape",
                (jnp.ones(2), jnp.ones(2), jnp.ones(3), jnp.zeros(2, bool)),
                {"discount": 0.5},
            ),
            Refusal(
                "value and terminated must have one shape",
                (*THREE, jnp.zeros(3, bool)),
                {"discount": 0.5},
            ),
            *(
                Refusal(
                    "power must be above one",
                    (*THREE, jnp.zeros(2, bool)),
                    {"discount": 0.5, "power": power},
                )
                for power in (0.5, 1.0)
            ),
            Refusal(
                "power must be finite and positive",
                (*THREE, jnp.zeros(2, bool)),
                {"discount": 0.5, "power": 0.0},
            ),
            Refusal("discount must be in [0, 1]", (*THREE, jnp.zeros(2, bool)), {"discount": 2.0}),
        ],
    ),
    Row(
        opti_dice_loss,
        sample=dice_rows(4),
        options=OPTI,
        oracle=opti_by_search,
        laws=[the_slope_in_the_reward_is_the_weight],
        edges=[
            Edge(
                (*[ZEROS] * 4, NO),
                {"discount": 1.0, "divergence_weight": 1.0, "divergence": "soft_chi2"},
            ),
            Edge(
                (*[ZEROS] * 4, ~NO),
                {"discount": 1.0, "divergence_weight": 1.0, "divergence": "chi2"},
            ),
        ],
        refuses=[
            Refusal(
                "value and reward must have one shape",
                (*THREE, jnp.ones(3), jnp.zeros(2, bool)),
                {"discount": 0.5, "divergence_weight": 1.0},
            ),
            Refusal(
                "divergence_weight must be finite and positive",
                (*THREE, jnp.ones(2), jnp.zeros(2, bool)),
                {"discount": 0.5, "divergence_weight": 0.0},
            ),
            Refusal(
                UNKNOWN,
                (*THREE, jnp.ones(2), jnp.zeros(2, bool)),
                {"discount": 0.5, "divergence_weight": 1.0, "divergence": "tv"},
            ),
        ],
        rtol=1e-3,
        atol=1e-4,
    ),
    Row(
        opti_dice_weights,
        sample=series(1, elements=MODEST),
        options=st.fixed_dictionaries({"divergence_weight": reals(1, 5), "divergence": KINDS}),
        oracle=weights_by_search,
        exempt={"slope": "the weights carry no gradient"},
        laws=[weights_have_no_gradient],
        edges=[Edge((np.zeros(0),), {"divergence_weight": 1.0, "divergence": "kl"})],
        refuses=[
            Refusal(
                "divergence_weight must be finite and positive",
                (jnp.ones(2),),
                {"divergence_weight": -1.0},
            ),
            Refusal(UNKNOWN, (jnp.ones(2),), {"divergence_weight": 1.0, "divergence": "tv"}),
        ],
        # The slope is of a search whose steps end at 1e-10 of 200.
        rtol=1e-4,
        atol=1e-5,
    ),
]
