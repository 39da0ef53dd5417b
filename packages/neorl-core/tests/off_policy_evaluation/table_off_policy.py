import functools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import optimize

from neorl_core.off_policy_evaluation import (
    LoggedTrajectories,
    Magic,
    doubly_robust_return,
    effective_sample_size,
    magic,
    marginalised_doubly_robust,
    marginalised_return,
    pdis_return,
    tis_return,
    weighted_doubly_robust,
    wis,
    wpdis,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    flags,
    in_units,
    keys,
    mapped,
    reals,
    rows,
)

N, T = 4, 3
SMALL = reals(-2, 2)
# A step that the policies take alike, or one of them almost never.
LOG_RATIOS = st.one_of(SMALL, reals(-16, 16))
DISCOUNTS = reals(0, 1).map(lambda discount: {"discount": float(discount)})
# Lengths of trajectories as masks that are true up to the end.
MASKS = {
    (): st.lists(st.integers(0, T), min_size=3, max_size=3),
    (N,): st.lists(st.integers(0, T), min_size=3 * N, max_size=3 * N),
}


def logs(*lead):
    shape = (*lead, T)
    masks = MASKS[lead].map(lambda ends: np.arange(T) < np.asarray(ends).reshape(3, *lead, 1))
    valued = in_units(st.tuples(*[rows(*shape, elements=SMALL) for _ in range(3)]))
    columns = st.tuples(rows(*shape, elements=LOG_RATIOS), masks, valued).map(
        lambda drawn: LoggedTrajectories(drawn[0], drawn[2][0], drawn[1], *drawn[2][1:])
    )
    return st.tuples(columns)


def powers(discount):
    return np.asarray([discount**t for t in range(T)])


def products(log):
    """``rho_t`` by multiplication; a step behind the end multiplies by one."""
    return np.cumprod(np.where(log.mask, np.exp(log.log_ratio), 1.0), axis=-1)


def rewards(log):
    return np.where(log.mask, log.reward, 0.0)


def tis_by_products(log, *, discount):
    return products(log)[-1] * np.sum(powers(discount) * rewards(log))


def pdis_by_products(log, *, discount):
    return np.sum(powers(discount) * products(log) * rewards(log))


def wis_by_products(log, *, discount):
    weights = products(log)[:, -1]
    return np.sum(weights * (rewards(log) @ powers(discount))) / np.sum(weights)


def wpdis_by_products(log, *, discount):
    weights = products(log)
    return np.sum(powers(discount) * (weights * rewards(log)).sum(axis=0) / weights.sum(axis=0))


def model(log):
    return np.where(log.mask, log.q_value, 0.0), np.where(log.mask, log.value, 0.0)


def doubly_robust_in_closed_form(log, *, discount):
    (q_value, value), rho = model(log), products(log)
    before = np.append(1.0, rho[:-1])
    return np.sum(powers(discount) * (rho * (rewards(log) - q_value) + before * value))


def weighted_terms(log, discount):
    (q_value, value), rho = model(log), products(log)
    weights = rho / rho.sum(axis=0)
    before = np.hstack([np.full((len(rho), 1), 1 / len(rho)), weights[:, :-1]])
    return powers(discount) * (weights * (rewards(log) - q_value) + before * value), weights, value


def weighted_doubly_robust_by_products(log, *, discount):
    return np.sum(weighted_terms(log, discount)[0])


@functools.partial(jax.jit, static_argnums=(1, 2))
def bits(key_data, n, count):
    all_keys = jax.random.split(jax.random.wrap_key_data(key_data), count)
    return jax.vmap(lambda key: jax.random.bits(key, (n,), jnp.uint32))(all_keys)


def draws(key_data, n, count):
    """The upper word of 32 random bits times the number of rows."""
    return (np.asarray(bits(key_data, n, count)).astype(np.uint64) * np.uint64(n)) >> np.uint64(32)


def magic_problem(log, key, *, discount, resamples):
    terms, weights, value = weighted_terms(log, discount)
    partial = np.zeros((N, T + 1))
    partial[:, 0] = value[:, 0] / N
    for j in range(T):
        tail = discount ** (j + 1) * weights[:, j] * value[:, j + 1] if j + 1 < T else 0.0
        partial[:, j + 1] = terms[:, : j + 1].sum(axis=1) + tail
    blended = partial.sum(axis=0)
    replicates = [
        weighted_doubly_robust_by_products(
            LoggedTrajectories._make(column[chosen] for column in log), discount=discount
        )
        for chosen in np.asarray(draws(key, N, resamples))
    ]
    low, high = np.quantile(replicates, [0.25, 0.75])
    bias = np.where(blended > high, blended - high, np.where(blended < low, blended - low, 0.0))
    matrix = N * np.cov(partial.T) + np.outer(bias, bias)
    return blended, matrix


