"""The training loop of one algorithm: chunks queued ahead, checkpoints, resume, stop."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol

import jax

from neorl_agents import Learner, LearnerState
from neorl_agents.learning import Training, for_run
from neorl_core import InputError, Policy
from neorl_envs import Dataset
from neorl_train.data._training_data import StreamedData, TrainingData, training_data
from neorl_train.judging._pool import LEARNER, Candidate, Pool
from neorl_train.judging._validation import DISTANCE
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.training._memory import TrainingMemory, require_room, require_room_for_states
from neorl_train.training._mesh import Placement, placements_for, require_equal_parts
from neorl_train.training._plan import (
    DEFAULT_PLAN,
    DivergedError,
    Plan,
    check_trainable,
    require_finite_metrics,
    require_finite_states,
)
from neorl_train.training._processes import LeaderCheckpoints
from neorl_train.training._queues import Form, SeedQueues, chosen_form, offline_seeds

Validate = Callable[[Policy], dict[str, jax.Array]]
"""Evaluates a policy while training continues; called with policies on the host."""


class Watcher(Protocol):
    """Receives the events of an algorithm's training; all steps count critic gradient steps.

    A derived class may omit any method.
    """

    def begin(self, step: int) -> bool:
        """Training continues after ``step``; events after it are dropped.

        Returns:
            Whether the policies at ``step`` have already been evaluated.
        """
        return False

    def compiling(self) -> None:
        """States are ready; the program of a chunk is about to be compiled."""

    def takes(self, memory: TrainingMemory) -> None:
        """The program is compiled and needs this memory, of which the work is not allocated yet."""

    def running(self) -> None:
        """The first chunk is about to run."""

    def chunk(self, step: int, metrics: list[dict[str, float]]) -> None:
        """The chunk that ended at ``step`` is complete: mean metrics of every seed."""

    def validated(self, step: int, metrics: list[dict[str, float]]) -> None:
        """The policies at ``step`` have been evaluated."""

    def saving(self, step: int) -> None:
        """A checkpoint of ``step`` is about to be written."""


class _Unwatched(Watcher):
    """Ignores all events."""


UNWATCHED = _Unwatched()


@dataclasses.dataclass(frozen=True)
class Trained:
    """The state in which training ended.

    Attributes:
        algorithm: Learner that was trained.
        seeds: Seeds of the training runs.
        step: Number of completed critic gradient steps.
        policies: Policy of each seed, with host arrays; empty if the learner is not a policy.
        snapshot: Trainings and keys, stacked by seed.
        finished: Whether the plan was completed; false after a request to stop.
        best: Step of the policies, where it is not the last.
    """

    algorithm: Learner
    seeds: tuple[int, ...]
    step: int
    policies: list[Policy]
    snapshot: dict[str, Any]
    finished: bool
    best: int | None = None

    def trainings(self) -> list[Training]:
        """State of the learner and memory of the source of each seed, with host arrays."""
        leaves, treedef = jax.tree.flatten(self.snapshot["state"])
        return [treedef.unflatten([leaf[i] for leaf in leaves]) for i in range(len(self.seeds))]

    def states(self) -> list[LearnerState]:
        """The learner's state for each seed: the start of fine-tuning or of another learner."""
        return [training.learner for training in self.trainings()]

    def pool(self, name: str) -> Pool:
        """The policies in the form that an evaluation takes.

        Args:
            name: Name of the algorithm, such as ``"iql"``.

        Returns:
            One candidate for each seed, ``"iql-0"`` for seed 0.
        """
        seeds = zip(self.seeds, self.policies, strict=True)
        return Pool(tuple(Candidate(name, LEARNER, policy, (seed,)) for seed, policy in seeds))

    def __repr__(self) -> str:
        """One line with the learner, its seeds and the progress."""
        seeds = f"seed{'s' * (len(self.seeds) > 1)} {', '.join(map(str, self.seeds))}"
        stopped = "" if self.finished else ", stopped before the end"
        return f"Trained({type(self.algorithm).__name__}, {seeds}, {self.step} updates{stopped})"


