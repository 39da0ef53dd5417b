"""A controller retuned from a log, or with a network on top, if unseen episodes agree."""

import dataclasses
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neorl_agents.retuning._choice import (
    AT_ONCE,
    ChoiceRule,
    Prediction,
    Refusal,
    choose,
    replay_factorises,
)
from neorl_agents.retuning._learned_plants import (
    DEFAULT_SETTINGS,
    LearnedPlants,
    RetuneSettings,
    evaluate_candidates,
)
from neorl_agents.retuning._loops_together import sensitivity_together
from neorl_agents.retuning._residual import fit_residual, with_authority
from neorl_agents.retuning._search import SearchResult, limits_of, search
from neorl_core import InputError, Policy
from neorl_core.control import tunable_values, tunables, tuned

DEFAULT_RULE = ChoiceRule()


class Change(NamedTuple):
    """One parameter of a controller before and after.

    Attributes:
        name: Its name.
        unit: Its unit.
        before: Value today.
        after: Proposed value.
    """

    name: str
    unit: str
    before: float
    after: float


class RetuneResult(NamedTuple):
    """A retuned controller, or the incumbent if nothing was better.

    Attributes:
        policy: The controller to use.
        chosen: Its name: ``"today"``, or the search and the part of the way, such as ``"a 0.5"``;
            with proposals the name of one in place of the search.
        changes: Every parameter before and after; equal if the incumbent is kept.
        table: Prediction of every candidate.
    """

    policy: Policy
    chosen: str
    changes: tuple[Change, ...]
    table: tuple[Prediction, ...]


TODAY = "today"


def retune(
    plants: LearnedPlants,
    incumbent: Policy,
    seed: int,
    settings: RetuneSettings = DEFAULT_SETTINGS,
    *,
    proposed: Mapping[str, Float[np.ndarray, " tunable"]] | None = None,
) -> RetuneResult:
    """Searches for better parameters of a controller, and adopts them if unseen episodes agree.

    CMA-ES searches the parameters in the learned plant, on episodes that the model was fitted to
    and in some of its networks. The result of the search, and points on the way to it, are the
    candidates. They are judged on unseen episodes, in all networks and in the linear part.
    :class:`ChoiceRule` refuses some of them; among the rest, the one with the largest lower bound
    of the gain is chosen. If none is left, the incumbent stays. Of a log of running operation,
    loops are refused too that would ring when all of them are closed together.

    Args:
        plants: Result of :func:`learned_plants`.
        incumbent: Controller that runs today; it declares tunable parameters.
        seed: Seed of the search.
        settings: Settings of the search and of the choice.
        proposed: Changes by name, in steps of the tunable parameters, such as those that plants of
            the same type propose. They are then judged in place of the results of a search.

    Returns:
        The controller, what changed, and the predictions.

    Raises:
        InputError: If the incumbent declares no tunable parameter, or another number of them than
            a proposal has.
    """
    spec = plants.model.spec
    declared = tunables(incumbent, spec)
    spread = np.asarray(plants.model.scales.obs[1])
    for name, changes in (proposed or {}).items():
        if np.shape(changes) != (len(declared),):
            raise InputError(
                f"the proposal {name} has the shape {np.shape(changes)}, and the controller "
                f"declares {len(declared)} tunable parameters; give one change for each"
            )
    candidates = {TODAY: incumbent}
    if proposed is None:
        results = _searches(plants, incumbent, seed, settings)
        proposed = {letter: one.changes for letter, one in zip("abcdefgh", results, strict=False)}
    for name, end in proposed.items():
        for share in settings.fractions:
            changes = jnp.asarray(share * np.asarray(end, np.float64), jnp.float32)
            candidates[f"{name} {share:g}"] = tuned(incumbent, declared, changes, spread=spread)
    table = _without_gaps(
        evaluate_candidates(plants, candidates, TODAY, settings.rule, searched=candidates)
    )
    table = _without_ringing(table, candidates, plants, settings.rule)
    chosen = choose(table, TODAY)
    policy = candidates[chosen]
    values = zip(
        declared,
        tunable_values(incumbent, declared),
        tunable_values(policy, declared),
        strict=True,
    )
    changes = tuple(Change(d.name, d.unit, before, after) for d, before, after in values)
    return RetuneResult(policy, chosen, changes, table)


def searched_changes(
    plants: LearnedPlants,
    incumbent: Policy,
    seed: int,
    settings: RetuneSettings = DEFAULT_SETTINGS,
) -> Float[np.ndarray, " tunable"]:
    """The changes that the search of :func:`retune` with its first weight ends with, not judged."""
    first = dataclasses.replace(settings, regularisations=settings.regularisations[:1])
    return _searches(plants, incumbent, seed, first)[0].changes


def _searches(
    plants: LearnedPlants, incumbent: Policy, seed: int, settings: RetuneSettings
) -> tuple[SearchResult, ...]:
    """One search for each weight of the distance from today's parameters.

    Two run at a time, since a search uses one core; in turn if its programs factorise matrices.
    """
    weights = settings.regularisations
    limits = limits_of(plants.model.spec, plants.rows.outcome[:, 1:])
    episodes = np.arange(plants.search_plant.n_episodes)
    compiled, stopped = threading.Event(), threading.Event()

    def after_generation() -> None:
        compiled.set()
        if stopped.is_set():
            raise CancelledError

    def searched(number: int) -> SearchResult:
        if number:  # the program that the first search compiles serves all
            compiled.wait()
        search_settings = dataclasses.replace(settings.search, regularisation=weights[number])
        try:
            return search(
                plants.search_plant, incumbent, episodes, limits, plants.scale, seed,
                search_settings, after_generation=after_generation,
            )  # fmt: skip
        finally:
            compiled.set()

    in_turn = replay_factorises(plants.search_plant, incumbent)
    with ThreadPoolExecutor(1 if in_turn else AT_ONCE) as threads:
        try:
            return tuple(threads.map(searched, range(len(weights))))
        except BaseException:  # such as Ctrl-C, which is not to wait for the other search
            stopped.set()
            raise


