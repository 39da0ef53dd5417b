"""Several settings of one learner, trained in parallel by one compiled program."""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import numpy as np

from neorl_agents import Learner
from neorl_agents.learning import for_run, log_tables
from neorl_core import InputError, as_arrays
from neorl_train.data._streamed import StreamedData
from neorl_train.data._training_data import TrainingData
from neorl_train.training._checks import check_trainable
from neorl_train.training._divergence import AnyCheckpoints
from neorl_train.training._feeds import Feed, MemoryFeed, StreamFeed
from neorl_train.training._loop import (
    UNWATCHED,
    Trained,
    Validate,
    Watcher,
    fit_prerequisites,
    loop_chunks,
    never,
)
from neorl_train.training._plan import DEFAULT_PLAN, Plan
from neorl_train.training._queues import Device, Form, chosen_form
from neorl_train.training._seeds import offline_seeds
from neorl_train.training._vmapped import Batched


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
