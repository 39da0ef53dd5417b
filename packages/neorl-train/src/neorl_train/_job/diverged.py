"""Learners that diverged: recorded, passed over when the run continues, and never compared.

One diverged seed counts for its learner, because a mean over the seeds that survived would flatter
it: the next training may be the one that diverges.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Any

from neorl_core import InputError
from neorl_train.candidates._family import Material
from neorl_train.candidates._learner import learner_of
from neorl_train.runs._directory import DIVERGED, RunDirectory
from neorl_train.training._plan import DivergedError


def record_diverged(directory: RunDirectory, name: str, error: DivergedError) -> dict[str, Any]:
    """Records that a learner diverged; returns all such entries of the record, by learner."""
    entry = {
        "seeds": list(error.seeds),
        "update": error.step,
        "checkpoint": error.checkpoint,
        "error": str(error),
    }
    diverged = {**directory.record().get(DIVERGED, {}), name: entry}
    directory.update_record(**{DIVERGED: diverged})
    return diverged


def require_a_finished_learner(learners: Iterable[str], diverged: Mapping[str, Any]) -> None:
    """Refuses to go on if every learner of a run diverged.

    Raises:
        InputError: Names all of them; of a single one it is the error that ended its training.
    """
    if not diverged or any(name not in diverged for name in learners):
        return
    if len(diverged) == 1:
        raise InputError(next(iter(diverged.values()))["error"])
    each = (
        f"{name} diverged at update {entry['update']} (seed {', '.join(map(str, entry['seeds']))})"
        for name, entry in diverged.items()
    )
    raise InputError(
        f"no learner finished its training: {'; '.join(each)}; start a run with lower learning "
        "rates, or scale the reward"
    )


def without_diverged(material: Material, diverged: Container[str]) -> tuple[Material, str]:
    """Takes diverged learners out of what candidates are made from.

    Returns:
        The material, in which the last learner that finished is the candidate if the configured
        one diverged, and that one's name; empty if the candidate stays.
    """
    config = material.config
    trained, candidate = config.training.algorithms, config.evaluation.candidate
    finished = tuple(name for name in trained if name not in diverged)
    learner = learner_of(candidate, trained)
    lost = learner if learner in diverged else ""
    training = replace(config.training, algorithms=finished)
    evaluation = replace(config.evaluation, candidate=finished[-1] if lost else candidate)
    return material._replace(config=replace(config, training=training, evaluation=evaluation)), lost
