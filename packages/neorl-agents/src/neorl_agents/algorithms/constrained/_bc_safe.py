"""Behaviour cloning of the episodes that kept the cost limits."""

from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Bool

from neorl_agents.algorithms._bc import BC
from neorl_agents.learning import episode_costs, require_limits_in_log
from neorl_agents.sampling import BestEpisodes, Sampler
from neorl_core import InputError, Spec, Transition
from neorl_core.infrastructure import setting


class BCSafe(BC):
    """Behaviour cloning (:class:`BC`) of only those logged episodes that kept every cost limit.

    An episode is cloned if ``C_j <= margin limit_j`` for every cost ``j``. For a limit per episode
    ``C_j`` is the sum of the cost over the episode; for a limit per step it is its worst step.
    ``fraction`` below 1 keeps only those with the largest returns, not counting the costs.

    The episodes are chosen once, before anything is compiled. If a log was cut (at masked rows or
    at gaps), each piece counts as an episode. The policy comes with no guarantee: a clone drifts
    off its episodes, and may break limits that all of them kept.

    Attributes:
        margin: Fraction of every limit that an episode may use; below 1, only episodes
            that stayed well inside are cloned.

    The other fields are those of :class:`BC`.

    Source: the mode ``safe`` of BC in OSRL (Liu et al., Datasets and benchmarks for offline safe
    reinforcement learning, arXiv 2306.09303). Its ``BC-Safe`` has the settings of BC except for a
    rate of 1e-3 and batches of 512; the defaults here are those of :class:`BC`.
    """

    margin: float = setting(1.0, above=0)

    keeps_limits: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        """Costs and the ends of episodes are read to choose the rows."""
        return ("obs", "action", "reward", "cost", "terminated", "truncated", "mask")

    @property
    def row_sampler(self) -> Sampler:
        """A sampler of the best of the episodes that :meth:`log_tables` keeps."""
        return BestEpisodes(self.fraction)

    def require_log(self, spec: Spec, rows: Transition) -> None:
        """Refuses a log from which nothing can be learned.

        Raises:
            InputError: If the log cannot teach the limits, or no episode keeps all of them.
        """
        require_limits_in_log("BCSafe", spec, rows)
        if not self._within_limits(spec, rows).any():
            names = ", ".join(channel.name for channel in spec.cost)
            raise InputError(
                f"no logged episode stays within {self.margin:g} times the limits of {names} at "
                "once, so BCSafe has nothing to clone; raise a limit or BCSafe.margin, or log "
                "episodes that keep the limits"
            )

    def log_tables(self, spec: Spec, rows: Transition) -> Any:
        """The rows of the episodes that kept every limit.

        Raises:
            InputError: If :meth:`require_log` refuses the log.
        """
        self.require_log(spec, rows)
        cloned = self._within_limits(spec, rows)
        return self.sampler.tables(jax.tree.map(lambda column: column[cloned], rows))

    def _within_limits(self, spec: Spec, rows: Transition) -> Bool[np.ndarray, " row"]:
        """Whether each row belongs to an episode that kept every limit."""
        episode, quantities = episode_costs(spec, rows)
        limits = np.asarray([self.margin * channel.limit for channel in spec.cost], np.float32)
        return np.all(quantities <= limits[None], axis=1)[episode]
