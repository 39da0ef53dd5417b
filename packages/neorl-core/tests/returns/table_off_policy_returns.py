import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.returns import (
    VTrace,
    generalised_advantages,
    retrace_returns,
    segment_retrace_returns,
    segment_td_lambda_returns,
    segment_v_trace,
    v_trace,
)
from neorl_core.testing import (
    LENGTHS,
    Edge,
    Refusal,
    Row,
    assert_close,
    decades,
    endings,
    flags,
    in_units,
    mapped,
    reals,
    rows,
)
from neorl_core.testing import ROWS as ROW_COUNT

SHARE, CUT = reals(0, 1), reals(0.25, 2)
# Densities of actions differ by decades as soon as the policies do.
RATIO = st.one_of(reals(0, 4), decades().map(abs))
RETRACE = st.fixed_dictionaries({"discount": SHARE, "lam": SHARE})
V_TRACE = st.fixed_dictionaries({"discount": SHARE, "lam": SHARE, "max_rho": CUT, "max_c": CUT})


def steps(length):
    """Rewards and values in one unit, and ratios, which have none."""
    valued = in_units(st.tuples(*[rows(length)] * 3))
    return st.tuples(valued, rows(length, elements=RATIO)).map(lambda drawn: (*drawn[0], drawn[1]))


def stacked_endings(length):
    pattern = st.lists(endings(length), min_size=ROW_COUNT, max_size=ROW_COUNT)
    return pattern.map(lambda kinds: tuple(np.stack(flag) for flag in zip(*kinds, strict=True)))


EPISODE = st.sampled_from(LENGTHS).flatmap(
    lambda n: st.tuples(steps(n), flags(n)).map(lambda parts: (*parts[0], parts[1]))
)
LOG = st.sampled_from(LENGTHS).flatmap(
    lambda n: st.tuples(steps(n), stacked_endings(n)).map(lambda parts: (*parts[0], *parts[1]))
)


# Oracles: the sums of the papers over every later step of the same episode, written out.


def last_of_episode(start, ends):
    return next((k for k in range(start, len(ends)) if ends[k]), len(ends) - 1)


def corrections(difference, factor, ends):
    """``sum_k (product of the factors on the way from t to k) difference_k``."""
    result = []
    for t in range(len(difference)):
        last = last_of_episode(t, ends)
        result.append(
            sum(
                np.prod([factor(i) for i in range(t, k)]) * difference[k]
                for k in range(t, last + 1)
            )
        )
    return np.asarray(result)


def v_trace_by_sums(
    reward, value, next_value, ratio, terminated, truncated, *, discount, lam, max_rho, max_c
):
    ends = terminated.astype(bool) | truncated.astype(bool)
    follows = np.where(terminated, 0, next_value)
    rho = np.minimum(max_rho, ratio)
    difference = reward + discount * follows - value
    correction = corrections(
        rho * difference, lambda i: discount * lam * min(max_c, ratio[i]), ends
    )
    advantages = []
    for t in range(len(reward)):
        goes_on = t + 1 < len(reward) and not ends[t]
        later = correction[t + 1] if goes_on else 0.0
        advantages.append(rho[t] * (reward[t] + discount * (follows[t] + lam * later) - value[t]))
    return VTrace(value + correction, np.asarray(advantages))


def retrace_by_sums(reward, q, next_value, ratio, terminated, truncated, *, discount, lam):
    ends = terminated.astype(bool) | truncated.astype(bool)
    difference = reward + discount * np.where(terminated, 0, next_value) - q
    return q + corrections(difference, lambda i: discount * lam * min(1, ratio[i + 1]), ends)


def alone(explicit):
    """The oracle of the variant for one episode, which has no ``truncated``."""

    def of_one_episode(*args, **options):
        return explicit(*args, np.zeros_like(args[-1]), **options)

    return of_one_episode


# Laws.


def on_its_own_steps_it_is_gae(reward, value, next_value, ratio, terminated, **options):
    """With ratios of one V-trace adds the generalised advantage to the value."""
    ones, plain = np.ones_like(ratio), {name: options[name] for name in ("discount", "lam")}
    result = mapped(v_trace, reward, value, next_value, ones, terminated, **plain)
    advantage = mapped(generalised_advantages, reward, value, next_value, terminated, **plain)
    assert_close(result.returns, value + advantage, atol=1e-5)


def never_taken_it_keeps_the_value(
    reward, value, next_value, ratio, terminated, truncated, **options
):
    log = reward, value, next_value, 0 * ratio, terminated, truncated
    result = mapped(segment_v_trace, *log, **options)
    assert_close(result, VTrace(value, np.zeros_like(value)))


def beyond_the_cut_the_ratio_does_not_count(reward, q, next_value, ratio, terminated, **options):
    far = np.where(ratio >= 1, ratio + 1e6, ratio).astype(np.float32)
    assert_close(
        mapped(retrace_returns, reward, q, next_value, far, terminated, **options),
        mapped(retrace_returns, reward, q, next_value, ratio, terminated, **options),
    )


