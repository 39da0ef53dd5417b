"""Families of candidates: who supplies them, and what each is made from."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from neorl_agents.loops import LoopReport
from neorl_agents.retuning import LearnedPlants
from neorl_core import InputError, Policy, Spec
from neorl_envs import Dataset
from neorl_envs.plants import Plant
from neorl_train.configuration._sections import CandidateConfig
from neorl_train.judging._pool import Candidate, Pool


class RunInputs(NamedTuple):
    """What is known of a run before anything is written.

    Attributes:
        config: Its configuration, validated, as far as candidates need it.
        environment: Plant on which policies can act; ``None`` if there is only a log.
        dataset: The log, if it is a file; ``None`` for one that the run collects.
    """

    config: CandidateConfig
    environment: Plant | None
    dataset: Dataset | None

    @property
    def tunings(self) -> list[str]:
        """Names of the plant's own controllers; none if there is only a log."""
        return [] if self.environment is None else list(self.environment.tunings())


class Material(NamedTuple):
    """What the candidates of a run are made from.

    Attributes:
        config: Its configuration, resolved, as far as candidates need it.
        spec: Channels, with the limits of the run.
        environment: Plant on which policies can act; ``None`` if there is only a log.
        dataset: Complete log; ``None`` if there is none. Its held-out episodes must not be used;
            ``neorl_train.data.training_sample`` selects the others.
        digests: Digest of every given file when the run began.
        plants: Plant models that were learned from the log; ``None`` if the run learns none.
        incumbent: The controller that runs today, if it can act.
        loops: Its loops that the log declares, judged from the rows; none if nobody asked.
        proposed: Changes of the incumbent's parameters that sites with plants of this type prefer,
            by name; ``None`` outside of a federation.
        trained: Policies of every learner, by name and by seed; empty before the training.
        pool: The candidates so far, in the order of the families.
    """

    config: CandidateConfig
    spec: Spec
    environment: Plant | None = None
    dataset: Dataset | None = None
    digests: Mapping[str, str] = {}
    plants: LearnedPlants | None = None
    incumbent: Policy | None = None
    loops: tuple[LoopReport, ...] = ()
    proposed: Mapping[str, Float[np.ndarray, " tunable"]] | None = None
    trained: Mapping[str, Mapping[int, Policy]] = {}
    pool: Pool = Pool()

    @property
    def seed(self) -> int:
        """Seed of what is made once in a run: the first of ``training.seeds``."""
        return self.config.training.seeds[0]


class Made(NamedTuple):
    """What a family made.

    Attributes:
        candidates: The candidates.
        notes: Sentences for the user: how they were made, and what is left out and why.
    """

    candidates: list[Candidate]
    notes: list[str]


def _no_reason(inputs: RunInputs, name: str) -> str:
    return ""


class Family(NamedTuple):
    """A kind of candidate.

    Attributes:
        names: The names under which a run can produce it; none if it is not configured.
        make: Makes the candidates, which must have names among those and this family.
        refusal: Why a run does not produce a candidate of a certain name that would belong to this
            family; empty if the name is no concern of it.
        always_judged: Whether every candidate is written and evaluated, not only the chosen one.
    """

    names: Callable[[RunInputs], Sequence[str]]
    make: Callable[[Material], Made]
    refusal: Callable[[RunInputs, str], str] = _no_reason
    always_judged: bool = False


def check_family(name: str, family: object) -> None:
    """Refuses an entry of the table that is no family."""
    if not isinstance(family, Family):
        raise TypeError(f"{name} is a {type(family).__name__}, not a neorl_train.candidates.Family")


def require_own_names(name: str, names: Sequence[str], made: Made) -> None:
    """Refuses candidates of a family that it did not announce."""
    for candidate in made.candidates:
        if candidate.family != name or candidate.name not in names:
            raise InputError(
                f"the family {name} made the candidate {candidate.name!r} of the family "
                f"{candidate.family}, but announced {', '.join(names) or 'none'}"
            )
