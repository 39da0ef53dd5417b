"""Uniform sampling of rows with n-step rewards and successors."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from neorl_agents.sampling._log_order import episode_ends, last_rows, on_host
from neorl_agents.sampling._protocol import Batch
from neorl_agents.sampling._rows import Rows
from neorl_core import Transition
from neorl_core.returns import segment_n_step_returns


@dataclasses.dataclass(frozen=True)
class NSteps:
    """Samples rows uniformly, as :class:`Batch` with discounts.

    ``R_t = sum_{k<m} discount^k r_{t+k}``, ``m = steps``, or fewer if the episode ends or the next
    row is masked; the value of the last row's next observation follows, or nothing after a
    termination. The actions in between are those of the behaviour, so for another policy the target
    is biased, and more so with more steps.

    Attributes:
        steps: Largest number of steps, at least one.
        discount: Discount of the reward per step, in [0, 1].

    Source: Sutton and Barto, Reinforcement learning, 2nd edition, equation 7.1; without correction
    as in Hessel et al., Rainbow, arXiv 1710.02298.
    """

    steps: int
    discount: float

    def tables(self, rows: Transition) -> Batch:
        """All rows with their n-step rewards and successors.

        Raises:
            ValueError: If the log does not mark where episodes end.
        """
        log = on_host(rows)
        ends, number = episode_ends(log), np.arange(len(log.reward), dtype=np.int32)
        reward = log.reward
        if log.mask is not None:
            # A masked row is in no sum: the sums of earlier rows stop there and bootstrap from a
            # value.
            ends |= np.append(~log.mask[1:], True) | ~log.mask
            reward = np.where(log.mask, reward, 0)
        last = np.minimum(last_rows(ends), number + self.steps - 1)
        total = segment_n_step_returns(
            jnp.asarray(reward),
            jnp.zeros_like(jnp.asarray(reward)),
            jnp.asarray(log.terminated),
            jnp.asarray(ends),
            n=self.steps,
            discount=self.discount,
        )
        factor = np.power(np.float64(self.discount), last - number + 1)
        n_step_rows: Any = rows._replace(
            reward=np.asarray(total),
            next_obs=None if log.next_obs is None else log.next_obs[last],
            next_action=None if log.next_action is None else log.next_action[last],
            terminated=log.terminated[last],
            truncated=log.truncated[last],
        )
        return Batch(n_step_rows, factor.astype(reward.dtype))  # pyright: ignore

    def draw(
        self,
        tables: Batch,
        number: Int[Array, ""],
        key: PRNGKeyArray,
        shape: tuple[int, int],
    ) -> Batch:
        """Samples one batch with its discounts."""
        return Rows().draw(tables, number, key, shape)  # pyright: ignore