def q_lambda_where_the_values_agree(
    reward, q, next_value, ratio, terminated, truncated, *, discount, lam
):
    """With ratios of one, and the value of a state that of its action, it is TD(lambda)."""
    follows = np.concatenate([q[:, 1:], next_value[:, -1:]], axis=1)
    # At a truncation the next row is of another episode.
    follows = np.where(truncated, next_value, follows)
    options = {"discount": discount, "lam": lam}
    assert_close(
        mapped(
            segment_retrace_returns,
            reward, q, follows, np.ones_like(ratio), terminated, truncated, **options,
        ),
        mapped(segment_td_lambda_returns, reward, follows, terminated, truncated, **options),
        atol=1e-5,
    )  # fmt: skip


def episodes_do_not_touch(function):
    def law(*args, **options):
        """NaN in the rows after the first episode leaves the first episode as it is."""
        *series, terminated, truncated = args
        ends = terminated | truncated
        later = np.cumsum(ends, axis=1) - ends > 0
        spoiled = [np.where(later, np.float32(np.nan), values) for values in series]
        clean = jax.tree.leaves(mapped(function, *args, **options))
        for actual, want in zip(
            jax.tree.leaves(mapped(function, *spoiled, terminated, truncated, **options)),
            clean,
            strict=True,
        ):
            np.testing.assert_array_equal(np.asarray(actual)[~later], np.asarray(want)[~later])

    return law


SERIES = ("reward", "value", "next_value", "ratio", "terminated", "truncated")


def refusals(names, **options):
    def series(*shape):
        flagged = {"terminated", "truncated"}
        return [jnp.zeros(shape, bool) if name in flagged else jnp.ones(shape) for name in names]

    good, bad, half = series(4), series(3), {**options, "discount": 0.5}
    unequal = [(*good[:i], bad[i], *good[i + 1 :]) for i in range(1, len(names))]
    place = names.index("ratio")
    logarithms = (*good[:place], -good[place], *good[place + 1 :])
    return [
        Refusal("ratio must not be negative", logarithms, half),
        Refusal("reward needs a first axis of length 1", tuple(series(0)), half),
        *(
            Refusal(f"reward and {name} must have one shape", args, half)
            for name, args in zip(names[1:], unequal, strict=True)
        ),
        Refusal("discount must be in [0, 1]", tuple(good), {**options, "discount": 1.1}),
        Refusal("lam must be in [0, 1]", tuple(good), {"discount": 0.5, "lam": -0.1}),
    ]


ZEROS, BIG, NEVER, ALWAYS = np.zeros(7), np.full(7, 1e6), np.zeros(7, bool), np.ones(7, bool)
AT_ONE = {"discount": 1.0, "lam": 1.0}
Q_SERIES = ("reward", "q", *SERIES[2:])

ROWS = [
    Row(
        v_trace,
        sample=EPISODE,
        options=V_TRACE,
        oracle=alone(v_trace_by_sums),
        laws=[on_its_own_steps_it_is_gae],
        edges=[Edge((BIG, BIG, BIG, ZEROS, NEVER), {**AT_ONE, "max_rho": 1.0, "max_c": 1.0})],
        refuses=[
            *refusals(SERIES[:-1]),
            *(
                Refusal(
                    f"{name} must be finite and positive",
                    (*[jnp.ones(2)] * 4, jnp.zeros(2, bool)),
                    {"discount": 0.5, name: 0.0},
                )
                for name in ("max_rho", "max_c")
            ),
        ],
    ),
    Row(
        segment_v_trace,
        sample=LOG,
        options=V_TRACE,
        oracle=v_trace_by_sums,
        laws=[never_taken_it_keeps_the_value, episodes_do_not_touch(segment_v_trace)],
        edges=[
            Edge(
                (BIG, ZEROS, BIG, BIG, NEVER, ALWAYS),
                {"discount": 0.0, "lam": 0.0, "max_rho": 1.0, "max_c": 1.0},
            )
        ],
        refuses=refusals(SERIES),
    ),
    Row(
        retrace_returns,
        sample=EPISODE,
        options=RETRACE,
        oracle=alone(retrace_by_sums),
        laws=[beyond_the_cut_the_ratio_does_not_count],
        edges=[Edge((BIG, BIG, BIG, ZEROS, NEVER), AT_ONE)],
        refuses=refusals(Q_SERIES[:-1], lam=0.5),
    ),
    Row(
        segment_retrace_returns,
        sample=LOG,
        options=RETRACE,
        oracle=retrace_by_sums,
        laws=[q_lambda_where_the_values_agree, episodes_do_not_touch(segment_retrace_returns)],
        edges=[Edge((BIG, ZEROS, BIG, BIG, NEVER, ALWAYS), AT_ONE)],
        refuses=refusals(Q_SERIES, lam=0.5),
    ),
]
