import itertools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import stats

from neorl_core.statistics import (
    PairedTest,
    wilcoxon_test,
)
from neorl_core.testing import Edge, Refusal, Row, assert_close, in_units, keys, mapped, rows

PAIRS = 5
# Halves of integers: differences are exact, so ties are ties in every precision.
HALVES = rows(PAIRS, elements=st.integers(-6, 6).map(lambda n: n / 2))
PAIR = in_units(st.tuples(HALVES, HALVES), low=-30, high=30, base=2)
SIDES = st.sampled_from(["two-sided", "greater", "less"])
KEY = jax.random.key(0)


def all_signs(difference, statistic, alternative):
    """The share of sign patterns whose statistic is as extreme as the observed one."""
    observed = statistic(difference)
    others = [
        statistic(np.abs(difference) * signs)
        for signs in itertools.product([-1, 1], repeat=len(difference))
    ]
    slack = 1e-9 * np.max(np.abs(others))
    upper = np.mean(np.asarray(others) >= observed - slack)
    lower = np.mean(np.asarray(others) <= observed + slack)
    both = min(1.0, 2 * min(upper, lower))
    return {"two-sided": both, "greater": upper, "less": lower}[alternative]


def positive_rank_sum(difference):
    apart = difference[difference != 0]
    if not len(apart):
        return 0.0
    return stats.rankdata(np.abs(apart))[apart > 0].sum()


def wilcoxon_by_counting(first, second, *, alternative):
    difference = first - second
    p_value = all_signs(difference, positive_rank_sum, alternative)
    return PairedTest(np.asarray(positive_rank_sum(difference)), np.asarray(p_value))


def swapping_swaps_the_sides(function):
    other = {"two-sided": "two-sided", "greater": "less", "less": "greater"}

    def law(first, second, *key, alternative):
        plain = mapped(function, first, second, *key, alternative=alternative)
        swapped = mapped(function, second, first, *key, alternative=other[alternative])
        assert_close(swapped.p_value, plain.p_value, atol=1e-5)

    return law


def only_the_difference_counts(function):
    def law(first, second, *key, alternative):
        plain = mapped(function, first, second, *key, alternative=alternative)
        both = np.float32(4) * np.abs(first).max(axis=1, keepdims=True)
        moved = mapped(function, first + both, second + both, *key, alternative=alternative)
        assert_close(moved, plain, atol=1e-5)

    return law


def paired_row(function, oracle, least, key=False, **extra):
    extra_argument = (KEY,) if key else ()
    return Row(
        function,
        sample=st.tuples(PAIR, keys()).map(lambda drawn: (*drawn[0], drawn[1])) if key else PAIR,
        options=SIDES.map(lambda side: {"alternative": side}),
        oracle=oracle,
        laws=[swapping_swaps_the_sides(function), only_the_difference_counts(function)],
        refuses=[
            Refusal("one shape", (jnp.ones(2), jnp.ones(3), *extra_argument)),
            Refusal("(pair)", (jnp.ones((2, 2)), jnp.ones((2, 2)), *extra_argument)),
            Refusal(f"length {least}", (jnp.ones(least - 1), jnp.ones(least - 1), *extra_argument)),
            Refusal(
                "two-sided, greater, less",
                (jnp.ones(2), jnp.ones(2), *extra_argument),
                {"alternative": "both"},
            ),
        ],
        differentiable=False,
        **extra,
    )


ROWS = [
    paired_row(
        wilcoxon_test,
        wilcoxon_by_counting,
        1,
        edges=[
            Edge((np.ones(3), np.ones(3)), {"alternative": "two-sided"}),
            Edge((np.ones(1), np.zeros(1)), {"alternative": "greater"}),
        ],
    ),
]
