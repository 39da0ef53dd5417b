"""Sites with one type of plant search the gains of their controllers together, and pick alone.

Every site has a controller of its own in force, and all search over the same relative changes. In a
round each site ranks one population of changes in the plant model of its own log, and sends its
ranks. The rounds end with common changes. They are only a proposal: every site searches on around
them, and takes what the episodes of its own log support, which may be nothing.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from neorl_agents.retuning import (
    LearnedPlants,
    Proposer,
    SearchSettings,
    limits_of,
    scores_of_changes,
)
from neorl_core import InputError, Policy
from neorl_core.control import Tunable, tunables
from neorl_train.federation._coordinator import Coordinator
from neorl_train.federation._engine import (
    Exchange,
    RoundRecord,
    Watch,
    failed_rounds,
    ignore,
    never,
)
from neorl_train.federation._messages import Introduction, RoundStart, Update, Vector
from neorl_train.federation._privacy import Pairings, as_whole
from neorl_train.federation._settings import (
    Fault,
    Federation,
    check_faults,
    check_federation,
    check_retuning_rounds,
)

HALF = 0.5
"""Largest magnitude of a rank: the best of a population has a half, the worst minus a half."""
DEFAULT_SEARCH = SearchSettings()
UNMASKED = ("scaled", "flipped", "nan")
"""Faults that change the numbers of an answer, which behind a mask only the site itself can do."""


def centred_ranks(scores: Float[np.ndarray, " candidate"]) -> Vector:
    """The place of every score, evenly spaced from -1/2 for the lowest to 1/2 for the highest.

    Equal scores share the mean of their places. A score that is not finite comes last. So no site
    can weigh more than another by the size of its numbers, and nothing but an order leaves it.

    Example:
        >>> import numpy as np
        >>> centred_ranks(np.asarray([3.0, -1e9, 7.0, 3.0, np.nan])).tolist()
        [0.125, -0.25, 0.5, 0.125, -0.5]
    """
    scores = np.asarray(scores, np.float64)
    places = rankdata(np.where(np.isnan(scores), -np.inf, scores)) - 1
    return (places / max(len(scores) - 1, 1) - HALF).astype(np.float32)


class RetuningSite:
    """One site of a federated search. Only this object can access its log; ranks leave it.

    Args:
        name: Name of the site.
        plants: Plant models of its own log.
        controller: The controller that runs there today; it declares tunable parameters.
        settings: Settings of the federation.
        search: Settings of the search.
        seed: Seed of the episodes on which it ranks.
        faults: Simulated faults; behind masks the site sends the changed numbers itself, and does
            not cut them.

    Raises:
        InputError: If the controller declares no tunable parameter.
    """

    def __init__(
        self,
        name: str,
        plants: LearnedPlants,
        controller: Policy,
        settings: Federation,
        search: SearchSettings,
        *,
        seed: int = 0,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.name, self._plants, self._controller = name, plants, controller
        self._search, self._seed = search, seed
        self.parameters: tuple[Tunable, ...] = tunables(controller, plants.model.spec)
        self.pairings = Pairings(name) if settings.messages.secure_sum else None
        self.last_error = (0.0, 0.0)
        self._limits = limits_of(plants.model.spec, plants.rows.outcome[:, 1:])
        self._faults = [f for f in faults if f.site == name and f.kind in UNMASKED]
        self._pending: tuple[int, Vector] | None = None

    @property
    def rows(self) -> int:
        """Number of rows of its log."""
        return len(self._plants.rows.start)

    def introduce(self) -> Introduction:
        """The channels of its plant and its number of rows; no statistics."""
        return Introduction(self.name, self.rows, self._plants.model.spec, None)

    def restart(self, rounds: int) -> None:
        """Does nothing: a site keeps nothing between rounds but its log."""

    def work(self, start: RoundStart) -> Callable[[], Update]:
        """Ranks the population of a round in its own plant model.

        Args:
            start: Number of the round, and the population laid flat, shape
                ``(candidate * tunable,)``.
        """
        changes = start.parameters.reshape(-1, len(self.parameters)).astype(np.float64)
        scores = self.scores(changes, start.round)
        ranks = centred_ranks(scores - self._search.regularisation * np.mean(changes**2, axis=1))
        self._pending = (start.round, ranks)
        return lambda: Update(self.name, start.round, self.rows, () if self.pairings else (ranks,))

    def scores(
        self, changes: Float[np.ndarray, "candidate tunable"], round_: int
    ) -> Float[np.ndarray, " candidate"]:
        """Scores of a population in its own plant model, on episodes drawn for the round."""
        rng = np.random.default_rng([self._seed, round_])
        plant = self._plants.search_plant
        count = min(self._search.episodes, plant.n_episodes)
        return scores_of_changes(
            plant, self._controller, changes, rng.choice(plant.n_episodes, count, replace=False),
            self._limits, self._plants.scale, self._search,
        )  # fmt: skip

    def mask(self, start: RoundStart, *, share: float, largest: float, scale: float) -> Update:
        """The masked ranks of a round, multiplied by the site's share, for the sites present.

        Args:
            start: The round, with the sites present and the attempt.
            share: Weight of this site in the sum.
            largest: Largest magnitude of a term, to which an honest site cuts.
            scale: Integer steps per unit.
        """
        assert self.pairings is not None
        assert self._pending is not None
        round_, ranks = self._pending
        assert round_ == start.round
        term = ranks.astype(np.float64) * share
        for fault in self._faults:
            if fault.at(round_):
                largest = np.inf
                term = term * (-fault.factor if fault.kind == "flipped" else fault.factor)
        integers = as_whole(term, largest=largest, scale=scale)
        mask = self.pairings.mask(start.present, start.round, start.attempt, len(ranks))
        return Update(self.name, start.round, self.rows, (integers + mask,))


class CommonChanges(NamedTuple):
    """Result of the rounds.

    Attributes:
        names: Names of the tunable parameters.
        changes: Common changes in steps of the parameters, shape ``(tunable,)``; give them to
            :func:`neorl_agents.retuning.retune` at every site.
        records: Records of the rounds.
    """

    names: tuple[str, ...]
    changes: Float[np.ndarray, " tunable"]
    records: tuple[RoundRecord, ...]


def federate_retuning(
    sites: Sequence[RetuningSite],
    settings: Federation,
    search: SearchSettings = DEFAULT_SEARCH,
    *,
    seed: int = 0,
    faults: Sequence[Fault] = (),
    watch: Watch = ignore,
    print_line: Callable[[str], None] = print,
    stop: Callable[[], bool] = never,
) -> CommonChanges:
    """Searches for changes that the logs of all sites rank highly, by CMA-ES on combined ranks.

    One round is one generation. The settings' rule combines the ranks, of sites or of groups of
    sites behind masks, so that a robust rule bounds what a false site can do.

    Args:
        sites: The sites, with plants of one type and controllers of one kind.
        settings: Rounds, rule and messages.
        search: Population, first step and bound of the search.
        seed: Seed of the proposals and of the groups.
        faults: Simulated faults; those of :class:`RetuningSite` are given to it.
        watch: Called after every round with its record.
        print_line: Called with messages for the user.
        stop: Called before every round; the search ends early if it returns true.

    Raises:
        InputError: If settings or sites do not fit together, no package cmaes is installed, or too
            few sites answer in several consecutive rounds.
    """
    names = [site.name for site in sites]
    check_federation(settings, names)
    check_retuning_rounds(settings)
    check_faults([one for one in faults if one.kind not in UNMASKED], names)
    _require_same_parameters(sites)
    masked = settings.messages.secure_sum
    simulated = [one for one in faults if not (masked and one.kind in UNMASKED)]
    coordinator = Coordinator(settings, [site.introduce() for site in sites], seed=seed)
    exchange = Exchange(coordinator, sites, simulated, None)
    parameters = sites[0].parameters
    proposer = Proposer(np.zeros(len(parameters)), search, seed)
    records, failed = [], 0
    for number in range(settings.federation.rounds):
        if stop():
            break
        population = proposer.ask().astype(np.float32)
        ranks, record = exchange.ask(number, population.ravel(), len(population))
        watch(record)
        records.append(record)
        failed = failed_rounds(
            failed, record, settings.federation, advice="bring the sites back and repeat the "
            "command", print_line=print_line,
        )  # fmt: skip
        if ranks is not None:
            proposer.tell(population, ranks)
    return CommonChanges(tuple(one.name for one in parameters), proposer.mean, tuple(records))


def _require_same_parameters(sites: Sequence[RetuningSite]) -> None:
    """Refuses sites whose controllers are tuned by other parameters than the first one's."""
    first, *others = sites
    for site in others:
        if site.parameters != first.parameters:
            raise InputError(
                f"the controller of site {site.name} is tuned by "
                f"{', '.join(one.name for one in site.parameters)}, that of site {first.name} by "
                f"{', '.join(one.name for one in first.parameters)}; only controllers with the "
                "same parameters can be retuned together"
            )