class RefineResult(NamedTuple):
    """A controller with a network on top, or without one if nothing was better.

    Attributes:
        policy: The policy to use.
        chosen: ``"today"``, or the fraction of the authority that the network keeps.
        authority: Largest addition to each action, physical units; zero if nothing is added.
        scores: Score of every step of the training.
        table: Prediction of every candidate.
    """

    policy: Policy
    chosen: str
    authority: Float[np.ndarray, " act"]
    scores: tuple[float, ...]
    table: tuple[Prediction, ...]


def refine(
    plants: LearnedPlants,
    controller: Policy,
    seed: int,
    settings: RetuneSettings = DEFAULT_SETTINGS,
) -> RefineResult:
    """Trains a network on top of a controller, and adopts it if unseen episodes agree.

    The network is trained by the gradient through the learned plant, on episodes that the model was
    fitted to and in some of its networks (:func:`fit_residual`). The candidates are this network
    with all and with fractions of its authority. They are judged like those of :func:`retune`, but
    more strictly: the linear part may hardly predict a loss, and the gain must be as large as the
    error of the model in the incumbent's own episodes.

    Args:
        plants: Result of :func:`learned_plants`.
        controller: The controller to extend; it ignores its key.
        seed: Seed of the initial weights and of the sampled episodes.
        settings: Settings of the training and of the choice.

    Returns:
        The policy, its authority, and the predictions.
    """
    limits = limits_of(plants.model.spec, plants.rows.outcome[:, 1:])
    fitted = fit_residual(
        plants.search_plant,
        controller,
        limits,
        plants.scale,
        jax.random.key(seed),
        settings.residual,
    )
    candidates: dict[str, Policy] = {TODAY: controller}
    for part in settings.authorities:
        candidates[f"{part:g}"] = with_authority(fitted.policy, part)
    # Hundreds of weights can exploit errors that the networks share; a search over ten gains seldom
    # does.
    rule = dataclasses.replace(
        settings.rule, contradiction=settings.network_contradiction, trust=settings.network_trust
    )
    table = evaluate_candidates(plants, candidates, TODAY, rule, searched=candidates)
    chosen = choose(table, TODAY)
    part = 0.0 if chosen == TODAY else float(chosen)
    authority = part * np.asarray(fitted.policy.authority, np.float64)
    return RefineResult(candidates[chosen], chosen, authority, fitted.scores, table)


def select(
    plants: LearnedPlants,
    policies: Mapping[str, Policy],
    incumbent: str,
    rule: ChoiceRule = DEFAULT_RULE,
    *,
    logged: Collection[str] = (),
    searched: Collection[str] = (),
) -> tuple[str, tuple[Prediction, ...]]:
    """Chooses a policy from a pool, judged without the plant.

    Args:
        plants: Result of :func:`learned_plants`.
        policies: The pool by name, including the incumbent.
        incumbent: Name of the policy that runs today.
        rule: Conditions for preferring another policy.
        logged: Names of policies that recorded a part of the log themselves.
        searched: Names of policies that were searched in this model, which may not leave the log.

    Returns:
        The name of the choice, the incumbent's if all others are refused, and the predictions.
    """
    table = evaluate_candidates(plants, policies, incumbent, rule, logged, searched)
    return choose(table, incumbent), table


def _without_gaps(table: tuple[Prediction, ...]) -> tuple[Prediction, ...]:
    """Refuses a candidate if a point on the way to it has a predicted loss.

    A good tuning beyond bad ones is, more often than not, an error of the model.
    """
    today, *parts = table
    result = []
    for one in parts:
        letter, _, part = one.name.partition(" ")
        losses = [
            other
            for other in parts
            if other.name.startswith(f"{letter} ")
            and float(other.name.partition(" ")[2]) < float(part)
            and other.gain < 0
        ]
        if losses:
            reason = (
                f"going only {losses[0].name.partition(' ')[2]} of the way to it is predicted to "
                f"lose {-losses[0].gain:.4g}"
            )
            one = dataclasses.replace(one, refused_by=(*one.refused_by, Refusal("way", reason)))
        result.append(one)
    return (today, *result)


def _without_ringing(
    table: tuple[Prediction, ...],
    candidates: Mapping[str, Policy],
    plants: LearnedPlants,
    rule: ChoiceRule,
) -> tuple[Prediction, ...]:
    """Refuses loops of which each may be robust alone, and all of them closed together are not.

    Points on the way from today's loops are candidates as well, so they are detuned together. If
    today's loops are unstable with the model, it says nothing about others.
    """
    if not plants.evaluation_plant.episodes.lead.shape[1]:  # no log of running operation
        return table
    today = sensitivity_together(plants.model, candidates[TODAY])
    if not np.isfinite(today):
        return table
    allowed, result = max(rule.together, today), list(table[:1])
    for one in table[1:]:
        peak = sensitivity_together(plants.model, candidates[one.name])
        if peak > allowed:
            found = f"the peak sensitivity of a loop is {peak:.2f}, today {today:.2f}"
            if np.isinf(peak):
                found = "they are unstable"
            reason = (
                f"its loops ring when all of them are closed: {found}, and at most {allowed:.2f} "
                "is allowed"
            )
            one = dataclasses.replace(
                one, refused_by=(*one.refused_by, Refusal("together", reason))
            )
        result.append(one)
    return tuple(result)