def never() -> bool:
    """Never requests a stop."""
    return False


def train(
    algorithm: Learner,
    data: TrainingData | StreamedData | Dataset,
    seeds: Sequence[int] = (0,),
    plan: Plan = DEFAULT_PLAN,
    *,
    watcher: Watcher = UNWATCHED,
    checkpoints: Checkpoints | LeaderCheckpoints | None = None,
    validate: Validate | None = None,
    stop: Callable[[], bool] = never,
    batch_devices: int = 0,
    form: Form = "",
) -> Trained:
    """Trains all seeds of one algorithm, from the newest checkpoint if there is one.

    The result depends on algorithm, data, seed and number of updates, but not on the chunk length,
    the other seeds, the number of devices, or where it was interrupted. On an accelerator, where
    the seeds of a device form one batch, the other seeds affect its rounding. While one chunk is
    recorded and saved, the next one runs.

    Args:
        algorithm: Learner with plain numbers; schedules of length -1 take the length of the plan.
        data: Training split; for a dataset every row that is not masked, with its own reward.
            Streamed data stay in their file; batches are then shuffled by blocks, and the result
            depends on the same inputs but differs from that in memory.
        seeds: Seeds of the training runs.
        plan: Length; its chunk is a multiple of ``algorithm.batches_per_update``.
        watcher: Observer of all events.
        checkpoints: Checkpoints to resume from and save to; waited for before this returns.
        validate: Function that evaluates a policy, called at every checkpoint.
        stop: Called once per chunk; true ends training when the running chunk ends.
        batch_devices: Number of devices that share every batch, each with a copy of the state; the
            result then equals that of one device up to rounding. Seeds are assigned in turn to
            groups of this many devices. 0 means one device for each seed, or all devices of all
            processes if there are several processes.
        form: How the program is called for the seeds of one device: by default in turn on a CPU, so
            that each result is bit-identical to that of its single run, and as one batch on an
            accelerator.

    Returns:
        The final policies and states.

    Raises:
        InputError: If there are too few devices, a batch does not divide among them, a
            hyperparameter or the form is invalid, the chunk is not a multiple, there are fewer rows
            than a batch has, or it would take more memory than there is; or if a metric or a state
            is not finite, in which case the message names algorithm, seed, update, the tensors and
            the last checkpoint.
    """
    if isinstance(data, Dataset):
        data = training_data(data)
    if isinstance(seeds, int) or len(seeds) == 0:
        raise InputError(f"seeds must be one or more integers, such as (0, 1), got {seeds!r}")
    check_trainable(algorithm, data, plan)
    algorithm = for_run(algorithm, plan.updates)
    placements = placements_for(seeds, batch_devices)
    require_equal_parts(type(algorithm).__name__, algorithm.batch_size, placements)
    chosen_form(form)
    contexts = fit_prerequisites(algorithm, data, seeds, plan, checkpoints, stop, placements, form)
    require_room_for_states(algorithm, data, contexts, seeds, placements, plan.memory)
    queues = offline_seeds(algorithm, data, seeds, placements, contexts=contexts, form=form)
    return run_loop(queues, algorithm, plan, watcher, checkpoints, validate, stop)


