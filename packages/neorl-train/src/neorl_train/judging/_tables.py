"""The layout of the result tables: only numbers with intervals and units."""

import dataclasses
from typing import Literal

from neorl_core import CostPer, Spec
from neorl_core.costs import limit_kind

AmountKind = Literal["term", "travel", "reversals", "beyond"]
Role = Literal["learner", "classical", "behaviour", "log"]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean or a fraction with the ends of its interval, in the unit of the averaged quantity.

    Attributes:
        value: Point estimate.
        low: Lower end of the two-sided interval.
        high: Upper end.
    """

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class CostCell:
    """One cost of one policy.

    Attributes:
        name: Name of the cost channel.
        unit: Unit of every number here.
        limit: Limit per step or for the sum over the episode.
        per: Kind of the limit, either ``"step"`` or ``"episode"``.
        total: Mean over the episodes of the sum over the episode.
        worst: Mean over the episodes of the largest cost of one step.
        largest: Largest value of the limited quantity in any episode.
        violations: Number of episodes that broke the limit.
        violating: Fraction of these episodes, with its exact interval.
        steps_over: Number of steps over the limit per step, or above zero for a limit per episode.
        difference: Paired difference of the limited quantity from the reference; ``None`` if the
            episodes are not paired.
    """

    name: str
    unit: str
    limit: float
    per: CostPer
    total: Estimate
    worst: Estimate
    largest: float
    violations: int
    violating: Estimate
    steps_over: int
    difference: Estimate | None

    @property
    def limited(self) -> Estimate:
        """The estimate of the limited quantity."""
        return limit_kind(self.per).of_episode(total=self.total, worst=self.worst)


@dataclasses.dataclass(frozen=True)
class AmountCell:
    """One amount per episode: a term of the return, or the movement of an actuator.

    Attributes:
        kind: ``"term"``; ``"travel"`` or ``"reversals"`` of an actuator; ``"beyond"``, the time
            beyond a limit.
        name: Name of the term or channel.
        unit: Unit of the amount.
        worth: Reward of one unit of a term; zero otherwise.
        amount: Mean over the episodes.
        difference: Paired difference from the reference; ``None`` if there is none.
    """

    kind: AmountKind
    name: str
    unit: str
    worth: float
    amount: Estimate
    difference: Estimate | None


@dataclasses.dataclass(frozen=True)
class PolicyRow:
    """One policy, with or without guard.

    Attributes:
        name: Name of the policy, for example ``"iql-0"``.
        group: Name of the learner of which it is one seed.
        role: Role: learner, classical controller, behaviour in paired episodes, or recorded log.
        guarded: Whether it acted through the guard.
        n_episodes: Number of episodes.
        returns: Mean return, in the unit of the reward.
        return_std: Standard deviation over the episodes.
        return_min: Smallest return.
        return_max: Largest return.
        length: Mean length in steps.
        length_std: Standard deviation over the episodes.
        costs: Cells of the cost channels, in their order.
        satisfied: Fraction of episodes that broke no limit.
        success: Fraction of successful episodes; ``None`` if the plant does not define success.
        trips: Fraction of episodes that the plant ended without success; ``None`` if unknown.
        n_trips: Number of these trips.
        filtered: Fraction of all steps in which the guard changed the action.
        fallback: Fraction of all steps in which the fallback acted.
        difference: Paired difference of the return from the reference; ``None`` if the episodes are
            not paired.
        least_difference: Smallest paired difference of a single episode; ``None`` likewise.
        amounts: Amounts per episode, for the guarded candidate, the reference and the log; empty
            for all others.
    """

    name: str
    group: str
    role: Role
    guarded: bool
    n_episodes: int
    returns: Estimate
    return_std: float
    return_min: float
    return_max: float
    length: Estimate
    length_std: float
    costs: tuple[CostCell, ...]
    satisfied: Estimate
    success: Estimate | None
    trips: Estimate | None
    n_trips: int
    filtered: float
    fallback: float
    difference: Estimate | None
    least_difference: float | None
    amounts: tuple[AmountCell, ...] = ()


@dataclasses.dataclass(frozen=True)
class PooledCost:
    """One cost of the pooled seeds compared with that of another policy.

    Attributes:
        name: Name of the cost channel.
        unit: Unit of every number here.
        mean: Mean of the limited quantity over seeds and starts.
        other: Mean of the limited quantity of the other policy.
        difference: Paired difference.
    """

    name: str
    unit: str
    mean: Estimate
    other: Estimate
    difference: Estimate


@dataclasses.dataclass(frozen=True)
class PooledRow:
    """All seeds of one algorithm compared with one other policy, in paired episodes.

    Attributes:
        group: Name of the algorithm.
        guarded: Whether its seeds acted through the guard.
        seeds: Names of the pooled policies.
        against: Name of the other policy.
        against_role: Role of the other policy.
        difference: Paired difference of the return: for every start the mean over the seeds minus
            the other policy, bootstrapped over the starts. It applies to these trained policies.
        fresh_seeds: The same mean, with both seeds and starts treated as random (crossed random
            effects): it applies to the next training run. ``None`` with a single seed.
        each_seed: Paired difference of every single seed.
        costs: Comparisons of the cost channels, in their order.
    """

    group: str
    guarded: bool
    seeds: tuple[str, ...]
    against: str
    against_role: Role
    difference: Estimate
    fresh_seeds: Estimate | None
    each_seed: tuple[Estimate, ...]
    costs: tuple[PooledCost, ...]

    @property
    def better(self) -> bool:
        """Whether the return is higher with confidence and no cost's upper bound is higher."""
        return self.difference.low > 0 and all(
            cost.mean.high <= cost.other.high for cost in self.costs
        )


