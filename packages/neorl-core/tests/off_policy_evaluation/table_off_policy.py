import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.off_policy_evaluation import (
    LoggedTrajectories,
    effective_sample_size,
    weighted_doubly_robust,
    wpdis,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    in_units,
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


def wpdis_by_products(log, *, discount):
    weights = products(log)
    return np.sum(powers(discount) * (weights * rewards(log)).sum(axis=0) / weights.sum(axis=0))


def model(log):
    return np.where(log.mask, log.q_value, 0.0), np.where(log.mask, log.value, 0.0)


def weighted_terms(log, discount):
    (q_value, value), rho = model(log), products(log)
    weights = rho / rho.sum(axis=0)
    before = np.hstack([np.full((len(rho), 1), 1 / len(rho)), weights[:, :-1]])
    return powers(discount) * (weights * (rewards(log) - q_value) + before * value), weights, value


def weighted_doubly_robust_by_products(log, *, discount):
    return np.sum(weighted_terms(log, discount)[0])


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
        Refusal(
            "each episode into a row of its own",
            (good._replace(log_ratio=jnp.ones(shape[-1]), reward=jnp.ones(shape[-1])),),
            {"discount": 1.0},
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


ROWS = [
    weighted_row(wpdis, wpdis_by_products, [on_its_own_log_it_is_the_mean_return(wpdis)]),
    weighted_row(
        weighted_doubly_robust,
        weighted_doubly_robust_by_products,
        [without_a_model_it_is(wpdis, weighted_doubly_robust)],
        model_refusals((N, T)),
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
]
