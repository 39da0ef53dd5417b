"""The candidates of a finished run, read from its directory."""

from pathlib import Path

from neorl_agents import load_policy
from neorl_core import InputError
from neorl_train.judging._pool import Candidate, Pool
from neorl_train.runs._directory import RunDirectory


def stored_pool(path: Path) -> Pool:
    """The candidates that a run evaluated.

    Args:
        path: Directory of the run.

    Raises:
        InputError: If the run has not been evaluated.
        ArtefactError: If an artefact is missing or damaged.
    """
    candidates = []
    for facts in RunDirectory(path.absolute()).record().get("candidates", ()):
        file = Candidate.from_facts(facts, policy=None).file
        candidates.append(Candidate.from_facts(facts, load_policy(path / file).policy))
    if not candidates:
        raise InputError(f"{path} has no candidates yet, because it has not been evaluated")
    return Pool(tuple(candidates))
