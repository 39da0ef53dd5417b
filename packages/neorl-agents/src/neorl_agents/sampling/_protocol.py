"""What a learner may ask of the training loop: how its batches are drawn from a log."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Int, PRNGKeyArray

from neorl_agents.sampling._rows import Rows
from neorl_core import Transition


@runtime_checkable
class Sampler(Protocol):
    """From a log to the batches of updates: tables once on the host, then draws in the program.

    A learner names its own in an attribute ``sampler``; without one, rows are drawn uniformly
    (:class:`Rows`). Fields of a sampler are plain numbers of the learner, never arrays.
    """

    def tables(self, rows: Transition) -> Any:
        """What draws are made from: a PyTree of arrays with a leading axis of rows.

        Args:
            rows: The training split in the order of the log, host arrays in physical units; with
                the fields that the learner lists.
        """
        ...

    def draw(
        self, tables: Any, number: Int[Array, ""], key: PRNGKeyArray, shape: tuple[int, int]
    ) -> Any:
        """The batch of one update; traced.

        Args:
            tables: From :meth:`tables`, on the device.
            number: Number of the update.
            key: Key of the run: a draw is a function of ``(key, number)`` alone.
            shape: ``(batches_per_update, batch_size)``.

        Returns:
            What the learner's ``update`` takes as its batch.
        """
        ...


def sampler_of(algorithm: Any) -> Sampler:
    """The sampler of a learner: its own, or uniform rows.

    Args:
        algorithm: Any learner.

    Returns:
        Its attribute ``sampler`` where it has one, otherwise :class:`Rows`.
    """
    return getattr(algorithm, "sampler", Rows())
