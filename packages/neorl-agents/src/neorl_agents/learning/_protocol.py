"""Protocols of a learner, for training, and of an algorithm, for evaluation and export."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.learning._state import LearnerState
from neorl_agents.policies import Preparation
from neorl_agents.sampling import Sampler
from neorl_core import DataStatistics, Policy, Spec

Metrics = dict[str, Float[Array, ""]]
"""Scalars of one update by name."""


@runtime_checkable
class Learner(Protocol):
    """A frozen object whose fields are its hyperparameters: plain numbers or nested settings.

    Numeric fields are leaves: ``neorl_core.as_arrays(learner)`` goes into a plain ``jax.jit`` as an
    argument, so that a new value never triggers a new compilation, and a sweep is a ``vmap`` or
    ``lax.map`` over one stacked leaf. Shapes and names are static fields.

    A learner need not have a policy: models of a plant, ensembles and critics are learners that the
    same loop trains. A learner with a policy is an :class:`Algorithm`.
    :class:`neorl_agents.learning.BaseLearner` supplies everything except the equations.

    Attributes:
        fields: The fields of ``Transition`` that ``update`` or the sampler reads; the others may be
            ``None``. Rewards and costs arrive unscaled. A learner whose fields include ``cost`` is
            given both as they were logged; any other is given the reward minus the priced costs.
        batch_size: Rows of one gradient step; static.
        batches_per_update: Batches, and critic gradient steps, of one ``update``; static.
        sampler: Sampler that chooses batches from a log.
        schedules: Names of the fields that are lengths of schedules, in calls of ``update``, and
            may be set to the length of the run (:func:`neorl_agents.learning.for_run`).
    """

    schedules: ClassVar[tuple[str, ...]]

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

    @property
    def sampler(self) -> Sampler:
        """The sampler that chooses batches from a log."""
        ...

    def validate(self) -> None:
        """Raises a ``ValueError`` that names the first field with a bad value."""
        ...

    def prepare(self, spec: Spec, statistics: DataStatistics) -> Preparation:
        """The maps between physical units and those of the networks; nothing is random.

        Sites that are to start equal share one preparation: prepare once with
        ``neorl_core.merge_statistics`` of all of them, and give the result to every ``init``.

        Args:
            spec: Channels, with the cost limits of the run.
            statistics: Statistics of the training split, with the reward that the learner sees.
        """
        ...

    def fits(self) -> Mapping[str, "Fit"]:
        """Learners that are trained before this one, by name; usually none.

        Each is trained on the same data by the same loop, in the order of the mapping. Their final
        states are the ``context`` of :meth:`init`.
        """
        ...

    def source(self, given: Any) -> Any:
        """The source of batches, as a :class:`neorl_agents.learning.Source`.

        Args:
            given: The source of the run, such as its log. Most learners return it unchanged; one
                that learns from rollouts in a learned model returns a source that makes them.
        """
        ...

    def init(
        self,
        spec: Spec,
        statistics: DataStatistics,
        key: PRNGKeyArray,
        *,
        preparation: Preparation | None = None,
        context: Mapping[str, LearnerState] | None = None,
    ) -> LearnerState:
        """A fresh training state; every leaf is an array.

        Args:
            spec: Channels, with the cost limits of the run.
            statistics: Statistics of the training split, with the reward that the learner sees.
            key: Random key; consumed.
            preparation: Result of :meth:`prepare`, which is called if none is given.
            context: Final states of the learners of :meth:`fits`, by name.
        """
        ...

    def update(
        self, state: LearnerState, batch: Any, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Runs one complete update: every gradient step of one cycle of the algorithm.

        Args:
            state: State from :meth:`init` or the last update.
            batch: Batch from the sampler, a ``Transition`` by default: physical units, leading axes
                ``(batches_per_update, batch_size)``. Rows whose mask is false reach no loss; if all
                rows are used, a mask of ``None`` is cheaper.
            key: Random key of everything random in this update.
        """
        ...


class Fit(NamedTuple):
    """A learner to be trained before another one.

    Attributes:
        learner: The learner, with plain numbers as fields.
        updates: Calls of its ``update``; rounded up to whole chunks of the training loop.
    """

    learner: Learner
    updates: int


@runtime_checkable
class Algorithm(Learner, Protocol):
    """A learner that has a policy."""

    def policy(self, state: LearnerState) -> Policy:
        """The deterministic policy of a state, in physical units."""
        ...


@runtime_checkable
class Explorer(Algorithm, Protocol):
    """An algorithm that can collect its own experience, so that it may be trained online.

    Attributes:
        discount: Discount of the reward per step, which discounts the returns of online episodes.
        fine_tuning: Fields to replace when training continues online, by the name of the variant;
            see :func:`neorl_agents.online.for_fine_tuning`.
    """

    fine_tuning: ClassVar[Mapping[str, Mapping[str, Any]]]

    @property
    def discount(self) -> float:
        """Discount of the reward per step."""
        ...

    def explore(self, state: LearnerState) -> Policy:
        """The exploration policy for a simulated plant; it may be random."""
        ...
