"""Behaviour cloning of the episodes that kept the cost limits."""

from typing import Any, ClassVar

import jax
import numpy as np

from neorl_agents.algorithms._bc import BC
from neorl_agents.learning import episode_costs, require_limits_in_log, require_number
from neorl_agents.sampling import BestEpisodes, Sampler
from neorl_core import InputError, Spec, Transition


class BCSafe(BC):
    """Behaviour cloning of the logged episodes that kept every cost limit: :class:`BC` on those.

    An episode is cloned where ``C_j <= margin limit_j`` for every cost ``j``; ``C_j`` is the sum of
    the cost over the episode where the limit is per episode, and its worst step where it is per
    step. ``fraction`` below 1 clones those of them with the largest returns, without the price of
    the costs.

    Which episodes these are is settled once, before anything is compiled. Where a log was cut (at
    rows that do not count, or at gaps), each piece counts as an episode. Nothing is promised of
    the policy: a clone drifts off its episodes, and may break limits that all of them kept.

    Attributes:
        margin: Part of every limit that an episode may use, positive; below 1 only those that
            stayed well inside are cloned.

    Source: the mode ``safe`` of BC in OSRL (Liu et al., Datasets and benchmarks for offline safe
    reinforcement learning, arXiv 2306.09303). Its ``BC-Safe`` keeps the settings of BC but for a
    rate of 1e-3 and batches of 512; the defaults here are those of :class:`BC`.
    """

    margin: float = 1.0

    keeps_limits: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        """Costs and ends of episodes choose the rows."""
        return ("obs", "action", "reward", "cost", "terminated", "truncated", "mask")

    @property
    def rows_drawn(self) -> Sampler:
        """The best of the episodes that :meth:`log_tables` leaves."""
        return BestEpisodes(self.fraction)

    def check(self) -> None:
        """Raises a ``ValueError`` that names the first hyperparameter with a bad value."""
        require_number(self, "margin", low=0, open_low=True)
        super().check()

    def log_tables(self, spec: Spec, rows: Transition) -> Any:
        """The rows of the episodes that kept every limit.

        Raises:
            InputError: If the log cannot teach the limits, or no episode keeps all of them at once.
        """
        require_limits_in_log("BCSafe", spec, rows)
        episode, quantities = episode_costs(spec, rows)
        limits = np.asarray([self.margin * channel.limit for channel in spec.cost], np.float32)
        kept = np.all(quantities <= limits[None], axis=1)
        if not kept.any():
            names = ", ".join(channel.name for channel in spec.cost)
            raise InputError(
                f"no logged episode keeps {self.margin:g} times the limits of {names} at once, so "
                "BCSafe has nothing to clone; raise a limit or BCSafe.margin, or log such episodes"
            )
        return self.sampler.tables(jax.tree.map(lambda column: column[kept[episode]], rows))
