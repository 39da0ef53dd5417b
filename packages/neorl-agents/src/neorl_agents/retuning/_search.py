"""Search over the parameters of a controller in a learned plant."""

import dataclasses
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from neorl_agents.models import (
    PredictedEpisodes,
    ReplayedPlant,
    ReplayedStart,
    every_start,
    predicted_episodes,
)
from neorl_core import InputError, Policy, Spec
from neorl_core.control import Tunable, tunables, tuned
from neorl_core.infrastructure import install_line


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    """Settings of the search over a controller's parameters.

    Attributes:
        population: Number of candidates per generation.
        generations: Number of generations.
        episodes: Number of logged episodes for each generation, the same for all candidates.
        members: Number of networks used in the search; the others and the linear part judge the
            result.
        step: Standard deviation of the first generation, in steps of the tunable parameters.
        bound: Largest change of a parameter, in steps.
        penalty: Weight of costs beyond ``budget`` of their limit.
        budget: Fraction of a limit that an episode may use before it is penalised.
        outside: Penalty on leaving the log's data farther than the incumbent does, per ``near``
            times the incumbent's distance.
        near: Factor on the incumbent's distance that is not penalised.
        regularisation: Weight of the mean squared change.
        caution: Weight of the standard deviation between members.
    """

    population: int = 24
    generations: int = 12
    episodes: int = 16
    members: int = 2
    step: float = 0.5
    bound: float = 3.0
    penalty: float = 3.0
    budget: float = 0.4
    outside: float = 1.0
    near: float = 1.1
    regularisation: float = 0.01
    caution: float = 0.5


SLACK = 1e-4
"""Distance from the log's data that counts as zero, in standard deviations per step."""


class Limits(NamedTuple):
    """The cost limits of a plant as arrays.

    Attributes:
        limit: Limits in the unit of each cost, shape ``(cost,)``.
        of_step: Whether a limit bounds every step.
        typical: Typical size of a positive cost in the log, the unit if a limit is zero.
    """

    limit: Float[Array, " cost"]
    of_step: Array
    typical: Float[Array, " cost"]


class SearchResult(NamedTuple):
    """Result of a search.

    Attributes:
        changes: Changes in steps of the tunable parameters.
        scores: Best score of every generation.
    """

    changes: Float[np.ndarray, " tunable"]
    scores: tuple[float, ...]


def limits_of(spec: Spec, cost: Float[np.ndarray, "row cost"]) -> Limits:
    """The limits of a specification, with typical costs from a log."""
    typical = [float(c[c > 0].mean()) if (c > 0).any() else 1.0 for c in np.asarray(cost).T]
    return Limits(
        jnp.asarray([c.limit for c in spec.cost], jnp.float32),
        jnp.asarray([c.per == "step" for c in spec.cost], bool),
        jnp.asarray(typical, jnp.float32),
    )


def excess(predicted: PredictedEpisodes, limits: Limits, budget: float) -> Float[Array, "*start"]:
    """Costs beyond a fraction of their limits, in units of the limits; summed over costs."""

    def of_start(total: Array, worst: Array) -> Array:
        unit = jnp.where(limits.limit > 0, limits.limit, limits.typical)
        allowed = jnp.where(limits.limit > 0, budget, 0.05)
        quantity = jnp.where(limits.of_step, worst, total) / unit
        return jnp.sum(jnp.maximum(quantity - allowed, 0))

    return jnp.vectorize(of_start, signature="(c),(c)->()")(
        predicted.cost_sum, predicted.cost_worst
    )


@partial(jax.jit, static_argnums=(2,))
def predicted_of_changes(
    plant: ReplayedPlant,
    controller: Policy,
    declared: tuple[Tunable, ...],
    changes: Float[Array, "candidate tunable"],
    spread: Float[Array, " obs"],
    starts: ReplayedStart,
) -> PredictedEpisodes:
    """Simulated episodes of every changed controller, shape ``(candidate, start)``."""

    def one(change: Array) -> PredictedEpisodes:
        policy = tuned(controller, declared, change, spread=spread)
        return predicted_episodes(plant, policy, starts)

    return jax.vmap(one)(changes)


def search(
    plant: ReplayedPlant,
    controller: Policy,
    episodes: Int[np.ndarray, " episode"],
    limits: Limits,
    scale: float,
    seed: int,
    settings: SearchSettings = SearchSettings(),
    *,
    after_generation: Callable[[], object] = int,
) -> SearchResult:
    """Searches for better parameters of a controller by CMA-ES in a learned plant.

    The score of a candidate is its mean return divided by ``scale``, minus the penalties of
    :class:`SearchSettings`. All candidates of a generation are tested on the same episodes.

    ``scale`` is the spread of returns in the log. ``after_generation`` is called after every
    generation, and what it raises ends the search. Returns the changes at the centre of the last
    generation.
    """
    declared = tunables(controller, plant.spec)
    rng = np.random.default_rng(seed)
    engine = _engine(len(declared), settings, seed)
    scores = []
    sample = min(settings.episodes, len(episodes))
    for _ in range(settings.generations):
        proposals = np.stack([engine.ask() for _ in range(engine.population_size)])
        starts = every_start(plant, range(settings.members), rng.choice(episodes, sample, False))
        # Today's controller comes first; its distance from the data is what others are held to.
        changes = np.concatenate([np.zeros((1, len(declared))), proposals]).astype(np.float32)
        predicted = predicted_of_changes(
            plant, controller, declared, jnp.asarray(changes), plant.model.scales.obs[1], starts
        )
        score = np.asarray(_scores(predicted, limits, scale, settings))
        score = score - settings.regularisation * np.mean(proposals**2, axis=1)
        engine.tell([(x, -float(y)) for x, y in zip(proposals, score, strict=True)])
        scores.append(float(score.max()))
        after_generation()
    return SearchResult(engine.mean, tuple(scores))


def _engine(count: int, settings: SearchSettings, seed: int) -> Any:
    """CMA-ES at no change; source: Hansen, The CMA evolution strategy, arXiv 1604.00772."""
    try:
        from cmaes import CMA
    except ImportError as error:
        raise InputError(
            f"retuning needs CMA-ES: {install_line('neorl-agents[retuning]')}"
        ) from error
    bounds = np.asarray([[-settings.bound, settings.bound]] * count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CMA(
            mean=np.zeros(count), sigma=settings.step, bounds=bounds, seed=seed,
            population_size=settings.population,
        )  # fmt: skip


@partial(jax.jit, static_argnums=3)
def _scores(
    predicted: PredictedEpisodes, limits: Limits, scale: float, settings: SearchSettings
) -> Float[Array, " candidate"]:
    """The scores of all but the first candidate, which is the incumbent."""
    penalty = settings.penalty * excess(predicted, limits, settings.budget)
    per_start = predicted.returns / scale - penalty
    by_member = per_start.reshape(len(per_start), settings.members, -1).mean(axis=-1)
    score = by_member.mean(axis=1) - settings.caution * by_member.std(axis=1)
    distance = predicted.outside.mean(axis=1)
    excess_distance = distance / (settings.near * distance[0] + SLACK) - 1
    score = score - settings.outside * jnp.maximum(excess_distance, 0)
    return jnp.where(jnp.isfinite(score), score, -1e9)[1:]
