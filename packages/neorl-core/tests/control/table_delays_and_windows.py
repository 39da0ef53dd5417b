import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.control import (
    delay_line,
    delay_step,
)
from neorl_core.replay import episode_first_rows, window_rows
from neorl_core.testing import (
    LENGTHS,
    Edge,
    Refusal,
    Row,
    assert_close,
    endings,
    mapped,
    rows,
)
from neorl_core.testing import ROWS as DRAWS


def windows_by_slicing(values, terminated, truncated, *, length):
    taken, masks = np.zeros((len(values), length, *values.shape[1:])), []
    for row, start in enumerate(starts_by_walking(terminated, truncated)):
        recent = values[max(start, row + 1 - length) : row + 1]
        taken[row, length - len(recent) :] = recent
        masks.append(np.arange(length) >= length - len(recent))
    return taken, np.asarray(masks)


def starts_by_walking(terminated, truncated):
    starts, start = [], 0
    for row in range(len(terminated)):
        if row and (terminated[row - 1] or truncated[row - 1]):
            start = row
        starts.append(start)
    return np.asarray(starts, np.int32)


def what_was_before_the_episode_is_not_seen(values, terminated, truncated, *, length):
    """Changing all rows of earlier episodes leaves the windows of the last one as they are."""
    starts = np.stack(
        [starts_by_walking(*ends) for ends in zip(terminated, truncated, strict=True)]
    )
    last = starts == starts[:, -1:]
    other = np.where(last[:, :, None], values, 1e4).astype(np.float32)
    for actual, want in zip(
        mapped(gathered, other, terminated, truncated, length=length),
        mapped(gathered, values, terminated, truncated, length=length),
        strict=True,
    ):
        np.testing.assert_array_equal(np.asarray(actual)[last], np.asarray(want)[last])


def gathered(values, terminated, truncated, *, length):
    """A window for every row of a log."""
    first = episode_first_rows(terminated, truncated)
    number = jnp.arange(len(values), dtype=jnp.int32)
    rows, mask = jax.vmap(lambda row, start: window_rows(row, start, length=length))(number, first)
    return jnp.where(mask[..., None], values[rows], 0), mask


def starts_do_not_depend_on_the_kind_of_end(terminated, truncated):
    assert_close(
        mapped(episode_first_rows, truncated, terminated),
        mapped(episode_first_rows, terminated, truncated),
    )


def delayed(values, terminated, truncated, *, delay):
    first = episode_first_rows(terminated, truncated) == jnp.arange(len(values), dtype=jnp.int32)
    line, out = delay_line(jnp.full_like(values[0], -7), delay=delay), []
    for value, starts in zip(values, first, strict=True):
        line, late = delay_step(line, value, first=starts)
        out.append(late)
    return jnp.stack(out)


def delayed_by_indexing(values, terminated, truncated, *, delay):
    starts = starts_by_walking(terminated, truncated)
    return np.stack(
        [
            values[row - delay] if row - delay >= start else np.full_like(values[0], -7)
            for row, start in enumerate(starts)
        ]
    )


def delays_add_up(values, terminated, truncated, *, delay):
    once = mapped(delayed, values, terminated, truncated, delay=1)
    twice = mapped(delayed, np.asarray(once), terminated, truncated, delay=1)
    assert_close(twice, mapped(delayed, values, terminated, truncated, delay=2))


LENGTH = LENGTHS[-1]
PATTERNS = st.lists(endings(LENGTH), min_size=DRAWS, max_size=DRAWS).map(
    lambda ends: tuple(np.stack(column) for column in zip(*ends, strict=True))
)
LOGS = st.tuples(rows(LENGTH, 2), PATTERNS).map(lambda log: (log[0], *log[1]))


def log_row(function, name, oracle, laws, **options):
    return Row(
        function,
        name=name,
        sample=LOGS,
        options=options,
        oracle=oracle,
        laws=laws,
        differentiable=False,
        exempt={"integers": "what it is given comes back as it is"},
    )


ROWS = [
    log_row(delayed, "delay_step", delayed_by_indexing, [delays_add_up], delay=2),
    log_row(
        gathered,
        "window_rows",
        windows_by_slicing,
        [what_was_before_the_episode_is_not_seen],
        length=3,
    ),
    Row(
        episode_first_rows,
        sample=PATTERNS,
        oracle=starts_by_walking,
        laws=[starts_do_not_depend_on_the_kind_of_end],
        edges=[Edge((np.zeros(0, bool), np.zeros(0, bool)))],
        refuses=[
            Refusal("one shape", (jnp.zeros(2, bool), jnp.zeros(3, bool))),
            Refusal("(time)", (jnp.zeros((2, 2), bool), jnp.zeros((2, 2), bool))),
        ],
        differentiable=False,
    ),
]
