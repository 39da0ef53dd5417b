import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.returns import (
    discounted_returns,
    generalised_advantages,
    n_step_returns,
    segment_generalised_advantages,
    segment_n_step_returns,
    segment_td_lambda_returns,
    td_lambda_returns,
)
from neorl_core.testing import (
    LENGTHS,
    Edge,
    Refusal,
    Row,
    assert_close,
    endings,
    flags,
    in_units,
    mapped,
    reals,
    rows,
)
from neorl_core.testing import ROWS as ROW_COUNT

SHARE = reals(0, 1)
DISCOUNT = SHARE.map(lambda discount: {"discount": discount})
LAM = st.fixed_dictionaries({"discount": SHARE, "lam": SHARE})
N_STEP = st.fixed_dictionaries({"discount": SHARE, "n": st.sampled_from([1, 3])})


def stacked_endings(length):
    pattern = st.lists(endings(length), min_size=ROW_COUNT, max_size=ROW_COUNT)
    return pattern.map(lambda kinds: tuple(np.stack(flag) for flag in zip(*kinds, strict=True)))


def episode(count):
    """``count`` series, in one unit, and the flags of an episode that may trip on its way."""
    return st.sampled_from(LENGTHS).flatmap(
        lambda length: in_units(st.tuples(*[rows(length)] * count, flags(length)))
    )


def log(count):
    """``count`` series, in one unit, and both flags of a flat log."""
    return st.sampled_from(LENGTHS).flatmap(
        lambda length: st.tuples(
            in_units(st.tuples(*[rows(length)] * count)), stacked_endings(length)
        ).map(lambda parts: (*parts[0], *parts[1]))
    )


# Oracles: the definitions as explicit sums over every later step of the same episode.


def sum_of_later_rewards(reward, final_value, *, discount):
    steps = len(reward)
    return np.asarray(
        [
            sum(discount ** (k - t) * reward[k] for k in range(t, steps))
            + discount ** (steps - t) * final_value
            for t in range(steps)
        ]
    )


def last_of_episode(start, ends):
    return next((k for k in range(start, len(ends)) if ends[k]), len(ends) - 1)


def explicit_n_step(reward, next_value, terminated, truncated, *, n, discount):
    """One return by its definition: rewards up to step ``t + n - 1``, then the value there."""
    ends = terminated.astype(bool) | truncated.astype(bool)
    result = []
    for t in range(len(reward)):
        last = min(t + n - 1, last_of_episode(t, ends))
        total = sum(discount ** (k - t) * reward[k] for k in range(t, last + 1))
        if not terminated[last]:
            total += discount ** (last + 1 - t) * next_value[last]
        result.append(total)
    return np.asarray(result)


def explicit_lambda(reward, next_value, terminated, truncated, *, discount, lam):
    """The geometric mixture of all n-step returns of the episode."""
    steps, ends = len(reward), terminated.astype(bool) | truncated.astype(bool)
    n_step = [
        explicit_n_step(reward, next_value, terminated, truncated, n=n, discount=discount)
        for n in range(1, steps + 1)
    ]
    result = []
    for t in range(steps):
        longest = last_of_episode(t, ends) - t + 1
        mixture = sum((1 - lam) * lam ** (n - 1) * n_step[n - 1][t] for n in range(1, longest))
        result.append(mixture + lam ** (longest - 1) * n_step[longest - 1][t])
    return np.asarray(result)


def explicit_advantages(reward, value, next_value, terminated, truncated, *, discount, lam):
    """The discounted sum of the later temporal differences of the episode."""
    ends = terminated.astype(bool) | truncated.astype(bool)
    difference = reward + discount * np.where(terminated, 0, next_value) - value
    return np.asarray(
        [
            sum(
                (discount * lam) ** (k - t) * difference[k]
                for k in range(t, last_of_episode(t, ends) + 1)
            )
            for t in range(len(reward))
        ]
    )


def alone(explicit):
    """The oracle of the variant for one episode, which has no ``truncated``."""

    def of_one_episode(*args, **options):
        return explicit(*args, np.zeros_like(args[-1]), **options)

    return of_one_episode


# Laws.


