"""The run of one site of a federation: the common policy beside training on the site alone."""

import dataclasses
from collections.abc import Mapping

from neorl_core import Policy
from neorl_envs import Dataset
from neorl_envs.plants import Plant
from neorl_train._pipeline.resolved_run import Learned, ResolvedRun, Task
from neorl_train.configuration._sections import Config
from neorl_train.experience._experience import Experience
from neorl_train.experience._source import RunSource
from neorl_train.runs._directory import RunDirectory
from neorl_train.training._loop import UNWATCHED, Trained, train

LOCAL = "local"
"""What is added to the learner's name for its training on one site alone."""


@dataclasses.dataclass(frozen=True)
class FederatedSite:
    """Its policies were trained with the other sites; for comparison it trains alone, as long.

    Attributes:
        policies: The policy of every seed that the federation came to.
        fine_tunes: Nothing.
    """

    policies: Mapping[int, Policy]
    fine_tunes: str = ""

    def check(
        self, config: Config, source: RunSource, environment: Plant | None, dataset: Dataset | None
    ) -> None:
        """Was checked with the federation."""

    def usual_hyperparameters(self, config: Config) -> object:
        """The defaults."""
        return type(config.algorithms)()

    def take_log(self, run: ResolvedRun, directory: RunDirectory) -> None:
        """None is there."""

    def train(self, task: Task, run: ResolvedRun, experience: Experience | None) -> Learned:
        """Trains on the site's own log; the common policies are the ones that are judged.

        Raises:
            InputError: If a request to stop came before the end.
        """
        assert experience is not None  # a site has a log
        task.say(f"training {task.name} on this site alone, for comparison")
        alone = train(
            task.learner,
            experience.training,
            task.seeds,
            task.plan,
            watcher=UNWATCHED,
            checkpoints=task.checkpoints.part(LOCAL),
            stop=task.stop,
        )
        policies = [self.policies[seed] for seed in task.seeds]
        common = Trained(
            task.learner, task.seeds, task.plan.updates, policies, {}, finished=alone.finished
        )
        task.watcher.begin(0)
        task.watcher.validated(
            task.plan.updates, [_on_host(task.validate(policy)) for policy in policies]
        )
        return Learned(common, before=alone.named(f"{task.name}_{LOCAL}"))


def _on_host(metrics: Mapping[str, object]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}  # pyright: ignore[reportArgumentType]
