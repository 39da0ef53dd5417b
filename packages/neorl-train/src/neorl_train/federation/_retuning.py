"""Sites with one type of plant propose tunings to each other, vote on them, and pick alone.

Every site has a controller of its own in force. It searches in the plant model of its own log and
proposes two tunings: what runs there today, and what it found. In the plant model of its own log
every site then predicts each proposal, and says of each whether it is better than what runs at each
of the sites. A site takes nothing that the others together do not prefer to its own controller, and
of the rest only what the episodes of its own log support, which may be nothing.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neorl_agents.retuning import (
    TODAY,
    ChoiceRule,
    LearnedPlants,
    RetuneSettings,
    predictions,
    searched_changes,
)
from neorl_core import InputError, Policy
from neorl_core.control import Tunable, tunable_values, tunables, tuned
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
"""Magnitude of a vote: a half for better, minus a half for worse, zero for equal."""
FARTHEST = 2.0
"""Largest change of a parameter to a proposal, in bounds of the search."""
MEDIAN = "median"
"""Name of the medians of all sites' proposals, which no single site can move beyond the others."""
DEFAULT_SETTINGS = RetuneSettings()
UNMASKED = ("scaled", "flipped", "nan")
"""Faults that change the numbers of an answer, which behind a mask only the site itself can do."""


def position(controller: Policy, declared: Sequence[Tunable]) -> Float[np.ndarray, " tunable"]:
    """Where a tuning is on the axes that all sites share, in steps of the parameters.

    A gain or a time is at its logarithm. A setpoint or a bias is at zero at every site, so that a
    proposal moves it as far as where it was found, from wherever the site's own stands.

    Example:
        >>> from neorl_core.control import Entry, StateFeedback
        >>> gain = (Entry("gain", (0,)),)
        >>> law = StateFeedback(jnp.full((1, 1), 2.0), *(jnp.zeros(1) for _ in range(4)))
        >>> position(law, [Tunable("gain", "", gain, gain, "factor", 0.5)]).round(3).tolist()
        [1.386]
    """
    values = np.abs(tunable_values(controller, declared))
    is_gain = np.asarray([one.kind == "factor" for one in declared]) & (values > 0)
    steps = np.asarray([one.step for one in declared])
    return np.log(values, where=is_gain, out=np.zeros(len(values))) / steps