def fit_prerequisites(
    algorithm: Learner,
    data: TrainingData | StreamedData,
    seeds: Sequence[int],
    plan: Plan,
    checkpoints: Checkpoints | LeaderCheckpoints | None,
    stop: Callable[[], bool],
    placements: Sequence[Placement],
    form: Form,
) -> list[dict[str, LearnerState]]:
    """The states of the parts that are trained before the learner, by name, for every seed.

    Each part has its own checkpoints beside those of the learner, so a resumed run need not train
    it again. If a request to stop arrives during this, the caller's loop, which checks again, does
    not begin the learner.
    """
    contexts: list[dict[str, LearnerState]] = [{} for _ in seeds]
    for name, fit in algorithm.fits().items():
        length = -(-fit.updates * fit.learner.batches_per_update // plan.chunk) * plan.chunk
        part_plan = dataclasses.replace(plan, updates=length)
        check_trainable(fit.learner, data, part_plan)
        learner = for_run(fit.learner, length)
        require_equal_parts(type(learner).__name__, learner.batch_size, placements)
        queues = offline_seeds(learner, data, seeds, placements, part=name, form=form)
        part_checkpoints = checkpoints.part(name) if checkpoints else None
        done = run_loop(queues, learner, part_plan, UNWATCHED, part_checkpoints, None, stop)
        for context, state in zip(contexts, done.states(), strict=True):
            context[name] = state
    return contexts


def run_loop(
    queues: SeedQueues,
    algorithm: Learner,
    plan: Plan,
    watcher: Watcher,
    checkpoints: Checkpoints | LeaderCheckpoints | None,
    validate: Validate | None,
    stop: Callable[[], bool],
) -> Trained:
    """Runs chunk after chunk of the queues, from the newest checkpoint if there is one.

    The checkpoints are closed before this returns; ``stop`` is called once per chunk.
    """
    chunks = loop_chunks(queues, algorithm, plan, watcher, checkpoints, validate, stop)
    while True:
        try:
            next(chunks)
        except StopIteration as ended:
            return ended.value


def loop_chunks(
    queues: SeedQueues,
    algorithm: Learner,
    plan: Plan,
    watcher: Watcher,
    checkpoints: Checkpoints | LeaderCheckpoints | None,
    validate: Validate | None,
    stop: Callable[[], bool],
) -> Generator[None, None, Trained]:
    """Does the same as :func:`run_loop`, with pauses, so that several trainings can take turns.

    It pauses twice per chunk: before its state is read, which waits for the device, and before the
    next chunk is queued. The program is compiled at the first pause. If the generator is closed
    early, the last checkpoint remains valid.
    """
    loop = _Loop(queues, algorithm, plan, watcher, checkpoints, validate)
    try:
        return (yield from loop.chunks(loop.begin(), stop))
    finally:
        queues.close()
        if checkpoints is not None:
            checkpoints.close()


@dataclasses.dataclass
class _Loop:
    parallel: SeedQueues
    algorithm: Learner
    plan: Plan
    watcher: Watcher
    checkpoints: Checkpoints | LeaderCheckpoints | None
    validate: Validate | None
    validated: bool = False
    pending: tuple[int, list[dict[str, jax.Array]]] | None = None
    before: dict[int, dict[str, Any]] = dataclasses.field(default_factory=dict)
    values: dict[int, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = type(self.algorithm).__name__
        self.per_update = self.algorithm.batches_per_update

    def begin(self) -> int:
        """Restores and compiles; returns the step to continue from."""
        step = 0
        restored = self.checkpoints and self.checkpoints.restore(self.parallel.snapshot())
        if restored:
            step = restored.step
            self.parallel.restore(restored.tree, done=step // self.per_update)
        self.validated = self.watcher.begin(step)
        if step < self.plan.updates:
            self.watcher.compiling()
            self.parallel.compile(self.plan.chunk // self.per_update)
            memory = self.parallel.memory()
            if memory is not None:
                require_room(self.name, memory, self.plan.memory)
                self.watcher.takes(memory)
            self.watcher.running()
        return step

    def chunks(self, step: int, stop: Callable[[], bool]) -> Generator[None, None, Trained]:
        """Pauses before a state is read, and before the chunk that donates its buffers."""
        first_step, metrics = step, None
        while True:
            yield
            last = step >= self.plan.updates or stop()
            is_due = last or step % self.plan.interval == 0
            snapshot = self.parallel.snapshot() if is_due and step else None
            yield
            if self.plan.debug_nans:
                self.before = {
                    key: self.before[key] for key in self.before if key == step - self.plan.chunk
                } | {step: self.parallel.snapshot()}
            running = None if last else self.parallel.advance()
            self._finish_validation()
            if metrics is not None:
                self.watcher.chunk(step, self._on_host(step, metrics))
            if snapshot is not None:
                self._keep(step, snapshot, resumed=step == first_step, force=last)
            if running is None:
                self._finish_validation()
                snapshot = snapshot or self.parallel.snapshot()
                finished = step >= self.plan.updates
                policies, best = self._judged(step, snapshot, finished=finished)
                seeds = self.parallel.seeds
                return Trained(self.algorithm, seeds, step, policies, snapshot, finished, best)
            metrics, step = running, step + self.plan.chunk

    def _keep(self, step: int, snapshot: dict[str, Any], *, resumed: bool, force: bool) -> None:
        """Validates and saves; the checkpoint of a best one is stored with its value."""
        at_interval = step % self.plan.interval == 0 or step >= self.plan.updates
        validate = at_interval and not (self.validated and resumed)
        if validate and self.plan.best:
            self._start_validation(step, snapshot)
            self._finish_validation()
        if not resumed:
            with self._explained(step):
                require_finite_states(
                    self.name, self.parallel.seeds, step, snapshot, self.checkpoints
                )
            self._save(step, snapshot, force=force)
        if validate and not self.plan.best:
            self._start_validation(step, snapshot)

    def _judged(
        self, step: int, snapshot: dict[str, Any], *, finished: bool
    ) -> tuple[list[Policy], int | None]:
        """The policies that training ends with, and their step where it is not the last."""
        if finished and self.plan.best and isinstance(self.checkpoints, Checkpoints):
            kept = self.checkpoints.best(snapshot)
            if kept is not None and kept.step < step:
                return self.parallel.policies(kept.tree), kept.step
        return self.parallel.policies(snapshot), None

    def _save(self, step: int, snapshot: dict[str, Any], *, force: bool) -> None:
        if self.checkpoints is not None:
            self.watcher.saving(step)
            value = self.values.get(step)
            self.checkpoints.save(step, snapshot, force=force, value=value)

    def _start_validation(self, step: int, snapshot: dict[str, Any]) -> None:
        if self.validate is not None:
            policies = self.parallel.policies(snapshot)
            self.pending = (step, [self.validate(policy) for policy in policies])

    def _finish_validation(self) -> None:
        if self.pending is not None:
            (step, metrics), self.pending = self.pending, None
            on_host = self._on_host(step, metrics)
            if self.plan.best:
                self.values = {step: math.fsum(m[DISTANCE] for m in on_host) / len(on_host)}
            self.watcher.validated(step, on_host)

    def _on_host(
        self, step: int, metrics_of_seeds: list[dict[str, jax.Array]]
    ) -> list[dict[str, float]]:
        """Waits for metrics and refuses those that are not finite."""
        metrics = [
            {name: float(x) for name, x in metrics.items()}
            for metrics in jax.device_get(metrics_of_seeds)
        ]
        seeds, snapshot = self.parallel.seeds, self.parallel.snapshot
        with self._explained(step):
            require_finite_metrics(self.name, seeds, step, metrics, snapshot, self.checkpoints)
        return metrics

    @contextlib.contextmanager
    def _explained(self, step: int) -> Iterator[None]:
        """Adds to a refusal of non-finite numbers where they come from, if the plan asks for it."""
        try:
            yield
        except DivergedError as error:
            first = step - self.plan.chunk
            if first not in self.before:
                raise
            done = first // self.per_update
            origin = self.parallel.origin_of_nan(self.before[first], done=done)
            if not origin:
                raise
            raise DivergedError(
                f"{error}; {origin}", error.seeds, error.step, error.checkpoint
            ) from error
