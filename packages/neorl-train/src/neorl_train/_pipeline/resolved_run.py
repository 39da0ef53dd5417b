"""A run with nothing left open, and what its stages hand to one another."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from neorl_core import Policy, Spec
from neorl_envs import Dataset
from neorl_envs.plants import Plant
from neorl_envs.recording import BehaviourPolicy, behaviour_policies, quality
from neorl_train._process.profiling import Profile
from neorl_train._process.progress import Reporter
from neorl_train._process.signals import StopSignal
from neorl_train._process.timings import Timings
from neorl_train.configuration._sections import Config
from neorl_train.evaluation._validation import PolicyValidation
from neorl_train.experience._experience import Experience
from neorl_train.experience._source import PlantSource, RunSource
from neorl_train.results._fine_tuning import Collected
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.runs._directory import RunDirectory
from neorl_train.training._loop import Trained, Watcher
from neorl_train.training._plan import Plan
from neorl_train.training._processes import LeaderCheckpoints


@dataclasses.dataclass(frozen=True, eq=False)
class ResolvedRun:
    """Shared inputs of all stages of a run, resolved once when it starts or is resumed.

    Attributes:
        config: Configuration with penalties, limits and fallback written out.
        source: Source of its experience.
        kind: Source of its learners' experience.
        environment: Plant that its policies can act on; ``None`` where there is only a log.
        dataset: Log, where the source is a file; that of a plant is yet to be collected.
        spec: Channels of the source, with the cost limits of the run.
    """

    config: Config
    source: RunSource
    kind: "RunKind"
    environment: Plant | None
    dataset: Dataset | None
    spec: Spec

    @property
    def judged_spec(self) -> Spec:
        """Channels as policies are judged by them: with the longest episode of the plant."""
        if self.environment is None:
            return self.spec
        return dataclasses.replace(self.spec, horizon=self.environment.spec.horizon)

    @property
    def behaviour(self) -> tuple[BehaviourPolicy, ...]:
        """Quality of the log that a plant fills; empty if the log is a file."""
        if self.environment is None or not isinstance(self.source, PlantSource):
            return ()
        controllers, plan = quality(self.environment, self.config.data.quality)
        return tuple(behaviour_policies(self.environment, controllers, plan).values())


@dataclasses.dataclass(frozen=True, eq=False)
class Session:
    """Folder, process and reporter of a run.

    Attributes:
        directory: Run directory, locked.
        reporter: Reporter of progress.
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
    """One learner to be trained: how long, and who watches, stores, judges and stops it.

    Attributes:
        name: Name of the learner in the configuration.
        learner: The learner, with plain numbers.
        seeds: Seeds of the training runs.
        plan: Length.
        watcher: Observer of all events.
        checkpoints: Checkpoints to resume from and save to.
        validate: Judges policies at every checkpoint.
        stop: Asked once a chunk.
        controllers: Fitted classical controllers, of which a fallback may be one.
        say: Called with what a person should read.
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
    say: Callable[[str], None]

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
        before: Policies of before by name, where trained ones went on.
        collected: Record of every seed's collection on the plant; empty without one.
    """

    trained: Trained
    before: dict[str, Policy] = dataclasses.field(default_factory=dict)
    collected: tuple[Collected, ...] = ()


class RunKind(Protocol):
    """Differences between kinds of runs: the training data, and their requirements.

    Attributes:
        fine_tunes: Directory of the run whose learners go on; empty where they begin anew.
    """

    @property
    def fine_tunes(self) -> str:
        """Directory of the run whose learners go on; empty where they begin anew."""
        ...

    def check(
        self, config: Config, source: RunSource, environment: Plant | None, dataset: Dataset | None
    ) -> None:
        """Refuses what cannot be trained this way, before anything is written or compiled.

        Args:
            config: Configuration, validated.
            source: Source of its experience.
            environment: Simulated plant; ``None`` where there is none.
            dataset: Log, where it is a file.

        Raises:
            InputError: In one line.
        """
        ...

    def usual_hyperparameters(self, config: Config) -> Any:
        """Sections of all learners as they are where nothing was configured."""
        ...

    def take_log(self, run: ResolvedRun, directory: RunDirectory) -> None:
        """Puts a log that is there already into the run directory."""
        ...

    def train(self, task: Task, run: ResolvedRun, experience: Experience | None) -> Learned:
        """Trains all seeds of one learner, from the newest checkpoint where there is one."""
        ...
