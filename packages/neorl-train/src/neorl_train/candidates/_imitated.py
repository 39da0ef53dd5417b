"""Controllers that imitate those who recorded a log, such as a shift, and which of them is best."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import ttest_ind

from neorl_core import InputError, Spec
from neorl_core.costs import limit_kind
from neorl_envs import Dataset
from neorl_train.candidates._family import Family, Made, Material, RunInputs
from neorl_train.candidates._fitted import fit_inputs, identification_lines
from neorl_train.configuration._classical import settings_of
from neorl_train.data._behaviours import behaviours_of, imitation_name, own_episodes
from neorl_train.judging._evaluate import return_unit, reward_unit
from neorl_train.judging._pool import Candidate
from neorl_train.judging._results import Episodes
from neorl_train.judging._rollouts import recorded_episodes
from neorl_train.judging._wording import confidence, enumeration, quantity, with_ends, with_unit

IMITATED = "imitated"
"""Family of the imitations of those who recorded the log."""
IMITATOR = "pid_imitation"
"""The classical controller that imitates them."""


def _by_name(inputs: RunInputs) -> dict[str, str]:
    """Whom a log alone allows to imitate, by the name of the imitation.

    With a plant there is nobody: its tunings are known.
    """
    if inputs.environment is not None or inputs.dataset is None:
        return {}
    return {imitation_name(behaviour): behaviour for behaviour in behaviours_of(inputs.dataset)}


def _names(inputs: RunInputs) -> list[str]:
    return list(_by_name(inputs)) if IMITATOR in inputs.config.classical.controllers else []


def _reason(inputs: RunInputs, name: str) -> str:
    behaviour = _by_name(inputs).get(name, "")
    if not behaviour or name in _names(inputs):
        return ""
    return (
        f"a controller that {IMITATOR} fits to the episodes of {behaviour}; add "
        f"`--classical.controllers {IMITATOR}`"
    )


def _imitate(material: Material) -> Made:
    """Imitations of the behaviours that the configuration names, and of the best one."""
    config = material.config
    if material.environment is not None or not config.classical.controllers:
        return Made([], [])
    by_name = _by_name(RunInputs(config, None, material.dataset))
    given = (config.retuning.controller, config.evaluation.incumbent, config.evaluation.candidate)
    named = [by_name[name] for name in given if name in by_name]
    task, part = fit_inputs(material)
    notes, best = [], ""
    if config.retuning.modes and IMITATOR not in config.classical.controllers:
        notes.append(
            f"no behaviour is imitated; add {IMITATOR} to classical.controllers, which imitates "
            "the best one"
        )
    elif config.retuning.modes:
        spec = material.spec
        best, notes = best_behaviour(part, spec, config.evaluation.level)
    candidates: list[Candidate] = []
    chosen = [best] if best else []
    for behaviour in dict.fromkeys([*named, *chosen]):
        own, name = own_episodes(part, behaviour), imitation_name(behaviour)
        try:
            if own.sum() < MIN_EPISODES:
                raise InputError(
                    f"{behaviour} recorded {int(own.sum())} training episodes, and an imitation "
                    f"needs at least {MIN_EPISODES}; imitate another behaviour, or cut the log "
                    "into shorter episodes (length in [episodes] of its plant.toml)"
                )
            rows = part.select_episodes(np.flatnonzero(own)).transitions
            settings = settings_of(config.classical, IMITATOR)
            policy, report = settings.fit(rows, part.spec, task)
        except InputError as error:
            if behaviour in named:
                raise InputError(f"classical controller {name}: {error}") from error
            notes.append(f"{behaviour} is not imitated: {error}")
            continue
        text = f"{IMITATOR} of the episodes of {behaviour}"
        metadata = {"controller": name, "seed": material.seed}
        seeds = (material.seed,)
        candidates.append(Candidate(name, IMITATED, policy, seeds, text, metadata=metadata))
        notes += identification_lines(name, report, task, part.spec)
    return Made(candidates, notes)


IMITATIONS = Family(_names, _imitate, _reason)


MIN_EPISODES = 8
"""Smallest number of episodes of a behaviour that is imitated."""
MIN_TURNS = 2
"""Smallest number of turns from which the spread between turns can be estimated."""


class Difference(NamedTuple):
    """How much better one behaviour is than another, with a confidence interval."""

    other: str
    value: float
    low: float
    high: float


def best_behaviour(dataset: Dataset, spec: Spec, level: float) -> tuple[str, list[str]]:
    """The behaviour with the best logged results among those that keep the cost limits.

    The best of several noisy means is often best by chance. A behaviour is therefore named only if
    it is better than *every* other one, each by Welch's interval of level ``1 - (1 - level) / k``
    for ``k`` behaviours. If the means of turns are normal, the probability that one is named that
    is not the best is at most ``(1 - level) / 2``: by the intersection-union principle the claim
    that one behaviour is better than all others needs no correction for their number, and
    Bonferroni's covers the ``k`` claims that could have been made.

    In a log with times, the unit is a turn: consecutive episodes of one behaviour, whose
    disturbances are alike. Its result is the mean reward per step, because the last episode before
    a change is short. In a log without times every episode is a unit, with its return.

    Returns:
        Its name, and sentences on the comparison; an empty name if the log shows no best one.

    Source: Welch, The generalization of "Student's" problem when several different population
    variances are involved, Biometrika 34 (1947) 28; Berger, Multiparameter hypothesis testing and
    acceptance sampling, Technometrics 24 (1982) 295.
    """
    names = behaviours_of(dataset)
    counts = {name: int(own_episodes(dataset, name).sum()) for name in names}
    present = [name for name in names if counts[name]]
    if not present:
        return "", [
            "no behaviour is imitated, because the log does not say who recorded each episode; "
            'give the tag that says it the role "behaviour" in plant.toml'
        ]
    if len(present) == 1:
        return "", [
            f"no behaviour is imitated, because {present[0]} recorded the whole log, and there is "
            "no other one to compare it with"
        ]
    episodes = recorded_episodes(dataset, spec)
    results = turn_results(dataset, episodes)
    eligible = [n for n in present if counts[n] >= MIN_EPISODES and len(results[n]) >= MIN_TURNS]
    if len(eligible) < 2:
        given = [f"{n} {counts[n]} in {_turns(len(results[n]))}" for n in present]
        return "", [
            f"no behaviour is imitated: two of them need at least {MIN_EPISODES} training episodes "
            f"each, in {MIN_TURNS} turns or more, and the log has of {'; of '.join(given)}; record "
            "more, or cut the log into shorter episodes (length in [episodes] of its plant.toml)"
        ]
    left_out = [f"{n} ({counts[n]})" for n in present if n not in eligible]
    sentences = []
    if left_out:
        sentences.append(
            f"not compared, for too few training episodes or turns: {enumeration(left_out)}"
        )
    within = []
    for name in eligible:
        broken = _broken_limits(episodes, own_episodes(dataset, name), spec)
        sentences += [f"{name} is not imitated: {text}" for text in broken]
        within += [] if broken else [name]
    if not within:
        return "", sentences
    best, closest = best_mean({name: results[name] for name in within}, level)
    if closest is None:
        return best, [*sentences, f"{best} alone keeps every limit in the log"]
    what, unit = (
        ("return", return_unit) if dataset.time is None else ("reward per step", reward_unit)
    )
    gap = with_unit(with_ends(closest.value, closest.low, closest.high), unit(dataset))
    margin = (
        f"the difference to {closest.other} is {gap} (from "
        f"{_turns(len(results[best]))} and {_turns(len(results[closest.other]))}, "
        f"{confidence(level)} for the best of {len(within)})"
    )
    if closest.low > 0:
        return best, [*sentences, f"{best} ran the plant best by its logged {what}: {margin}"]
    return "", [
        *sentences,
        f"no behaviour is imitated, because the log does not show which one is best: {best} has "
        f"the highest {what}, but {margin}; record more, or name one of them with "
        "--evaluation.candidate imitated-NAME",
    ]


def turn_results(dataset: Dataset, episodes: Episodes) -> dict[str, Float[np.ndarray, " turn"]]:
    """The result of every turn of each behaviour; see :func:`best_behaviour`."""
    labels, returns = np.asarray(dataset.behaviour), episodes.returns
    if dataset.time is not None:
        is_first = np.append(True, labels[1:] != labels[:-1])
        turn = np.cumsum(is_first) - 1
        steps = np.bincount(turn, episodes.length)
        known = steps > 0
        labels = labels[is_first][known]
        returns = np.bincount(turn, returns)[known] / steps[known]
    return {name: returns[labels == i] for i, name in enumerate(behaviours_of(dataset))}


def best_mean(
    results: Mapping[str, Float[np.ndarray, " turn"]], level: float
) -> tuple[str, Difference | None]:
    """The name with the largest mean, and its least certain difference to another one.

    It is the best, by the rule of :func:`best_behaviour`, if the lower end of that is above zero.

    The difference is the one with the smallest lower end; ``None`` if there is no other name.
    """
    best = max(results, key=lambda name: float(results[name].mean()))
    own_level = 1 - (1 - level) / len(results)
    differences = []
    for other in results:
        if other == best:
            continue
        of_best, of_other = results[best], results[other]
        value = float(of_best.mean() - of_other.mean())
        low = high = value
        # The test is not defined without any spread.
        if np.ptp(of_best) > 0 or np.ptp(of_other) > 0:
            interval = ttest_ind(of_best, of_other, equal_var=False).confidence_interval(own_level)
            low, high = float(interval.low), float(interval.high)
        differences.append(Difference(other, value, low, high))
    return best, min(differences, key=lambda one: one.low, default=None)


def _broken_limits(episodes: Episodes, own: np.ndarray, spec: Spec) -> list[str]:
    """The costs whose mean over the given episodes is above its limit, in words."""
    texts = []
    for j, channel in enumerate(spec.cost):
        total, worst = episodes.cost_sum[own, j], episodes.cost_worst[own, j]
        mean = float(np.mean(limit_kind(channel).of_episode(total=total, worst=worst)))
        if mean > channel.limit:
            texts.append(
                f"its logged cost {channel.name}, {quantity(mean, channel.unit)} per {channel.per},"
                f" exceeds the limit of {quantity(channel.limit, channel.unit)}"
            )
    return texts


def _turns(count: int) -> str:
    return f"{count} turn{'s' * (count != 1)}"
