"""What every learner offers, so that training, evaluation and sweeps work on any of them."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import DataStatistics, Policy, Spec

Metrics = dict[str, Float[Array, ""]]
"""Scalars of one update by name."""


@runtime_checkable
class Algorithm(Protocol):
    """A frozen object whose fields are its hyperparameters, as plain numbers.

    Numeric fields are leaves: ``neorl_core.as_arrays(algorithm)`` goes into a plain ``jax.jit`` as
    an argument, so that another value never compiles again and a sweep is a ``vmap`` or
    ``lax.map`` over one stacked leaf. Shapes and names are static fields.

    Two more attributes may be there. ``sampler`` says how batches are drawn from a log, where it
    is not uniformly (``neorl_agents.sampling``). ``schedules`` names the fields that are lengths of
    schedules, which may follow the run (``neorl_agents.algorithms.for_run``).

    Attributes:
        fields: The fields of ``Transition`` that ``update`` or the sampler reads; the others may be
            ``None``.
        batch_size: Rows of one gradient step; static.
        batches_per_update: Batches, and critic gradient steps, of one ``update``; static.
    """

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of ``Transition`` that are read."""
        ...

    @property
    def batch_size(self) -> int:
        """Rows of one gradient step."""
        ...

    @property
    def batches_per_update(self) -> int:
        """Batches, and critic gradient steps, of one ``update``."""
        ...

    def validate(self) -> None:
        """Raises a ``ValueError`` that names the first field with a bad value."""
        ...

    def init(self, spec: Spec, statistics: DataStatistics, key: PRNGKeyArray) -> Any:
        """A fresh training state; every leaf is an array.

        Args:
            spec: Shapes and the action box.
            statistics: Statistics of the training split, with the reward that ``update`` will see.
            key: Random key; consumed.
        """
        ...

    def update(self, state: Any, batch: Any, key: PRNGKeyArray) -> tuple[Any, Metrics]:
        """One complete update: every gradient step of one cycle of the algorithm.

        Args:
            state: State from :meth:`init` or the last update.
            batch: What the sampler draws, a ``Transition`` by default: physical units, leading axes
                ``(batches_per_update, batch_size)``. Rows whose mask is false reach no loss; where
                every row counts, a mask of ``None`` is cheaper.
            key: All randomness of this update.
        """
        ...

    def policy(self, state: Any) -> Policy:
        """The deterministic policy of a state, in physical units."""
        ...
