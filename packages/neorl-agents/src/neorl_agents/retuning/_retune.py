"""A controller retuned from a log: model, search, judgement on other episodes, choice."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neorl_agents.models import (
    HistoryModel,
    HistoryModelSettings,
    LogRows,
    ReplayedPlant,
    fit_history_model,
    log_rows,
    replayed_plant,
)
from neorl_agents.retuning._choice import ChoiceRule, Prediction, choose, predictions
from neorl_agents.retuning._search import SearchSettings, limits_of, search
from neorl_core import InputError, Policy, Spec, Transition
from neorl_core.control import tunable_values, tunables, tuned

LEAST_EPISODES = 8
"""A log of fewer episodes cannot be split into those that are searched and those that judge."""


USUAL_RULE = ChoiceRule()


@dataclasses.dataclass(frozen=True)
class PlantFacts:
    """What is declared of a plant beside its log.

    Attributes:
        rates: Largest change of every action per second; empty for none.
        exogenous: Observations that the controller does not influence, such as weather, demand
            or set-points.
        interlock: From observation and action to what the plant's interlocks leave of it.
        objective: From observation, action and next observation to reward and costs, NaN for what
            is not declared.
    """

    rates: tuple[float, ...] = ()
    exogenous: tuple[str, ...] = ()
    interlock: Any = None
    objective: Any = None


@dataclasses.dataclass(frozen=True)
class RetuneSettings:
    """How a controller is retuned.

    Attributes:
        model: Fit of the plant model.
        search: Search of the numbers.
        rule: When a candidate may be preferred.
        judged: Part of the episodes that neither the model nor the search sees.
        judges: Most of them that are replayed to judge.
        steps: Steps of the episodes that the search may draw from, at least 60 episodes.
        pulls: Weights that draw a search to today's numbers, one search each.
        parts: Parts of the way from today's numbers to those that a search ends with, each a
            candidate.
    """

    model: HistoryModelSettings = dataclasses.field(default_factory=HistoryModelSettings)
    search: SearchSettings = dataclasses.field(default_factory=SearchSettings)
    rule: ChoiceRule = dataclasses.field(default_factory=ChoiceRule)
    judged: float = 0.25
    judges: int = 40
    steps: int = 20_000
    pulls: tuple[float, ...] = (0.01, 0.1)
    parts: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125, 0.0625)


NO_FACTS = PlantFacts()
USUAL = RetuneSettings()


class Change(NamedTuple):
    """One number of a controller before and after.

    Attributes:
        name: What it is.
        unit: Its unit.
        before: Value today.
        after: Value proposed.
    """

    name: str
    unit: str
    before: float
    after: float


class LearnedPlants(NamedTuple):
    """The two learned plants of a log, and its scale.

    Attributes:
        searched: Replays episodes that the model was fitted to.
        judging: Replays others.
        scale: Spread of returns in the log, which gains are measured by.
        rows: The log.
        logged: Logged returns of the episodes that judge, shape ``(episode,)``.
    """

    searched: ReplayedPlant
    judging: ReplayedPlant
    scale: float
    rows: LogRows
    logged: Float[np.ndarray, " episode"]

    @property
    def model(self) -> HistoryModel:
        """The model of both."""
        return self.judging.model


class Retuned(NamedTuple):
    """A retuned controller, or the incumbent where nothing was better.

    Attributes:
        policy: The controller to take.
        chosen: Its name: ``"today"``, or the search and the part of the way, such as ``"a 0.5"``.
        changes: Every number before and after; equal where the incumbent is kept.
        table: Prediction of every candidate.
    """

    policy: Policy
    chosen: str
    changes: tuple[Change, ...]
    table: tuple[Prediction, ...]


TODAY = "today"


def learned_plants(
    log: Transition,
    spec: Spec,
    seed: int,
    facts: PlantFacts = NO_FACTS,
    settings: RetuneSettings = USUAL,
) -> LearnedPlants:
    """Fits a model to three quarters of a log and replays it in two parts.

    Args:
        log: Flat columns in physical units; rows of one episode follow one another.
        spec: Channels, and the limits in force.
        seed: Decides the split and the fit.
        facts: What is declared of the plant.
        settings: Of the model.

    Raises:
        InputError: If the log has too few episodes, lacks a column, or a name is no channel.
    """
    rows = log_rows(log, spec)
    starts = np.unique(rows.start)
    if len(starts) < LEAST_EPISODES:
        raise InputError(
            f"the log has {len(starts)} episodes; a plant model needs at least {LEAST_EPISODES}, "
            "since some must judge what others were searched in: record more, or split long ones"
        )
    shuffled = np.random.default_rng(seed).permutation(starts)
    count = max(2, round(settings.judged * len(starts)))
    judging, fitted = shuffled[:count], shuffled[count:]
    part = _rows_of(rows, np.sort(fitted))
    model = fit_history_model(
        part, spec, jax.random.key(seed), exogenous=facts.exogenous, settings=settings.model
    )
    returns = np.add.reduceat(rows.outcome[:, 0].astype(np.float64), starts)
    judges = judging[: settings.judges]
    scale = float(returns.std()) or 1.0
    rates = np.asarray(facts.rates) * spec.dt if facts.rates else None
    share = max(60, settings.steps // spec.horizon)

    def replay(episodes: np.ndarray) -> ReplayedPlant:
        return replayed_plant(
            model,
            rows,
            episodes,
            rates=rates,
            interlock=facts.interlock,
            objective=facts.objective,
            horizon=min(spec.horizon, int(np.diff(np.append(starts, len(rows.start))).max())),
        )

    return LearnedPlants(
        replay(fitted[:share]),
        replay(judges),
        scale,
        rows,
        returns[np.searchsorted(starts, judges)],
    )


def retune(
    plants: LearnedPlants,
    incumbent: Policy,
    seed: int,
    settings: RetuneSettings = USUAL,
) -> Retuned:
    """Looks for better numbers of a controller, and takes them where other episodes agree.

    The numbers are searched by CMA-ES in the learned plant, on episodes of the fit and in some of
    its networks. Then the end of the search and parts of the way there are candidates: on episodes
    that neither the fit nor the search has seen, in all networks and in the linear part alone,
    :class:`ChoiceRule` says which may be preferred, and the largest lower bound of the gain is
    taken. Where none may, the incumbent stays.

    Args:
        plants: From :func:`learned_plants`.
        incumbent: Controller that runs today; it declares tunable numbers.
        seed: Of the search.
        settings: Of the search and of the choice.

    Returns:
        The controller, what changed, and the predictions.

    Raises:
        InputError: If the incumbent declares no tunable number.
    """
    spec = plants.model.spec
    declared = tunables(incumbent, spec)
    limits = limits_of(spec, plants.rows.outcome[:, 1:])
    episodes = np.arange(plants.searched.n_episodes)
    spread = np.asarray(plants.model.scales.obs[1])
    candidates = {TODAY: incumbent}
    for letter, pull in zip("abcdefgh", settings.pulls, strict=False):
        how = dataclasses.replace(settings.search, pull=pull)
        searched = search(plants.searched, incumbent, episodes, limits, plants.scale, seed, how)
        for share in settings.parts:
            changes = jnp.asarray(share * searched.changes, jnp.float32)
            candidates[f"{letter} {share:g}"] = tuned(incumbent, declared, changes, spread=spread)
    table = predictions(plants.judging, candidates, TODAY, plants.scale, settings.rule)
    table = _without_gaps(table)
    chosen = choose(table, TODAY)
    policy = candidates[chosen]
    values = zip(
        declared,
        tunable_values(incumbent, declared),
        tunable_values(policy, declared),
        strict=True,
    )
    changes = tuple(Change(d.name, d.unit, before, after) for d, before, after in values)
    return Retuned(policy, chosen, changes, table)


def select(
    plants: LearnedPlants,
    policies: Mapping[str, Policy],
    incumbent: str,
    rule: ChoiceRule = USUAL_RULE,
) -> tuple[str, tuple[Prediction, ...]]:
    """The policy of a pool to take, judged without the plant.

    Args:
        plants: From :func:`learned_plants`.
        policies: The pool by name, the incumbent among them.
        incumbent: Name of the one that runs today.
        rule: When another may be preferred.

    Returns:
        The name of the choice, the incumbent's where nothing may be preferred, and the predictions.
    """
    table = predictions(plants.judging, policies, incumbent, plants.scale, rule)
    return choose(table, incumbent), table


def _without_gaps(table: tuple[Prediction, ...]) -> tuple[Prediction, ...]:
    """Refuses a candidate that lies behind a predicted loss on the way to it.

    A good tuning that can be reached only through bad ones is more often a fault of the model.
    """
    today, *parts = table
    checked = []
    for one in parts:
        way, _, part = one.name.partition(" ")
        losses = [
            other
            for other in parts
            if other.name.startswith(f"{way} ")
            and float(other.name.partition(" ")[2]) < float(part)
            and other.gain < 0
        ]
        if losses:
            reason = (
                f"{losses[0].name.partition(' ')[2]} of the way there is predicted to be a loss "
                f"of {-losses[0].gain:.4g}"
            )
            one = dataclasses.replace(one, refusals=(*one.refusals, reason))
        checked.append(one)
    return (today, *checked)


def _rows_of(rows: LogRows, starts: Float[np.ndarray, " episode"]) -> LogRows:
    """The rows of some episodes, numbered anew."""
    kept = np.isin(rows.start, starts)
    number = np.cumsum(kept) - 1
    part = LogRows(*(column[kept] for column in rows))
    return part._replace(start=number[part.start].astype(np.int32))
