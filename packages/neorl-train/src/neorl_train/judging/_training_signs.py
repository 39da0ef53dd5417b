"""Detects from its last metrics that training went wrong."""

from collections.abc import Iterable, Mapping
from typing import Any

from neorl_train.judging._wording import percent

MAX_BEYOND = 0.01
MAX_OFF = 3.0
MIN_EFFECTIVE = 0.05
MAX_AT_CEILING = 0.2
MAX_HELD = 0.1


def training_signs(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Warnings from the values and weights in the last chunk of every training run.

    A run gets a warning in any of these cases:

    - More than 1 % of the rows have a value that the log's rewards do not permit
      (``q_beyond_rewards``).
    - Its values imply a reward per step more than three standard deviations from the log's
      (``q_off_rewards``).
    - Its weighted regression has an effective sample size below 5 % of the rows
      (``effective_sample``), or gives more than 20 % of them the largest weight (``at_ceiling``).
    - Its actor holds more than 10 % of the actions at a bound where the log does not
      (``held_at_bound``).

    Args:
        records: Lines of ``metrics.jsonl``.

    Returns:
        One sentence for each algorithm and warning; empty if there is none.
    """
    last: dict[tuple[str, int], Mapping[str, float]] = {}
    for line in records:
        if line["kind"] == "chunk":
            last[line["algorithm"], line["seed"]] = line["metrics"]
    sentences = []
    for name in dict.fromkeys(algorithm for algorithm, _ in last):
        runs = [metrics for (algorithm, _), metrics in last.items() if algorithm == name]
        sentences += _signs_of_learner(name, runs)
    return sentences


def _signs_of_learner(name: str, runs: list[Mapping[str, float]]) -> list[str]:
    beyond = [x for x in _values(runs, "q_beyond_rewards") if x > MAX_BEYOND]
    off_scale = [x for x in _values(runs, "q_off_rewards") if x > MAX_OFF]
    small_samples = [x for x in _values(runs, "effective_sample") if x < MIN_EFFECTIVE]
    ceiling = [x for x in _values(runs, "at_ceiling") if x > MAX_AT_CEILING]
    saturated = [x for x in _values(runs, "held_at_bound") if x > MAX_HELD]
    signs = []
    if beyond:
        signs.append(
            f"{_seeds(name, beyond, runs)} up to {percent(max(beyond))} of the rows beyond any "
            "return that the log's rewards allow: the values have diverged from the data, and "
            "policies learned from them cannot be trusted"
        )
    if off_scale:
        signs.append(
            f"{_seeds(name, off_scale, runs, 'have values that correspond to')} a mean reward per "
            f"step up to {max(off_scale):.1f} standard deviations from the log's: they have not "
            "yet reached the level that a constant in the reward requires, and policies that "
            "follow them are far from the best; subtract the constant in the reward's expression, "
            "or train longer"
        )
    if small_samples:
        signs.append(
            f"{_seeds(name, small_samples, runs, 'learn from')} as little as "
            f"{percent(min(small_samples))} of the rows (effective sample of the weights): lower "
            "the inverse temperature"
        )
    if ceiling:
        signs.append(
            f"{_seeds(name, ceiling, runs, 'give')} up to {percent(max(ceiling))} of the rows the "
            "largest weight: lower the inverse temperature, or scale the advantage"
        )
    if saturated:
        signs.append(
            f"{_seeds(name, saturated, runs, 'hold')} up to {percent(max(saturated))} of the "
            "actions at a bound where the logged actions are not, and almost no gradient passes "
            "there: more training may not help; give the distance to the log more weight, or lower "
            "the actor's learning rate"
        )
    return signs


def _values(runs: list[Mapping[str, float]], metric: str) -> list[float]:
    return [metrics[metric] for metrics in runs if metric in metrics]


def _seeds(
    name: str, affected: list[float], runs: list[Mapping[str, float]], verb: str = "value"
) -> str:
    return f"{name}: {len(affected)} of {len(runs)} seeds {verb}"
