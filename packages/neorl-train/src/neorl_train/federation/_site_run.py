"""The run of one site in a federation: the common policy, and local training to compare with."""

import dataclasses
from collections.abc import Mapping

from neorl_core import Policy
from neorl_envs import Dataset
from neorl_envs.plants import Plant
from neorl_train._job.resolved_run import Learned, ResolvedRun, Task
from neorl_train.configuration._sections import Config
from neorl_train.data._experience import Experience
from neorl_train.data._source import RunSource
from neorl_train.runs._directory import RunDirectory
from neorl_train.training._loop import UNWATCHED, Trained, train

LOCAL = "local"
"""Suffix of the learner's name for its training on one site only."""


@dataclasses.dataclass(frozen=True)
class FederatedSite:
    """A site whose policies were trained jointly; it also trains alone for as long, to compare.

    Attributes:
        policies: The federation's policy for every seed.
        fine_tunes: Always empty.
    """

    policies: Mapping[int, Policy]
    fine_tunes: str = ""

    def check(
        self, config: Config, source: RunSource, environment: Plant | None, dataset: Dataset | None
    ) -> None:
        """Does nothing: the federation was already checked."""

    def usual_hyperparameters(self, config: Config) -> object:
        """The default hyperparameters."""
        return type(config.algorithms)()

    def take_log(self, run: ResolvedRun, directory: RunDirectory) -> None:
        """Does nothing: there is no existing log."""

    def train(self, task: Task, run: ResolvedRun, experience: Experience | None) -> Learned:
        """Trains on the site's own log for comparison; the common policies are the ones judged.

        Raises:
            InputError: If a stop was requested before the end.
        """
        assert experience is not None  # a site has a log
        task.print_line(f"training {task.name} on this site alone, for comparison")
        local = train(
            task.learner,
            experience.training,
            task.seeds,
            task.plan,
            watcher=UNWATCHED,
            checkpoints=task.checkpoints.part(LOCAL),
            stop=task.stop,
        )
        policies = [self.policies[seed] for seed in task.seeds]
        federated = Trained(
            task.learner, task.seeds, task.plan.updates, policies, {}, finished=local.finished
        )
        task.watcher.begin(0)
        task.watcher.validated(
            task.plan.updates, [_on_host(task.validate(policy)) for policy in policies]
        )
        alone = dict(zip(local.seeds, local.policies, strict=True))
        return Learned(federated, compared={f"{task.name}_{LOCAL}": alone})


def _on_host(metrics: Mapping[str, object]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}  # pyright: ignore[reportArgumentType]
