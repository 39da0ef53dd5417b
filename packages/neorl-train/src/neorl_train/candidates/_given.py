"""Policies from files: those that a run is given, and the candidates of a finished run."""

from collections.abc import Mapping
from pathlib import Path

from neorl_agents import PolicyArtefact, load_policy
from neorl_core import InputError, Spec
from neorl_train.candidates._family import Family, Made, Material, RunInputs
from neorl_train.data._source import require_same_channels
from neorl_train.judging._pool import GIVEN, Candidate, Pool
from neorl_train.runs._directory import RunDirectory


def artefact_for(file: Path, spec: Spec) -> PolicyArtefact:
    """A policy from a file, for the channels of a run or a log.

    Raises:
        InputError: If the file is not an artefact or its policy has other channels.
    """
    if not file.is_file():
        raise InputError(f"{file}: there is no such policy artefact")
    artefact = load_policy(file)
    advice = "name a policy of the plant that the log was recorded on"
    require_same_channels(artefact.spec, spec, str(file), advice)
    return artefact


def unchanged_artefact(file: str, spec: Spec, digests: Mapping[str, str]) -> PolicyArtefact:
    """A policy that a run was given as a file.

    Raises:
        InputError: If the file is missing, has other channels, or was changed since.
    """
    artefact = artefact_for(Path(file), spec)
    if artefact.digest != digests.get(file):
        raise InputError(
            f"{file} was changed since the run began; restore the file, or start a new run"
        )
    return artefact


def _names(inputs: RunInputs) -> list[str]:
    return [Path(file).stem for file in inputs.config.evaluation.policies]


def _read(material: Material) -> Made:
    candidates = []
    for file in material.config.evaluation.policies:
        artefact = unchanged_artefact(file, material.spec, material.digests)
        name, seed = Path(file).stem, material.seed
        metadata = {"controller": name, "seed": seed, "given_digest": artefact.digest}
        candidates.append(Candidate(name, GIVEN, artefact.policy, (seed,), file, metadata=metadata))
    return Made(candidates, [])


FILES = Family(_names, _read)


def stored_pool(path: Path) -> Pool:
    """The candidates that a run evaluated.

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
