"""A fully resolved run, and the data that its stages exchange."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from neorl_agents.retuning import LearnedPlants
from neorl_core import Policy, Spec
from neorl_envs import Dataset
from neorl_envs.plants import Plant
from neorl_envs.recording import BehaviourPolicy, behaviour_policies, quality
from neorl_envs.scoring import GymnasiumJudge
from neorl_train._process.control import StopSignal
from neorl_train._process.progress import Profile, Reporter, Timings
from neorl_train.configuration._sections import Config
from neorl_train.data._behaviours import recorded_tunings
from neorl_train.data._experience import Experience
from neorl_train.data._source import PlantSource, RunSource
from neorl_train.judging._training_results import Collected
from neorl_train.judging._validation import PolicyValidation
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.runs._directory import RunDirectory
from neorl_train.training._loop import Trained, Watcher
from neorl_train.training._plan import Plan
from neorl_train.training._processes import LeaderCheckpoints


class SharedRetuning(NamedTuple):
    """What a site of a federation knows before its own run retunes the controller.

    Attributes:
        proposed: Tunings that all sites together prefer to today's, by name, as changes in steps of
            the tunable parameters.
        plants: Plant models of its log, which the federation learned already.
        incumbent: The controller that runs at the site today.
        notes: Sentences on the models, and on where the proposals come from.
    """

    proposed: Mapping[str, Float[np.ndarray, " tunable"]]
    plants: LearnedPlants
    incumbent: Policy
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class ResolvedRun:
    """Shared inputs of all stages of a run, resolved once when it starts or is resumed.

    Attributes:
        config: Configuration with explicit penalties, limits and fallback.
        source: Source of its experience.
        kind: Source of its learners' experience.
        environment: Plant on which its policies can act; ``None`` if there is only a log.
        dataset: The log, if the source is a file; that of a plant is collected later.
        spec: Channels of the source, with the cost limits of the run.
        shared: What a federation found for retuning at this site; ``None`` outside of one.
        judge: Gymnasium environment in which policies are scored; ``None`` for none.
    """

    config: Config
    source: RunSource
    kind: "RunKind"
    environment: Plant | None
    dataset: Dataset | None
    spec: Spec
    shared: SharedRetuning | None = None
    judge: GymnasiumJudge | None = None

    @property
    def judged_spec(self) -> Spec:
        """Channels as used for judging policies: with the longest episode of the plant."""
        if self.environment is None:
            return self.spec
        return dataclasses.replace(self.spec, horizon=self.environment.spec.horizon)

    @property
    def behaviour(self) -> tuple[BehaviourPolicy, ...]:
        """The controllers that filled the log, with the plant's operators; empty if unknown."""
        if self.environment is None:
            return ()
        if isinstance(self.source, PlantSource):
            controllers, plan = quality(self.environment, self.config.data.quality)
        else:  # a file states who acted, but not what the operators did
            tunings, plan = self.environment.tunings(), None
            recorded = recorded_tunings(self.environment, self.dataset)
            controllers = {name: tunings[name] for name in recorded}
        return tuple(behaviour_policies(self.environment, controllers, plan).values())


@dataclasses.dataclass(frozen=True, eq=False)
class Session:
    """Folder, process and reporter of a run.

    Attributes:
        directory: Run directory, locked.
        reporter: Progress reporter.
        stop: Flag that signals set.
        timings: Record of where the time goes.
        profile: Traces of the first chunks of every learner; none by default.
    """

    directory: RunDirectory
    reporter: Reporter
    stop: StopSignal
    timings: Timings
    profile: Profile = dataclasses.field(default_factory=Profile)


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """A learner to train, with its length, observers, checkpoints, validation and stop flag.

    Attributes:
        name: Name of the learner in the configuration.
        learner: The learner, with plain numbers.
        seeds: Seeds of the training runs.
        plan: Length of the training.
        watcher: Observer of all events.
        checkpoints: Checkpoints for resuming and saving.
        validate: Evaluates policies at every checkpoint.
        stop: Called once per chunk; returns whether to stop.
        controllers: Fitted classical controllers, one of which may be the fallback.
        print_line: Called with messages for the user.
    """

    name: str
    learner: Any
    seeds: tuple[int, ...]
    plan: Plan
    watcher: Watcher
    checkpoints: Checkpoints | LeaderCheckpoints
    validate: PolicyValidation
    stop: Callable[[], bool]
    controllers: dict[str, Policy]
    print_line: Callable[[str], None]

    def loop(self) -> dict[str, Any]:
        """Keyword arguments that every training function takes."""
        return {
            "watcher": self.watcher,
            "checkpoints": self.checkpoints,
            "validate": self.validate,
            "stop": self.stop,
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """Results of training one learner.

    Attributes:
        trained: Policies and states of every seed.
        compared: Policies to compare it with, by name and by seed: those from which the training
            continued, or those of a site alone.
        collected: Record of every seed's collection on the plant; empty if there was none.
    """

    trained: Trained
    compared: dict[str, dict[int, Policy]] = dataclasses.field(default_factory=dict)
    collected: tuple[Collected, ...] = ()

    @property
    def policies(self) -> dict[int, Policy]:
        """The trained policies by seed."""
        return dict(zip(self.trained.seeds, self.trained.policies, strict=True))


@dataclasses.dataclass(frozen=True)
class RunKind:
    """A kind of runs: where training data come from, and what is required.

    Attributes:
        fine_tunes: Directory of the run whose learners are continued; empty for new learners.
    """

    fine_tunes: str = ""

    def check(
        self, config: Config, source: RunSource, environment: Plant | None, dataset: Dataset | None
    ) -> None:
        """Refuses what cannot be trained this way, before anything is written or compiled."""

    def usual_hyperparameters(self, config: Config) -> Any:
        """Sections of all learners as they are if nothing was configured: the defaults."""
        return type(config.algorithms)()

    def take_log(self, run: ResolvedRun, directory: RunDirectory) -> None:
        """Puts an existing log into the run directory, if there is one."""

    def train(self, task: Task, run: ResolvedRun, experience: Experience | None) -> Learned:
        """Trains all seeds of one learner, from the newest checkpoint if there is one."""
        raise NotImplementedError
