"""What training led to: a fine-tuning with its file ``finetune.json``, and signs of failure."""

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from neorl_core.infrastructure import head, write_text
from neorl_train.judging._results import decode, from_plain, read_json, to_plain
from neorl_train.judging._tables import Estimate
from neorl_train.judging._wording import (
    decimals,
    difference,
    percent,
    with_decimals,
    with_interval,
)
from neorl_train.runs._directory import FINE_TUNING

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


class _Sign(NamedTuple):
    """A metric that shows that training went wrong, and what to do about it.

    Attributes:
        metric: Its name.
        limit: The last value that is no sign.
        worst: ``max`` if larger values are signs, ``min`` if smaller ones are.
        shown: How its worst value is written.
        sentence: What its seeds do; ``{}`` is the place of that value.
    """

    metric: str
    limit: float
    worst: Callable[[Iterable[float]], float]
    shown: Callable[[float], str]
    sentence: str

    def of(self, name: str, runs: Sequence[Mapping[str, float]]) -> list[str]:
        """The warning on one learner, from the metrics of its seeds; empty if there is none."""
        values = [metrics[self.metric] for metrics in runs if self.metric in metrics]
        bad = [x for x in values if (x > self.limit if self.worst is max else x < self.limit)]
        if not bad:
            return []
        sentence = self.sentence.format(self.shown(self.worst(bad)))
        return [f"{name}: {len(bad)} of {len(runs)} seeds {sentence}"]


_NONE_SAFE = _Sign(
    *("safe_actions", 0.001, min, percent),
    "count no action of their policy as safe, so nothing moves it: take another learner, or wider "
    "limits",
)
_SIGNS = (
    _Sign(
        *("q_beyond_rewards", 0.01, max, percent),
        "value up to {} of the rows beyond any return that the log's rewards allow: the values "
        "have diverged from the data, and policies learned from them cannot be trusted",
    ),
    _Sign(
        *("q_off_rewards", 3.0, max, "{:.1f}".format),
        "have values that correspond to a mean reward per step up to {} standard deviations from "
        "the log's: they have not yet reached the level that a constant in the reward requires, "
        "and policies that follow them are far from the best; subtract the constant in the "
        "reward's expression, or train longer",
    ),
    _Sign(
        *("effective_sample", 0.05, min, percent),
        "learn from as little as {} of the rows (effective sample of the weights): lower the "
        "inverse temperature",
    ),
    _Sign(
        *("at_ceiling", 0.2, max, percent),
        "give up to {} of the rows the largest weight: lower the inverse temperature, or scale the "
        "advantage",
    ),
    _Sign(
        *("held_at_bound", 0.1, max, percent),
        "hold up to {} of the actions at a bound where the logged actions are not, and almost no "
        "gradient passes there: more training may not help; give the distance to the log more "
        "weight, or lower the actor's learning rate",
    ),
    _NONE_SAFE,
)


COST_VALUE = "cost_q"
"""The metric of learners with cost critics: the mean cost that these predict."""
DRIFT = 0.5
"""Largest change of that metric that may remain, as a fraction of its size. Critics that approach
their level exponentially have it after about 1.2 times the updates that they need."""