def least_quadratic(matrix):
    scale = np.abs(matrix).max() or 1.0
    n = len(matrix)
    result = [
        optimize.minimize(
            lambda x: x @ matrix @ x / scale,
            start,
            jac=lambda x: 2 * matrix @ x / scale,
            bounds=[(0, 1)] * n,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        ).x
        for start in [np.full(n, 1 / n), *np.eye(n)[:2]]
    ]
    return min(result, key=lambda x: x @ matrix @ x)


def magic_promises_as_little_error_as_scipys(log, key, *, discount, resamples):
    """The weights need not be unique, so the error that they promise is compared."""
    ours = mapped(magic, log, key, discount=discount, resamples=resamples)
    assert isinstance(ours, Magic)
    assert_close(jnp.sum(ours.weights, axis=1), np.ones(3), atol=1e-5)
    assert np.all(np.asarray(ours.weights) >= 0)
    assert_close(ours.estimate, jnp.sum(ours.weights * ours.blended, axis=1), atol=1e-5)
    options = {"discount": discount, "resamples": resamples}
    for row in range(3):
        one = jax.tree.map(lambda leaf, row=row: np.asarray(leaf[row]), log)
        blended, matrix = magic_problem(one, jax.random.key_data(key[row]), **options)
        assert_close(ours.blended[row], blended, atol=1e-4)
        weights, best = np.asarray(ours.weights[row], np.float64), least_quadratic(matrix)
        slack = 1e-3 * np.abs(matrix).max()
        assert weights @ matrix @ weights <= best @ matrix @ best + slack


def scales_with_the_rewards(function):
    def law(log, *key, **options):
        scaled = LoggedTrajectories(
            log.log_ratio,
            2 * log.reward,
            log.mask,
            q_value=2 * log.q_value,
            value=2 * log.value,
        )
        assert_close(
            mapped(function, scaled, *key, **options),
            2 * mapped(function, log, *key, **options),
            atol=1e-4,
        )

    return law


def nothing_behind_the_end_matters(function):
    def law(log, **options):
        spoiled = LoggedTrajectories(
            *(
                np.where(log.mask, column, np.nan).astype(np.float32)
                for column in (log.log_ratio, log.reward)
            ),
            log.mask,
            *(
                np.where(log.mask, column, np.nan).astype(np.float32)
                for column in (log.q_value, log.value)
            ),
        )
        assert_close(mapped(function, spoiled, **options), mapped(function, log, **options))

    return law


def a_common_factor_of_the_first_weights_cancels(function):
    def law(log, **options):
        started = log.mask[:, :, :1].all(axis=1, keepdims=True)
        factor = np.where(started & (np.arange(T) == 0), np.float32(1.5), np.float32(0))
        shifted = log._replace(log_ratio=(log.log_ratio + factor).astype(np.float32))
        assert_close(
            mapped(function, shifted, **options), mapped(function, log, **options), atol=1e-4
        )

    return law


def on_its_own_log_it_is_the_mean_return(function):
    def law(log, *, discount):
        own = log._replace(log_ratio=np.zeros_like(log.log_ratio))
        returns = np.where(log.mask, log.reward, 0) @ powers(discount)
        mean = returns.mean(axis=1) if returns.ndim > 1 else returns
        assert_close(mapped(function, own, discount=discount), mean, atol=1e-5)

    return law


def without_a_model_it_is(plain, function):
    def law(log, *, discount):
        bare = log._replace(q_value=0 * log.q_value, value=0 * log.value)
        assert_close(
            mapped(function, bare, discount=discount),
            mapped(plain, log, discount=discount),
            atol=1e-5,
        )

    return law


def log_edges(*lead):
    zero, shape = np.zeros((*lead, T)), (*lead, T)
    certain = LoggedTrajectories(np.full(shape, 1.0), zero + 1, zero == 0, zero, zero)
    return [Edge((certain,), {"discount": discount}) for discount in (0.0, 1.0)]


def log_refusals(shape, words):
    good = LoggedTrajectories(*[jnp.ones(shape)] * 2, None, *[jnp.ones(shape)] * 2)
    short, none = jnp.ones((*shape[:-1], 1)), jnp.ones((*shape[:-1], 0))
    nothing = LoggedTrajectories(*[none] * 2, None, *[none] * 2)
    return [
        Refusal(
            words, (good._replace(log_ratio=jnp.ones(()), reward=jnp.ones(())),), {"discount": 1.0}
        ),
        Refusal("log_ratio and reward", (good._replace(reward=short),), {"discount": 1.0}),
        Refusal("log_ratio and mask", (good._replace(mask=short > 0),), {"discount": 1.0}),
        Refusal("one step or more", (nothing,), {"discount": 1.0}),
        Refusal("discount", (good,), {"discount": 1.5}),
    ]


