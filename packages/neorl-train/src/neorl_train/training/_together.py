"""Several settings of one learner, trained in parallel by one compiled program."""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents import Learner
from neorl_agents.learning import for_run, log_tables, train_chunk
from neorl_core import InputError, Policy, as_arrays
from neorl_train.data._training_data import StreamedData, TrainingData
from neorl_train.training._loop import (
    UNWATCHED,
    Trained,
    Validate,
    Watcher,
    fit_prerequisites,
    loop_chunks,
    never,
)
from neorl_train.training._plan import DEFAULT_PLAN, AnyCheckpoints, Plan, check_trainable
from neorl_train.training._queues import (
    Device,
    Feed,
    Form,
    MemoryFeed,
    Metrics,
    SeedQueues,
    StreamFeed,
    chosen_form,
    offline_seeds,
)


class Batched:
    """Trainings that one call advances together, on one device.

    Each seed of a setting has its own key, and each setting one learner: rows are sampled once per
    seed and given to all settings. Trainings that continue after different numbers of updates are
    advanced one by one.
    """

    def __init__(self) -> None:
        self._members: list[_Member] = []
        self._n_updates, self.done, self._started = 0, 0, False
        self._program: Any = None
        self._arguments: tuple[Any, ...] = ()
        self._training: Any = None
        self._metrics: list[list[Metrics]] = []
        self._on_host: tuple[int, Any] = (-1, None)

    def member(self, queues: SeedQueues) -> "_Member":
        """Adds a training to this group."""
        return _Member(self, queues)

    def join(self, member: "_Member", n_updates: int) -> None:
        """Adds a training that is about to begin; one with no work left does not join."""
        self._members.append(member)
        self._n_updates = n_updates

    def advance(self, member: "_Member") -> list[Metrics]:
        """The next chunk of one training; the first to request it advances all of them."""
        if not self._started:
            self._begin()
        if self._program is None:
            return member.queues.advance()
        if member.done == self.done:
            first = np.int32(self.done)
            self._training, means = self._program(*self._arguments, self._training, first)
            self.done += self._n_updates
            seeds, members = range(len(member.seeds)), range(len(self._members))
            each = [jax.tree.map(lambda x, s=s: x[s], means) for s in seeds]
            self._metrics = [
                [jax.tree.map(lambda x, m=m: x[m], metrics) for metrics in each] for m in members
            ]
        member.done = self.done
        return self._metrics[self._members.index(member)]

    def states(self, member: "_Member") -> Any | None:
        """Host copies of a training's states, stacked by seed; ``None`` before the first chunk."""
        if self._training is None or member not in self._members:
            return None
        if self._on_host[0] != self.done:
            self._on_host = self.done, jax.device_get(self._training)
        index = self._members.index(member)
        return jax.tree.map(lambda leaf: np.array(leaf[:, index]), self._on_host[1])

    def _begin(self) -> None:
        self._started = True
        if len({member.done for member in self._members}) > 1:
            for member in self._members:
                member.queues.compile(self._n_updates)
            return
        states = [member.queues.stack() for member in self._members]
        self.done = self._members[0].done
        shared = states[0]
        learners = jax.tree.map(lambda *x: jnp.stack(x), *[stacked.learner for stacked in states])
        self._training = jax.tree.map(
            lambda *x: jnp.stack(x, axis=1), *[stacked.trainings for stacked in states]
        )
        self._arguments = (learners, shared.source, shared.tables, shared.keys)
        lowered = _chunk.lower(
            *self._arguments, self._training, np.int32(0), n_updates=self._n_updates
        )
        self._program = lowered.compile()


class _Member:
    """One training of a group, with the interface of :class:`SeedQueues`."""

    def __init__(self, group: Batched, queues: SeedQueues) -> None:
        self._group, self.queues = group, queues
        self.seeds = queues.seeds
        self.done = 0

    def compile(self, n_updates: int) -> None:
        """Joins the group, whose program is compiled when all have joined."""
        self._group.join(self, n_updates)

    def memory(self) -> None:
        """Unknown until all have joined."""
        return

    def advance(self) -> list[Metrics]:
        """As :meth:`SeedQueues.advance`."""
        return self._group.advance(self)

    def close(self) -> None:
        """Releases the source of the rows."""
        self.queues.close()

    def snapshot(self) -> dict[str, Any]:
        """As :meth:`SeedQueues.snapshot`."""
        states = self._group.states(self)
        before = self.queues.snapshot() if states is None else None
        if before is not None:
            return before
        return {"state": states, "key": self.queues.host_keys()}

    def restore(self, snapshot: dict[str, Any], *, done: int) -> None:
        """As :meth:`SeedQueues.restore`, before the first chunk."""
        self.done = done
        self.queues.restore(snapshot, done=done)

    def policies(self, snapshot: dict[str, Any]) -> list[Policy]:
        """As :meth:`SeedQueues.policies`."""
        return self.queues.policies(snapshot)


@partial(jax.jit, static_argnames="n_updates", donate_argnums=4)
def _chunk(
    learners: Any, source: Any, tables: Any, keys: Any, training: Any, first: Any, *, n_updates: int
) -> Any:
    """A chunk of every seed (first axis of states and keys) of every setting (second axis)."""

    def one(learner: Any, state: Any, key: Any) -> Any:
        return train_chunk(learner, source, state, tables, first, key, n_updates=n_updates)

    settings = jax.vmap(one, in_axes=(0, 0, None))
    return jax.vmap(settings, in_axes=(None, 0, 0))(learners, training, keys)


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """One of several settings of a learner that are trained in parallel.

    Attributes:
        learner: Learner with plain numbers.
        watcher: Observer of all events.
        checkpoints: Checkpoints to resume from and save to.
        validate: Function that evaluates a policy, called at every checkpoint.
    """

    learner: Learner
    watcher: Watcher = UNWATCHED
    checkpoints: AnyCheckpoints = None
    validate: Validate | None = None