def returns_are_linear(reward, final_value, *, discount):
    def total(scale):
        return mapped(discounted_returns, scale * reward, scale * final_value, discount=discount)

    assert_close(total(np.float32(-3)), -3 * total(np.float32(1)))


def recursion_holds(reward, final_value, *, discount):
    result = np.asarray(mapped(discounted_returns, reward, final_value, discount=discount))
    following = np.concatenate([result[:, 1:], final_value[:, None]], axis=1)
    assert_close(result, reward + np.float32(discount) * following)


def episodes_do_not_touch(function):
    def law(*args, **options):
        """NaN in the rows after the first episode leaves the first episode as it is."""
        terminated, truncated = args[-2:]
        clean = np.asarray(mapped(function, *args, **options))
        ends = terminated | truncated
        later = np.cumsum(ends, axis=1) - ends > 0
        series = [np.where(later, np.float32(np.nan), values) for values in args[:-2]]
        spoiled = np.asarray(mapped(function, *series, terminated, truncated, **options))
        np.testing.assert_array_equal(spoiled[~later], clean[~later])

    return law


def lambda_zero_is_one_step(reward, next_value, terminated, *, discount, lam):
    assert_close(
        mapped(td_lambda_returns, reward, next_value, terminated, discount=discount, lam=0.0),
        reward + np.float32(discount) * np.where(terminated, 0, next_value),
    )


def advantage_and_value_make_the_lambda_return(
    reward, value, next_value, terminated, *, discount, lam
):
    """Where the next value is the value of the next step, GAE plus value is TD(lambda)."""
    consistent = np.concatenate([value[:, 1:], next_value[:, -1:]], axis=1)
    options = {"discount": discount, "lam": lam}
    advantage = mapped(generalised_advantages, reward, value, consistent, terminated, **options)
    assert_close(
        np.asarray(advantage) + value,
        mapped(td_lambda_returns, reward, consistent, terminated, **options),
        atol=1e-5,
    )


def a_constant_shift_of_values_shifts_by_the_leak(
    reward, value, next_value, terminated, truncated, *, discount, lam
):
    """With discount 1 and no trip, shifting all values by a constant changes nothing."""
    never = np.zeros_like(terminated)
    options = {"discount": 1.0, "lam": lam}
    rest = never, truncated
    shift = 8 * np.max(np.abs(next_value), axis=1, keepdims=True)
    moved = value + shift, next_value + shift
    # What cancels is as large as the shift.
    assert_close(
        mapped(segment_generalised_advantages, reward, *moved, *rest, **options),
        mapped(segment_generalised_advantages, reward, value, next_value, *rest, **options),
        scale=float(np.max(np.abs([reward, *moved]))),
    )


def long_windows_are_the_whole_return(reward, next_value, terminated, truncated, *, discount, n):
    log = reward, next_value, terminated, truncated
    assert_close(
        mapped(segment_n_step_returns, *log, discount=discount, n=50),
        mapped(segment_td_lambda_returns, *log, discount=discount, lam=1.0),
    )


def one_step_is_the_td_target(reward, next_value, terminated, *, discount, n):
    assert_close(
        mapped(n_step_returns, reward, next_value, terminated, discount=discount, n=1),
        reward + np.float32(discount) * np.where(terminated, 0, next_value),
    )


def refusals(*names, **options):
    """Empty, of another rank, of unequal shapes, and a discount outside [0, 1]."""

    def series(*shape):
        flags = {"terminated", "truncated"}
        return [jnp.zeros(shape, bool) if name in flags else jnp.ones(shape) for name in names]

    good, bad, half = series(4), series(3), {**options, "discount": 0.5}
    unequal = [(*good[:i], bad[i], *good[i + 1 :]) for i in range(1, len(names))]
    return [
        Refusal("reward needs a first axis of length 1", tuple(series(0)), half),
        Refusal("reward must have the axes (time)", tuple(series(2, 2)), half),
        *(
            Refusal(f"reward and {name} must have one shape", args, half)
            for name, args in zip(names[1:], unequal, strict=True)
        ),
        Refusal("discount must be in [0, 1]", tuple(good), {**options, "discount": 1.1}),
        Refusal("discount must be in [0, 1]", tuple(good), {**options, "discount": -0.1}),
    ]