def model_refusals(shape):
    good = LoggedTrajectories(*[jnp.ones(shape)] * 2, None, *[jnp.ones(shape)] * 2)
    short = jnp.ones((*shape[:-1], 1))
    return [
        Refusal("got None", (good._replace(value=None),), {"discount": 1.0}),
        Refusal("got None", (good._replace(q_value=None),), {"discount": 1.0}),
        Refusal("q_value and reward", (good._replace(q_value=short),), {"discount": 1.0}),
        Refusal("value and reward", (good._replace(value=short),), {"discount": 1.0}),
    ]


def single_row(function, oracle, laws, refuses=()):
    return Row(
        function,
        sample=logs(),
        options=DISCOUNTS,
        oracle=oracle,
        laws=[scales_with_the_rewards(function), nothing_behind_the_end_matters(function), *laws],
        edges=log_edges(),
        refuses=[*log_refusals((T,), "(time)"), *refuses],
    )


def weighted_row(function, oracle, laws, refuses=()):
    none = LoggedTrajectories(*[jnp.ones((0, T))] * 2, None, *[jnp.ones((0, T))] * 2)
    return Row(
        function,
        sample=logs(N),
        options=DISCOUNTS,
        oracle=oracle,
        laws=[
            nothing_behind_the_end_matters(function),
            a_common_factor_of_the_first_weights_cancels(function),
            *laws,
        ],
        edges=log_edges(N),
        refuses=[
            *log_refusals((N, T), "(trajectory, time)"),
            Refusal("got none", (none,), {"discount": 1.0}),
            *refuses,
        ],
    )


def size_by_hand(log_weights):
    weights = np.exp(log_weights)
    return weights.sum(axis=0) ** 2 / (weights**2).sum(axis=0)


def a_constant_cancels(log_weights):
    assert_close(
        mapped(effective_sample_size, log_weights + 3), mapped(effective_sample_size, log_weights)
    )


def marginal_by_hand(density_ratio, reward, *, discount, normalise):
    weighted = np.sum(density_ratio * reward) / len(reward)
    if normalise:
        weighted = np.sum(density_ratio * reward) / np.sum(density_ratio)
    return weighted / (1 - discount)


def a_constant_reward_is_worth_its_sum(density_ratio, reward, *, discount, normalise):
    value = mapped(
        marginalised_return, density_ratio, 0 * reward + 2, discount=discount, normalise=True
    )
    assert_close(value, np.full(3, 2 / (1 - discount)), rtol=1e-4)


def double_by_hand(start, zeta, reward, q_value, next_value, terminated, *, discount):
    total = 0.0
    for row in range(len(reward)):
        following = 0.0 if terminated[row] else discount * next_value[row]
        total += zeta[row] * (reward[row] + following - q_value[row])
    return start.mean() + total / len(reward) / (1 - discount)


def without_weights_it_is_the_model(start, zeta, *rest, discount):
    value = mapped(marginalised_doubly_robust, start, 0 * zeta, *rest, discount=discount)
    assert_close(value, start.mean(axis=1), atol=1e-5)


WEIGHTS = st.tuples(in_units(rows(7, elements=reals(0.0625, 8))), in_units(rows(7)))
KEY = jax.random.key(0)
MODELLED = LoggedTrajectories(*[jnp.ones((2, 2))] * 2, None, *[jnp.ones((2, 2))] * 2)
RATIO = "density_ratio must be finite and not negative, got [-1.]; check sign and unit"

