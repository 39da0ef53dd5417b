"""Results of a fine-tuning, and its file ``finetune.json``."""

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

from neorl_core.infrastructure import head, write_text
from neorl_train.judging._evaluation_file import decode, from_plain, read_json, to_plain
from neorl_train.judging._tables import Estimate
from neorl_train.judging._wording import (
    decimals,
    difference,
    percent,
    with_decimals,
    with_interval,
)
from neorl_train.runs._names import FINE_TUNING

VERSION = 1
"""Version of ``finetune.json``."""


@dataclasses.dataclass(frozen=True)
class Collected:
    """Counts of the events on the simulated plant while one seed was fine-tuned.

    Attributes:
        seed: Seed of the training.
        steps: Steps of the plant, including those before the first update.
        episodes: Episodes that ended.
        mean_return: Mean of their returns, with the plant's own reward; NaN if none ended.
        violated: Number of these episodes that broke the limit of each cost.
        trips: Number of these episodes that the plant ended without success.
        filtered: Steps in which the filter changed the action.
        fallback: Steps in which the fallback acted.
    """

    seed: int
    steps: int
    episodes: int
    mean_return: float
    violated: tuple[int, ...]
    trips: int
    filtered: int
    fallback: int


@dataclasses.dataclass(frozen=True)
class FineTuned:
    """One learner before and after fine-tuning, with the guard, in paired episodes.

    Attributes:
        name: Name of the learner.
        before: Mean return of the offline policies over seeds and episodes.
        after: Mean return of the fine-tuned policies.
        gain: Mean of the paired differences; with several seeds, the interval treats them as random
            too.
        each_seed: Mean paired difference of every seed.
        regret: Shortfall of every seed's policies from the reference during fine-tuning, as the
            mean over the offline policy and all validations; ``None`` if there were no validations.
        collected: Record of every seed's collection on the plant.
    """

    name: str
    before: Estimate
    after: Estimate
    gain: Estimate
    each_seed: tuple[float, ...]
    regret: tuple[float, ...] | None
    collected: tuple[Collected, ...]


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """Results of a run that fine-tunes.

    Attributes:
        unit: Unit of the returns.
        costs: Names of the costs, in the order of ``Collected.violated``.
        learners: One entry per learner.
    """

    unit: str
    costs: tuple[str, ...]
    learners: tuple[FineTuned, ...]

    def lines(self) -> list[str]:
        """Lines for the terminal: the gain, the regret, and the costs incurred in training."""
        return [line for learner in self.learners for line in self._lines(learner)]

    def _lines(self, learner: FineTuned) -> list[str]:
        digits = decimals([learner.before, learner.after])
        seeds = f"{len(learner.collected)} seed{'s' * (len(learner.collected) > 1)}"
        gain = f"{difference(learner.gain, digits, space=' ')} {self.unit}"
        lines = [
            f"{learner.name} fine-tuned, {seeds}: return {with_interval(learner.before, digits)} "
            f"before, {with_interval(learner.after, digits)} after, gain {gain}"
        ]
        if learner.gain.high < 0:
            lines.append(
                "  fine-tuning made it worse: the policies of the run that it started from have a "
                "higher return; keep those"
            )
        if learner.regret is not None:
            mean = sum(learner.regret) / len(learner.regret)
            lines.append(
                "  regret relative to the reference while it learned: "
                f"{with_decimals(mean, digits)}"
            )
        lines.append(
            f"  on the simulated plant, {exploration_summary(learner.collected, self.costs)}"
        )
        return lines


def exploration_summary(collected: Sequence[Collected], costs: Sequence[str]) -> str:
    """Describes what happened on a plant while learners were trained on it.

    Returns:
        A phrase such as ``"of 40 episodes: 3 over the limit of heat, 0 trips, the guard acted in 2
        % of the steps"``.
    """
    violations = [
        f"{sum(seed.violated[j] for seed in collected)} over the limit of {name}"
        for j, name in enumerate(costs)
    ]
    episodes, trips, steps = (
        sum(getattr(seed, count) for seed in collected) for count in ("episodes", "trips", "steps")
    )
    guarded_steps = sum(seed.filtered + seed.fallback for seed in collected)
    guard = f"the guard acted in {percent(guarded_steps / steps)} of the steps"
    return f"of {episodes} episodes: {', '.join([*violations, f'{trips} trips', guard])}"


def write_fine_tuning(run: str | os.PathLike[str], results: FineTuning) -> None:
    """Writes ``finetune.json`` into a run directory, completely or not at all.

    Raises:
        OSError: If it cannot be written.
    """
    content = {**head("finetune", VERSION), **to_plain(results)}
    text = json.dumps(content, allow_nan=False, indent=1) + "\n"
    write_text(Path(run) / FINE_TUNING, text)


def read_fine_tuning(run: str | os.PathLike[str]) -> FineTuning:
    """Reads the results of a fine-tuning.

    Raises:
        InputError: If the file is missing, damaged or of another version.
    """
    path = Path(run) / FINE_TUNING
    content = read_json(path, "finetune", VERSION)
    return decode(path, lambda plain: from_plain(FineTuning, plain), content)
