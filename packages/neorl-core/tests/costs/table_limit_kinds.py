import numpy as np
from hypothesis import strategies as st

from neorl_core.costs import limit_kind
from neorl_core.testing import Edge, Row, assert_close, mapped, reals, rows


def limited(cost):
    """The limited quantities of one episode, per step and per episode."""
    return tuple(limit_kind(per).of_rows(cost) for per in ("step", "episode"))


def limited_by_hand(cost):
    worst, total = cost[0], 0.0
    for value in cost:
        worst, total = value if value > worst else worst, total + value
    return worst, total


def order_does_not_matter(cost):
    assert_close(mapped(limited, cost[:, ::-1]), mapped(limited, cost), scale=1e3)


def one_more_cost_only_raises(cost):
    more = np.concatenate([cost, np.abs(cost[:, :1])], axis=1)
    for before, after in zip(mapped(limited, cost), mapped(limited, more), strict=True):
        assert np.all(np.asarray(after) >= np.asarray(before) - 1e-3)


ROWS = [
    Row(
        limited,
        name="LimitKind",
        sample=st.tuples(rows(7, elements=reals(-100, 100))),
        oracle=limited_by_hand,
        laws=[order_does_not_matter, one_more_cost_only_raises],
        edges=[Edge((np.zeros(7),)), Edge((np.ones(1),)), Edge((np.full(7, 1e6),))],
    )
]