ROWS = [
    single_row(tis_return, tis_by_products, [on_its_own_log_it_is_the_mean_return(tis_return)]),
    single_row(pdis_return, pdis_by_products, [on_its_own_log_it_is_the_mean_return(pdis_return)]),
    single_row(
        doubly_robust_return,
        doubly_robust_in_closed_form,
        [without_a_model_it_is(pdis_return, doubly_robust_return)],
        model_refusals((T,)),
    ),
    weighted_row(wis, wis_by_products, [on_its_own_log_it_is_the_mean_return(wis)]),
    weighted_row(wpdis, wpdis_by_products, [on_its_own_log_it_is_the_mean_return(wpdis)]),
    weighted_row(
        weighted_doubly_robust,
        weighted_doubly_robust_by_products,
        [without_a_model_it_is(wpdis, weighted_doubly_robust)],
        model_refusals((N, T)),
    ),
    Row(
        magic,
        sample=st.tuples(logs(N), keys()).map(lambda pair: (*pair[0], pair[1])),
        options={"discount": 0.875, "resamples": 20},
        oracle=None,
        laws=[magic_promises_as_little_error_as_scipys],
        refuses=[
            Refusal(
                "two trajectories",
                (LoggedTrajectories(*[jnp.ones((1, 2))] * 2, None, *[jnp.ones((1, 2))] * 2), KEY),
                {"discount": 1.0},
            ),
            Refusal(
                "one step or more",
                (LoggedTrajectories(*[jnp.ones((2, 0))] * 2, None, *[jnp.ones((2, 0))] * 2), KEY),
                {"discount": 1.0},
            ),
            Refusal(
                "got None",
                (LoggedTrajectories(*[jnp.ones((2, 2))] * 2), KEY),
                {"discount": 1.0},
            ),
            Refusal("level must", (MODELLED, KEY), {"discount": 1.0, "level": 0.0}),
            Refusal("resamples must", (MODELLED, KEY), {"discount": 1.0, "resamples": 0}),
        ],
        differentiable=False,
        exempt={
            "oracle": "the minimiser is not unique: the law compares with SciPy's",
            "everywhere": "rounding picks one of several minimisers: a law compares the rest",
        },
        # The blended parts of two programs; the law compares what is promised.
        rtol=1e-3,
        atol=1e-3,
    ),
    Row(
        effective_sample_size,
        sample=st.tuples(rows(7, 2, elements=st.one_of(SMALL, reals(-80, 80)))),
        oracle=size_by_hand,
        laws=[a_constant_cancels],
        edges=[
            Edge((np.zeros((4, 1)),)),
            Edge((np.full(3, 50.0),)),
            Edge((np.asarray([[0.0, -80.0], [1.0, -81.0]]),)),
            Edge((np.zeros((3, 0)),)),
        ],
        refuses=[
            Refusal(
                "log_weights needs the samples along its first axis, got a scalar", (jnp.ones(()),)
            )
        ],
    ),
    Row(
        marginalised_return,
        sample=WEIGHTS,
        options=st.fixed_dictionaries(
            {"discount": reals(0, 0.9375).map(float), "normalise": st.booleans()}
        ),
        oracle=marginal_by_hand,
        laws=[a_constant_reward_is_worth_its_sum],
        edges=[
            Edge((np.zeros(3), np.ones(3)), {"discount": 0.0, "normalise": False}),
            Edge((np.full(3, 1e4), np.zeros(3)), {"discount": 0.5, "normalise": True}),
        ],
        refuses=[
            Refusal("one shape", (jnp.ones(2), jnp.ones(3)), {"discount": 0.5}),
            Refusal("length 1", (jnp.ones(0), jnp.ones(0)), {"discount": 0.5}),
            Refusal("[0, 1)", (jnp.ones(2), jnp.ones(2)), {"discount": 1.0}),
            Refusal("discount must be in [0, 1]", (jnp.ones(2), jnp.ones(2)), {"discount": -1.0}),
            Refusal(RATIO, (-jnp.ones(1), jnp.ones(1)), {"discount": 0.5}),
        ],
    ),
    Row(
        marginalised_doubly_robust,
        sample=st.tuples(
            in_units(st.tuples(rows(2), *[rows(7)] * 3)),
            rows(7, elements=reals(0.0625, 8)),
            flags(7),
        ).map(lambda drawn: (drawn[0][0], drawn[1], *drawn[0][1:], drawn[2])),
        options=reals(0, 0.9375).map(lambda discount: {"discount": float(discount)}),
        oracle=double_by_hand,
        laws=[without_weights_it_is_the_model],
        edges=[Edge((np.zeros(1), *[np.zeros(3)] * 4, np.ones(3, bool)), {"discount": 0.5})],
        refuses=[
            Refusal(
                "initial_value needs a first axis of length 1",
                (jnp.ones(0), *[jnp.ones(2)] * 4, jnp.zeros(2, bool)),
                {"discount": 0.5},
            ),
            Refusal(
                "one shape",
                (jnp.ones(1), *[jnp.ones(2)] * 4, jnp.zeros(3, bool)),
                {"discount": 0.5},
            ),
            Refusal(
                "[0, 1)", (jnp.ones(1), *[jnp.ones(2)] * 4, jnp.zeros(2, bool)), {"discount": 1.0}
            ),
            Refusal(
                "initial_value must have the axes (start), got shape (2, 1); for a batch of them "
                "use jax.vmap",
                (jnp.ones((2, 1)), *[jnp.ones(2)] * 4, jnp.zeros(2, bool)),
                {"discount": 0.5},
            ),
            Refusal(
                RATIO,
                (jnp.ones(1), -jnp.ones(1), *[jnp.ones(1)] * 3, jnp.zeros(1, bool)),
                {"discount": 0.5},
            ),
        ],
    ),
]
