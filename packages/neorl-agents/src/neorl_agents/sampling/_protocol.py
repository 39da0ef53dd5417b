"""Protocol of a sampler, which samples a learner's batches from a log."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core import Transition


class ReturnsToGo(NamedTuple):
    """Return and costs that followed steps in their logged episode, the steps themselves included.

    Attributes:
        returns: Sum of the rewards to the end of the episode, in the unit of the reward.
        costs: The same for every cost, with an axis of costs at the end.
        steps_left: Number of steps in those sums.
        step: Index of the step in its episode, from zero.
    """

    returns: Float[Array, "*row"]
    costs: Float[Array, "*row cost"]
    steps_left: Int[Array, "*row"]
    step: Int[Array, "*row"]


class Batch(NamedTuple):
    """Rows, with further data that some samplers provide.

    Attributes:
        rows: Physical units. Over several steps, ``reward`` is their discounted sum, and
            ``next_obs``, ``next_action``, ``terminated`` and ``truncated`` are those of the last.
        discount: Discount of the value that follows, ``discount^m`` over ``m`` steps, shape
            ``(row,)``; ``None`` if it is the learner's own.
        mc_return: Discounted return that followed in the log, in the unit of the reward, shape
            ``(row,)``; ``None`` if it was not requested.
        weight: Weight of each row in the loss, in [0, 1], if rows are not sampled uniformly, shape
            ``(row,)``; for an ensemble, how often the episode of each row was drawn for each
            member, shape ``(row, member)``; else ``None``.
        to_go: What followed every step of a row's window, with an axis of steps after those of the
            rows; ``None`` if it was not requested.
    """

    rows: Transition
    discount: Float[Array, "*row"] | None = None
    mc_return: Float[Array, "*row"] | None = None
    weight: Float[Array, "*row"] | None = None
    to_go: ReturnsToGo | None = None


def as_batch(batch: Transition | Batch) -> Batch:
    """A sampler's result as a :class:`Batch`; bare rows are accepted too."""
    return batch if isinstance(batch, Batch) else Batch(batch)


@runtime_checkable
class Sampler(Protocol):
    """Makes batches from a log: tables once on the host, then samples in the compiled program.

    Every learner has its own. Fields of a sampler are plain numbers of the learner, never arrays.
    """

    def tables(self, rows: Transition) -> Any:
        """Tables to sample from: a PyTree of arrays with a leading axis of rows.

        Args:
            rows: The training split in the order of the log, host arrays in physical units; with
                the fields that the learner lists.
        """
        ...

    def draw(
        self, tables: Any, number: Int[Array, ""], key: PRNGKeyArray, shape: tuple[int, int]
    ) -> Any:
        """Samples the batch of one update; traced.

        Args:
            tables: Result of :meth:`tables`, on the device.
            number: Index of the update.
            key: Key of the run; a sample is a function of only ``(key, number)``.
            shape: ``(batches_per_update, batch_size)``.

        Returns:
            The batch for the learner's ``update``.
        """
        ...
