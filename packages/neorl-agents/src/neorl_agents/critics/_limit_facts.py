"""Evidence in a log for every limit, and the claims that it supports."""

from typing import NamedTuple

import numpy as np

from neorl_agents.critics._columns import Columns
from neorl_core import CostChannel, InputError, Spec
from neorl_core.costs import limit_kind
from neorl_core.statistics import DEFAULT_LEVEL


class NothingToLearnError(InputError):
    """No cost varies, so no safety critic can be fitted; the message says what can be claimed."""


class LimitFacts(NamedTuple):
    """Evidence in a log for one limit.

    Attributes:
        name: Name of the cost channel.
        steps: Fraction of the steps that count against the limit.
        episodes: Number of episodes with such a step.
        of_episodes: Number of episodes in the log.
        learnable: Whether something can be learned: some steps count and some do not; a cost must
            not be constant.
        claim: Statement about the limit that this log supports, in words.
    """

    name: str
    steps: float
    episodes: int
    of_episodes: int
    learnable: bool
    claim: str


def counted_steps(columns: Columns, spec: Spec) -> np.ndarray:
    """Whether each step counts against each limit, shape ``(row, cost)``.

    For a limit per step, a step counts if its cost is above the limit. For a limit per episode, it
    counts if its cost is above zero, since every cost adds to the sum
    (``neorl_core.costs.LimitKind.row_threshold``).
    """
    limits = [limit_kind(channel).row_threshold(channel.limit) for channel in spec.cost]
    return columns.cost > np.asarray(limits)[None]


def limit_facts(columns: Columns, spec: Spec, quantity: str) -> tuple[LimitFacts, ...]:
    """The facts of every limit.

    Raises a ``NothingToLearnError`` if there is no cost, or nothing can be learned about any limit.
    """
    if spec.n_cost == 0:
        raise NothingToLearnError(
            "a safety critic learns the risk of a cost limit, but the specification has no cost "
            "channel; give the log a cost column with a limit, or fit an ensemble, which needs "
            "none"
        )
    counted = counted_steps(columns, spec)
    facts = tuple(
        _facts(columns, counted[:, k], columns.cost[:, k], channel, quantity)
        for k, channel in enumerate(spec.cost)
    )
    if not any(one.learnable for one in facts):
        claims = "; ".join(one.claim for one in facts)
        raise NothingToLearnError(f"nothing can be learned about any limit from this log: {claims}")
    return facts


def _facts(
    columns: Columns, counted: np.ndarray, cost: np.ndarray, channel: CostChannel, quantity: str
) -> LimitFacts:
    name, total = channel.name, len(columns.episodes)
    episodes = len(np.unique(columns.episode[counted]))
    varies = bool(0 < counted.sum() < len(counted))
    if quantity == "cost":
        varies = bool(np.ptp(cost) > 0)
    low, high = (100 * end for end in _exact_limits(episodes, total))
    share = f"{episodes} of {total} episodes have a step that counts against {name}"
    bounds = (
        f"among episodes like these, {low:.3g} to {high:.3g} % have one (confidence interval at "
        f"{100 * DEFAULT_LEVEL:g} %)"
    )
    if varies:
        claim = f"{share}; {bounds}"
    elif quantity == "cost":
        claim = f"the cost {name} is {cost[0]:g} in every step, so no action is known to change it"
    elif counted.any():
        claim = f"every step counts against {name}, so the log does not show how to keep the limit"
    else:
        claim = (
            f"{share}; {bounds}. The log does not show what leads to a violation, so a low "
            "predicted risk of this limit is no evidence"
        )
    return LimitFacts(name, float(counted.mean()), episodes, total, varies, claim)


def _exact_limits(count: int, total: int) -> tuple[float, float]:
    """Clopper and Pearson's limits of a probability, at the level of every interval."""
    from scipy.special import betaincinv  # Imported here: slow, and only needed for fits.

    tail = (1 - DEFAULT_LEVEL) / 2
    low = float(betaincinv(count, total - count + 1, tail)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, total - count, 1 - tail)) if count < total else 1.0
    return low, high