def unconverged(
    records: Iterable[Mapping[str, Any]], algorithms: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """The learners whose cost critics have not reached their level, with a sentence each.

    Targets that follow their networks by ``tau`` at every update approach the level of a discounted
    sum over ``T = 1 / (tau (1 - discount))`` updates; an update takes ``policy_delay`` gradient
    steps, if a learner has that field. A training has not converged if it had fewer steps than
    that, or if the mean of its cost critics, at the rate of the last fifth of the training, would
    still change by more than half of its largest size within ``T``.

    Args:
        records: Lines of ``metrics.jsonl``.
        algorithms: The hyperparameters of every learner by name, as in ``config.toml``.

    Returns:
        Sentences by the names of the learners.
    """
    curves: dict[str, dict[int, list[tuple[int, float]]]] = {}
    for line in records:
        if line["kind"] == "chunk" and COST_VALUE in line["metrics"]:
            of_seed = curves.setdefault(line["algorithm"], {}).setdefault(line["seed"], [])
            of_seed.append((int(line["step"]), float(line["metrics"][COST_VALUE])))
    found = {}
    for name, seeds in curves.items():
        settings = algorithms.get(name, {})
        tau, remaining = settings.get("tau", 0.0), 1 - settings.get("discount", 1.0)
        if not tau * remaining > 0:
            continue
        needed = settings.get("policy_delay", 1) / (tau * remaining)
        made = min(curve[-1][0] for curve in seeds.values())
        drifts = [_remaining_drift(curve, needed) for curve in seeds.values()]
        drifting = [drift for drift in drifts if drift > DRIFT]
        need = f"cost critics need about {needed:,.0f} updates to predict a whole episode"
        if made < needed:
            found[name] = f"{name} has not converged: {need}, and there were {made:,}"
        elif drifting:
            found[name] = (
                f"{name} has not converged: in {len(drifting)} of {len(seeds)} seeds the predicted "
                f"cost still drifts, by up to {percent(max(drifting))} of itself in {needed:,.0f} "
                "updates"
            )
        else:
            continue
        found[name] += "; train longer, or raise tau"
    return found


def _remaining_drift(curve: Sequence[tuple[int, float]], updates: float) -> float:
    """Change within so many updates at the rate of the last fifth, relative to the largest size."""
    last = curve[-max(2, len(curve) // 5) :]
    half = len(last) // 2
    size = max(abs(value) for _, value in curve)
    if half == 0 or size == 0:
        return 0.0
    (first_step, first), (second_step, second) = (
        (sum(x) / half for x in zip(*part, strict=True)) for part in (last[:half], last[-half:])
    )
    return abs(second - first) / (second_step - first_step) * updates / size


def without_safe_actions(records: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The learners of which at last no action counts as safe in some seed, with a sentence each.

    Their metric ``safe_actions`` is the share of the policy's actions whose predicted costs are
    within their limits; the others give the policy no gradient.
    """
    return {
        name: sentence
        for name, runs in _last_metrics(records).items()
        for sentence in _NONE_SAFE.of(name, runs)
    }


def _last_metrics(records: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, float]]]:
    """The metrics of the last chunk of every seed, by learner."""
    last: dict[str, dict[int, Mapping[str, float]]] = {}
    for line in records:
        if line["kind"] == "chunk":
            last.setdefault(line["algorithm"], {})[line["seed"]] = line["metrics"]
    return {name: list(seeds.values()) for name, seeds in last.items()}


def diverged_sentences(diverged: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence for each learner that diverged, from the field ``diverged`` of a record."""
    return [f"{name} is in no comparison: {entry['error']}" for name, entry in diverged.items()]


def training_signs(
    records: Iterable[Mapping[str, Any]],
    algorithms: Mapping[str, Mapping[str, Any]],
    diverged: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[str]:
    """Learners that diverged, and warnings from the metrics of the others, mostly the last ones.

    A run gets a warning in any of these cases:

    - More than 1 % of the rows have a value that the log's rewards do not permit
      (``q_beyond_rewards``).
    - Its values imply a reward per step more than three standard deviations from the log's
      (``q_off_rewards``).
    - Its weighted regression has an effective sample size below 5 % of the rows
      (``effective_sample``), or gives more than 20 % of them the largest weight (``at_ceiling``).
    - Its actor holds more than 10 % of the actions at a bound where the log does not
      (``held_at_bound``).
    - No action of its policy counts as safe (``safe_actions``).
    - Its cost critics have not converged (:func:`unconverged`).

    Args:
        records: Lines of ``metrics.jsonl``.
        algorithms: The hyperparameters of every learner by name, as in ``config.toml``.
        diverged: The field ``diverged`` of ``run.json``; none by default.

    Returns:
        One sentence for each algorithm and warning; empty if there is none.
    """
    diverged = diverged or {}
    records = [line for line in records if line["algorithm"] not in diverged]
    sentences = diverged_sentences(diverged)
    for name, runs in _last_metrics(records).items():
        sentences += [sentence for sign in _SIGNS for sentence in sign.of(name, runs)]
    return [*sentences, *unconverged(records, algorithms).values()]