ZEROS, BIG, NEVER, ALWAYS = np.zeros(7), np.full(7, 1e6), np.zeros(7, bool), np.ones(7, bool)
AT_ONE = {"discount": 1.0}
AT_ZERO = {"discount": 0.0}

ROWS = [
    Row(
        discounted_returns,
        sample=st.sampled_from(LENGTHS).flatmap(lambda n: in_units(st.tuples(rows(n), rows()))),
        options=DISCOUNT,
        oracle=sum_of_later_rewards,
        laws=[returns_are_linear, recursion_holds],
        edges=[
            Edge((ZEROS, 0.0), AT_ONE),
            Edge((BIG, 1e6), AT_ONE),
            Edge((BIG, -1e6), AT_ZERO),
        ],
        refuses=[
            Refusal("reward needs a first axis of length 1", (jnp.ones(0),), AT_ONE),
            Refusal("reward must have the axes (time)", (jnp.ones((2, 2)),), AT_ONE),
            Refusal("final_value must have the axes ()", (jnp.ones(2), jnp.ones(2)), AT_ONE),
            Refusal("discount must be in [0, 1]", (jnp.ones(2),), {"discount": 1.5}),
        ],
    ),
    Row(
        td_lambda_returns,
        sample=episode(2),
        options=LAM,
        oracle=alone(explicit_lambda),
        laws=[lambda_zero_is_one_step],
        edges=[Edge((BIG, BIG, NEVER), {"discount": 1.0, "lam": 1.0})],
        refuses=[
            *refusals("reward", "next_value", "terminated", lam=0.5),
            Refusal(
                "lam must be in [0, 1]",
                (jnp.ones(2), jnp.ones(2), jnp.zeros(2, bool)),
                {"discount": 0.5, "lam": -1.0},
            ),
        ],
    ),
    Row(
        segment_td_lambda_returns,
        sample=log(2),
        options=LAM,
        oracle=explicit_lambda,
        laws=[
            episodes_do_not_touch(segment_td_lambda_returns),
        ],
        edges=[Edge((BIG, BIG, NEVER, ALWAYS), {"discount": 1.0, "lam": 0.0})],
        refuses=refusals("reward", "next_value", "terminated", "truncated", lam=0.5),
    ),
    Row(
        generalised_advantages,
        sample=episode(3),
        options=LAM,
        oracle=alone(explicit_advantages),
        laws=[advantage_and_value_make_the_lambda_return],
        edges=[Edge((BIG, BIG, BIG, NEVER), {"discount": 1.0, "lam": 1.0})],
        refuses=refusals("reward", "value", "next_value", "terminated", lam=0.5),
    ),
    Row(
        segment_generalised_advantages,
        sample=log(3),
        options=LAM,
        oracle=explicit_advantages,
        laws=[
            a_constant_shift_of_values_shifts_by_the_leak,
            episodes_do_not_touch(segment_generalised_advantages),
        ],
        edges=[Edge((ZEROS, ZEROS, ZEROS, ALWAYS, NEVER), {"discount": 0.0, "lam": 0.0})],
        refuses=refusals("reward", "value", "next_value", "terminated", "truncated", lam=0.5),
    ),
    Row(
        n_step_returns,
        sample=episode(2),
        options=N_STEP,
        oracle=alone(explicit_n_step),
        laws=[one_step_is_the_td_target],
        edges=[Edge((BIG, BIG, NEVER), {"discount": 1.0, "n": 7})],
        refuses=[
            *refusals("reward", "next_value", "terminated", n=2),
            *(
                Refusal(
                    "n must be",
                    (jnp.ones(2), jnp.ones(2), jnp.zeros(2, bool)),
                    {"discount": 0.5, "n": n},
                )
                for n in (0, -3, 1.5, True)
            ),
        ],
    ),
    Row(
        segment_n_step_returns,
        sample=log(2),
        options=N_STEP,
        oracle=explicit_n_step,
        laws=[long_windows_are_the_whole_return, episodes_do_not_touch(segment_n_step_returns)],
        edges=[Edge((BIG, BIG, NEVER, ALWAYS), {"discount": 1.0, "n": 2})],
        refuses=refusals("reward", "next_value", "terminated", "truncated", n=2),
    ),
]