class RetuningSite:
    """One site. Only this object can access its log; tunings and votes leave it.

    Args:
        name: Name of the site.
        plants: Plant models of its own log.
        controller: The controller that runs there today; it declares tunable parameters.
        settings: Settings of the federation.
        retuning: Settings of the search.
        seed: Seed of the search.
        faults: Simulated faults; behind masks the site sends the changed votes itself, and does
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
        retuning: RetuneSettings = DEFAULT_SETTINGS,
        *,
        seed: int = 0,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.name, self._plants, self._controller = name, plants, controller
        self._retuning, self._seed = retuning, seed
        self.parameters: tuple[Tunable, ...] = tunables(controller, plants.model.spec)
        self.signs = tuple(np.sign(tunable_values(controller, self.parameters)))
        self.today = position(controller, self.parameters)
        self.pairings = Pairings(name) if settings.messages.secure_sum else None
        self.last_error = (0.0, 0.0)
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

    def propose(self) -> Float[np.ndarray, "2 tunable"]:
        """Today's tuning and the one that its own search ends with, on the common axes."""
        found = searched_changes(self._plants, self._controller, self._seed, self._retuning)
        return np.stack([self.today, self.today + found])

    def changes(
        self, proposed: Float[np.ndarray, "... tunable"]
    ) -> Float[np.ndarray, "... tunable"]:
        """The changes from today's tuning to proposed ones, in steps of the parameters."""
        farthest = FARTHEST * self._retuning.search.bound
        return np.clip(proposed - self.today, -farthest, farthest)

    def gains(
        self, proposed: Float[np.ndarray, "proposal tunable"]
    ) -> Float[np.ndarray, " proposal"]:
        """Predicted gains of proposed tunings over today's, in spreads of returns of its log."""
        spread, pool = np.asarray(self._plants.model.scales.obs[1]), {TODAY: self._controller}
        for number, changes in enumerate(self.changes(proposed)):
            pool[f"{number}"] = tuned(
                self._controller, self.parameters, jnp.asarray(changes, jnp.float32), spread=spread
            )
        plant, scale = self._plants.evaluation_plant, self._plants.scale
        table = predictions(plant, pool, TODAY, scale, ChoiceRule())
        return np.asarray([one.gain / scale for one in table[1:]])

    def work(self, start: RoundStart) -> Callable[[], Update]:
        """Votes on all proposals in its own plant model.

        Args:
            start: Number of the round, and the tunings laid flat, shape ``(proposal * tunable,)``:
                first those that run at the sites, then what they found, then the medians of both.
        """
        gains = self.gains(start.parameters.reshape(-1, len(self.parameters)).astype(np.float64))
        votes = votes_of(gains, (len(gains) - 2) // 2)
        self._pending = (start.round, votes)
        return lambda: Update(self.name, start.round, self.rows, () if self.pairings else (votes,))

    def mask(self, start: RoundStart, *, share: float, largest: float, scale: float) -> Update:
        """The masked votes of a round, multiplied by the site's share, for the sites present.

        Args:
            start: The round, with the sites present and the attempt.
            share: Weight of this site in the sum.
            largest: Largest magnitude of a term, to which an honest site cuts.
            scale: Integer steps per unit.
        """
        assert self.pairings is not None
        assert self._pending is not None
        round_, votes = self._pending
        assert round_ == start.round
        term = votes.astype(np.float64) * share
        for fault in self._faults:
            if fault.at(round_):
                largest = np.inf
                term = term * (-fault.factor if fault.kind == "flipped" else fault.factor)
        integers = as_whole(term, largest=largest, scale=scale)
        mask = self.pairings.mask(start.present, start.round, start.attempt, len(votes))
        return Update(self.name, start.round, self.rows, (integers + mask,))


def votes_of(gains: Float[np.ndarray, " proposal"], sites: int) -> Vector:
    """Whether each proposal is better than what runs at each site, laid flat.

    Only the order of the gains counts, so no site weighs more by the size of its numbers. A
    prediction that is not finite is worse than any other.

    Args:
        gains: Predicted gain of every proposal, the ``sites`` first of which run at the sites.
        sites: Number of sites.

    Returns:
        A half, zero or minus a half, shape ``(proposal * site,)``.

    Example:
        >>> votes_of(np.asarray([0.0, 2.0, 1.0]), 2).reshape(3, 2).tolist()
        [[0.0, -0.5], [0.5, 0.0], [0.5, -0.5]]
    """
    gains = np.nan_to_num(gains, nan=-np.inf)
    better = gains[:, None] > gains[None, :sites]
    worse = gains[:, None] < gains[None, :sites]
    return (HALF * (better.astype(np.float32) - worse)).astype(np.float32).ravel()


@dataclasses.dataclass(frozen=True)
class Proposals:
    """Tunings that sites propose to each other, and what they think of them together.

    Attributes:
        parameters: Names of the tunable parameters.
        names: Name of each proposal.
        values: The tunings on the common axes, shape ``(proposal, tunable)``.
        sites: Names of the sites.
        preferred: Combined vote on each proposal against what runs at each site, above zero if it
            is better, shape ``(proposal, site)``.
        records: Records of the rounds.
    """

    parameters: tuple[str, ...]
    names: tuple[str, ...]
    values: Float[np.ndarray, "proposal tunable"]
    sites: tuple[str, ...]
    preferred: Float[np.ndarray, "proposal site"]
    records: tuple[RoundRecord, ...]

    def changes_for(self, site: RetuningSite) -> Mapping[str, Float[np.ndarray, " tunable"]]:
        """The proposals that the sites prefer to what runs at one, as changes from that.

        Give them to :func:`neorl_agents.retuning.retune` at this site.
        """
        column = self.preferred[:, self.sites.index(site.name)]
        changes = site.changes(self.values)
        return {self.names[i]: changes[i] for i in np.flatnonzero(column > 0)}


def federate_retuning(
    sites: Sequence[RetuningSite],
    settings: Federation,
    *,
    seed: int = 0,
    faults: Sequence[Fault] = (),
    watch: Watch = ignore,
    print_line: Callable[[str], None] = print,
    stop: Callable[[], bool] = never,
) -> Proposals | None:
    """Lets all sites propose tunings and vote on those of all.

    The settings' rule combines the votes, of sites or of groups of sites behind masks, so that a
    robust rule bounds what a false site can do. A round in which too few sites answer is repeated.

    Args:
        sites: The sites, with plants of one type and controllers of one kind.
        settings: Rounds, rule and messages.
        seed: Seed of the groups.
        faults: Simulated faults; those of :class:`RetuningSite` are given to it.
        watch: Called after every round with its record.
        print_line: Called with messages for the user.
        stop: Called before every round; the votes end early if it returns true.

    Returns:
        The proposals; ``None`` if no round counted, which ``stop`` alone brings about.

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
    own = np.stack([site.propose() for site in sites], axis=1)  # today's and found, then sites
    values = np.concatenate([*own, np.median(own, axis=1)])
    titles = [*(f"{name}-today" for name in names), *names, f"{MEDIAN}-today", MEDIAN]
    records, failed = [], 0
    for number in range(settings.federation.rounds):
        if stop():
            break
        size = len(values) * len(names)
        votes, record = exchange.ask(number, values.astype(np.float32).ravel(), size)
        watch(record)
        records.append(record)
        failed = failed_rounds(
            failed, record, settings.federation, advice="bring the sites back and repeat the "
            "command", print_line=print_line,
        )  # fmt: skip
        if votes is not None:
            return Proposals(
                tuple(one.name for one in sites[0].parameters), tuple(titles), values,
                tuple(names), votes.reshape(len(values), -1), tuple(records),
            )  # fmt: skip
    return None


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
        for one, sign, other in zip(first.parameters, first.signs, site.signs, strict=True):
            if one.kind == "factor" and sign != other:
                raise InputError(
                    f"{one.name} has another sign at site {site.name} than at {first.name}; only "
                    "controllers that act in the same direction can be retuned together"
                )