def program_key(learner: Learner, updates: int) -> Hashable:
    """Key of a learner's compiled program: learners with equal keys can share one.

    It does not depend on numbers, but on shapes, networks, batch sizes and named variants.

    Args:
        learner: Learner with plain numbers.
        updates: Critic gradient steps of the run.

    Example:
        >>> from neorl_agents import IQL
        >>> program_key(IQL(expectile=0.7), 100) == program_key(IQL(expectile=0.9), 100)
        True
    """
    leaves, structure = jax.tree.flatten(as_arrays(for_run(learner, updates)))
    return structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)


def train_together(
    settings: Sequence[Setting],
    data: TrainingData | StreamedData,
    seeds: Sequence[int] = (0,),
    plan: Plan = DEFAULT_PLAN,
    *,
    stop: Callable[[], bool] = never,
    form: Form = "",
    progress: Callable[[int], None] = lambda updates: None,
) -> list[Trained | InputError]:
    """Trains several settings of one learner, each with all seeds, in turns.

    They share what would be equal: the compiled program, and the rows on the devices. Each has the
    watcher, the checkpoints and the validations that it would have alone, so a diverging training
    does not stop the others, and each can be resumed separately.

    Args:
        settings: The settings; their learners differ only in numbers (:func:`program_key`).
        data: Training split.
        seeds: Seeds of the training runs.
        plan: Length.
        stop: Called once per chunk; true ends every training when the running chunk ends.
        form: How the program is called. By default each setting is queued on a CPU, and its result
            is bit-identical to that of :func:`neorl_train.train`. On an accelerator they are
            batched, and the result is close: the batched operations round differently. Settings
            that sample from different tables or continue after different updates are called one by
            one, and those that read batches from a file are always queued.
        progress: Called with the critic gradient steps that all of them have taken so far.

    Returns:
        The value that :func:`neorl_train.train` would return, or the error that it would raise, for
        each setting.

    Raises:
        InputError: If the learners cannot share one program, or the form is unknown.
    """
    keys = {program_key(setting.learner, plan.updates) for setting in settings}
    if len(keys) != 1:
        raise InputError(
            f"{len(settings)} settings need {len(keys)} programs, because they differ in shapes or "
            "variants; train those settings separately"
        )
    learners = [for_run(setting.learner, plan.updates) for setting in settings]
    devices = list(jax.local_devices())
    feeds = _feeds(learners, data, seeds, devices)
    batched = chosen_form(form) == "vmap" and len({id(feed) for feed in feeds}) == 1
    programs: dict[tuple[Device, int], Any] = {}
    group = Batched() if batched else None

    def training_of(number: int) -> Any:
        """The training of one setting, created when it is first requested."""
        setting, learner = settings[number], learners[number]
        check_trainable(learner, data, plan)
        common = setting.checkpoints, stop, devices
        contexts = fit_prerequisites(learner, data, seeds, plan, *common, form)
        first = 0 if group else number * len(seeds) % len(devices)
        queues: Any = offline_seeds(
            learner,
            data,
            seeds,
            devices[first:] + devices[:first] if group is None else devices[:1],
            contexts=contexts,
            feed=feeds[number],
            programs=programs,
            form=form,
        )
        if group is not None:
            queues = group.member(queues)
        observers = setting.watcher, setting.checkpoints, setting.validate
        return (yield from loop_chunks(queues, learner, plan, *observers, stop))

    return _in_turns(
        [training_of(number) for number in range(len(settings))], plan, seeds, progress
    )


def _in_turns(
    trainings: list[Any], plan: Plan, seeds: Sequence[int], progress: Callable[[int], None]
) -> list[Trained | InputError]:
    results: dict[int, Trained | InputError] = {}
    rounds = 0
    try:
        while len(results) < len(trainings):
            for number, training in enumerate(trainings):
                if number in results:
                    continue
                try:
                    next(training)
                except StopIteration as finished:
                    results[number] = finished.value
                except InputError as error:
                    results[number] = error
            rounds += 1
            done = min(rounds // 2 * plan.chunk, plan.updates)
            progress(done * len(seeds) * len(trainings))
    finally:
        for training in trainings:
            training.close()
    return [results[number] for number in range(len(trainings))]


def _feeds(
    learners: Sequence[Learner],
    data: TrainingData | StreamedData,
    seeds: Sequence[int],
    devices: Sequence[Device],
) -> list[Feed]:
    """One feed per learner; those with equal tables share one, so the log is stored once."""
    if isinstance(data, StreamedData):
        return [StreamFeed(learner, data, seeds) for learner in learners]
    feeds_by_tables: list[tuple[Any, Feed]] = []
    feeds: list[Feed] = []
    for learner in learners:
        tables = log_tables(learner, data.spec, data.rows_for(learner))
        feed_of_tables = next(
            (feed for stored, feed in feeds_by_tables if _equal(stored, tables)), None
        )
        if feed_of_tables is None:
            feed_of_tables = MemoryFeed(learner, data, devices, tables=tables)
            feeds_by_tables.append((tables, feed_of_tables))
        feeds.append(feed_of_tables)
    return feeds


def _equal(one: Any, other: Any) -> bool:
    (leaves, structure), (others, other_structure) = jax.tree.flatten(one), jax.tree.flatten(other)
    return structure == other_structure and all(
        np.array_equal(a, b, equal_nan=np.issubdtype(np.asarray(a).dtype, np.floating))
        for a, b in zip(leaves, others, strict=True)
    )