@dataclasses.dataclass(frozen=True)
class EnvironmentScore:
    """What all seeds of one policy score in a Gymnasium environment, in the same episodes.

    Attributes:
        policy: Name of the learner, or of a controller.
        role: ``"learner"`` or ``"classical"``.
        seeds: Number of training seeds; one for a controller.
        returns: Mean undiscounted return. With several seeds its interval treats seeds and episodes
            as random, otherwise episodes alone.
        seed_std: Standard deviation of the seeds' mean returns; NaN for one seed.
        costs: Mean over seeds and episodes of the quantity that each limit bounds.
    """

    policy: str
    role: Role
    seeds: int
    returns: Estimate
    seed_std: float
    costs: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class ResultTables:
    """Everything on which a verdict may depend.

    Attributes:
        environment: Name of the simulator; empty if there was none.
        reason: Reason why there was none.
        spec: Channels, costs with their limits, control period, horizon.
        reward_unit: Unit of rewards and returns.
        level: Confidence level of all intervals, in (0.5, 1).
        n_starts: Number of paired episodes.
        candidate: Name of the policy that would be exported, with its guard.
        reference: Name of the controller to beat.
        rows: Rows of every policy, with and without guard.
        pooled: Rows of every algorithm, guard setting and other policy.
        episode_margin: Margin for the fraction of episodes over a limit: its upper bound may exceed
            the reference's fraction by at most this; infinite for no requirement on single
            episodes.
        judge: Name of the Gymnasium environment in which the policies of a log were scored, without
            guard; empty if there was none.
        scores: Scores in that environment, pooled over seeds.
        kept: Name of today's controller if the candidate is the same one without a change.
    """

    environment: str
    reason: str
    spec: Spec
    reward_unit: str
    level: float
    n_starts: int
    candidate: str
    reference: str
    rows: tuple[PolicyRow, ...]
    pooled: tuple[PooledRow, ...]
    episode_margin: float
    judge: str = ""
    scores: tuple[EnvironmentScore, ...] = ()
    kept: str = ""

    def row(self, name: str, *, guarded: bool) -> PolicyRow:
        """The row of a policy.

        Raises:
            ValueError: If there is none; the message lists the known names.
        """
        for row in self.rows:
            if row.name == name and row.guarded == guarded:
                return row
        known = ", ".join(sorted({row.name for row in self.rows if row.guarded == guarded}))
        how = "guarded" if guarded else "unguarded"
        raise ValueError(
            f"there are no {how} results of {name!r}; known policies: {known or 'none'}"
        )
