"""Candidates, and the pool of them that a run judges."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from neorl_core import InputError, Policy, Spec
from neorl_core.control import Tunable, TunableController
from neorl_core.infrastructure import unknown_name
from neorl_train.runs._directory import file_name, policy_file

LEARNER, GIVEN = "learner", "given"
"""Families of a trained policy, and of one that was supplied from elsewhere."""
COMPARED = "compared"
"""Family of policies that are evaluated beside the candidates, and are none themselves."""
RETUNED, RESIDUAL = "retuned", "residual"
"""Names and families of the retuned controller, and of the one with a network on top."""


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A policy that may be delivered, with everything that is known about it.

    Attributes:
        name: What a user calls it, such as ``"iql"``, ``"retuned"`` or ``"PID 106/1500"``.
        family: The kind of candidate, which says who supplied it: ``"learner"``, ``"average"``,
            ``"fitted"``, ``"imitated"``, ``"declared"``, ``"tuned"``, ``"retuned"``,
            ``"residual"``, ``"given"``, or one of another distribution.
        policy: The policy, in physical units, without a guard; ``None`` in a description alone.
        seeds: Seed of its training, or the seeds that it averages; none if it has no seed.
        description: What it is, for a reader of a report; may be empty.
        from_log: Whether it recorded a part of the log itself.
        metadata: Metadata of its artefact, as plain JSON.
    """

    name: str
    family: str
    policy: Any
    seeds: tuple[int, ...] = ()
    description: str = ""
    from_log: bool = False
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its name in tables: ``"iql-0"`` for one seed, otherwise that of its group."""
        return f"{self.group}-{self.seeds[0]}" if len(self.seeds) == 1 else self.group

    @property
    def group(self) -> str:
        """What the seeds of one learner have in common, without characters that no file may have.

        Example:
            >>> Candidate("PID 106/1500", "tuned", policy=None).group
            'PID 106_1500'
        """
        return file_name(self.name)

    @property
    def title(self) -> str:
        """Its identifier with its description."""
        return f"{self.id} ({self.description})" if self.description else self.id

    @property
    def file(self) -> str:
        """Path of its artefact in a run directory."""
        return policy_file(self.id)

    @property
    def kept(self) -> str:
        """Name of today's controller if this is the same one, retuned without a change."""
        unchanged = self.family == RETUNED and self.metadata.get("changes") == []
        return str(self.metadata.get("controller", "")) if unchanged else ""

    def tunables(self, spec: Spec) -> tuple[Tunable, ...]:
        """The parameters by which an engineer tunes it; none for a network."""
        return self.policy.tunables(spec) if isinstance(self.policy, TunableController) else ()

    def facts(self) -> dict[str, Any]:
        """Everything but the policy, as plain JSON for the record of a run."""
        fields = ("name", "family", "description", "from_log")
        facts = {field: getattr(self, field) for field in fields}
        return {**facts, "seeds": [*self.seeds], "metadata": dict(self.metadata)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], policy: Policy | None) -> "Candidate":
        """A candidate from the record of a run and its policy; ``None`` for its facts alone."""
        return cls(**{**facts, "seeds": tuple(facts["seeds"])}, policy=policy)


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """The candidates of a run, and what runs on the plant today.

    Attributes:
        candidates: The candidates, each with an identifier of its own.
        incumbent: Name in tables of what runs on the plant today; empty if nobody knows.

    Raises:
        InputError: If two candidates have the same identifier.
    """

    candidates: tuple[Candidate, ...] = ()
    incumbent: str = ""

    def __post_init__(self) -> None:
        ids = [candidate.id for candidate in self.candidates]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise InputError(f"two candidates are called {', '.join(twice)}; rename one of them")

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.candidates)

    def __len__(self) -> int:
        return len(self.candidates)

    def __contains__(self, name: str) -> bool:
        return any(candidate.id == name for candidate in self.candidates)

    def __getitem__(self, name: str) -> Candidate:
        """The candidate of an identifier.

        Raises:
            InputError: If there is none; the nearest one is suggested.
        """
        for candidate in self.candidates:
            if candidate.id == name:
                return candidate
        raise unknown_name("candidate", name, self.policies)

    def named(self, name: str) -> tuple[Candidate, ...]:
        """The candidates that a user calls so: one, or one for each seed of a learner."""
        return tuple(candidate for candidate in self.candidates if candidate.name == name)

    def of(self, *families: str) -> "Pool":
        """The candidates of some families alone."""
        return self.only(candidate for candidate in self if candidate.family in families)

    def only(self, candidates: Iterable[Candidate]) -> "Pool":
        """The same pool with other candidates."""
        return dataclasses.replace(self, candidates=tuple(candidates))

    def __or__(self, others: Iterable[Candidate]) -> "Pool":
        """The pool with further candidates behind its own."""
        return self.only((*self.candidates, *others))

    @property
    def policies(self) -> dict[str, Policy]:
        """The policies by identifier."""
        return {candidate.id: candidate.policy for candidate in self.candidates}

    @property
    def facts(self) -> list[dict[str, Any]]:
        """The facts of all candidates, as plain JSON for the record of a run."""
        return [candidate.facts() for candidate in self.candidates]


def as_pool(policies: "Pool | Mapping[str, Policy]") -> Pool:
    """A pool as it is, or policies by name, each of which is a candidate by itself.

    Seeds of one learner are pooled only if their candidates say whose seeds they are.
    """
    if isinstance(policies, Pool):
        return policies
    named = policies.items()
    return Pool(tuple(Candidate(name, GIVEN, policy) for name, policy in named))


def recorded_family(record: Mapping[str, Any], name: str) -> str:
    """The family of a candidate according to the record of its run; empty if it is not there."""
    facts = (Candidate.from_facts(facts, policy=None) for facts in record.get("candidates", ()))
    return next((candidate.family for candidate in facts if candidate.id == name), "")


def check_names(names: Sequence[str], *, reserved: Sequence[str], candidate: str = "") -> None:
    """Refuses an unknown candidate and a policy that has the name of another."""
    if candidate and candidate not in names:
        raise ValueError(
            f"the candidate {candidate!r} is not among the policies: {', '.join(names) or 'none'}"
        )
    clash = sorted(set(names) & set(reserved))
    if clash:
        raise ValueError(
            f"{', '.join(clash)} is already the name of a controller; rename the policy"
        )
