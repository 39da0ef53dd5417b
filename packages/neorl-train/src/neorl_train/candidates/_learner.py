"""Trained policies, one for each seed of each learner, and the averages of their seeds."""

from neorl_agents.policies import average_policy
from neorl_core import InputError
from neorl_train.candidates._family import Family, Made, Material, RunInputs
from neorl_train.judging._pool import LEARNER, Candidate


def _names(inputs: RunInputs) -> tuple[str, ...]:
    return inputs.config.training.algorithms


def _take_trained(material: Material) -> Made:
    candidates = [
        Candidate(name, LEARNER, policy, (seed,))
        for name, seeds in material.trained.items()
        for seed, policy in seeds.items()
    ]
    return Made(candidates, [])


TRAINED = Family(_names, _take_trained, always_judged=True)


AVERAGE = "average"
"""Family of the averages of a learner's seeds."""


def average_name(learner: str) -> str:
    """The name of the average of a learner's seeds, ``"iql-mean"`` for ``"iql"``."""
    return f"{learner}-mean"


def learner_of(candidate: str, learners: tuple[str, ...]) -> str:
    """The learner whose seeds a candidate is or averages; empty if it is another candidate."""
    return next((name for name in learners if candidate in (name, average_name(name))), "")


def _averages(inputs: RunInputs) -> list[str]:
    several = len(inputs.config.training.seeds) > 1
    return [average_name(name) for name in inputs.config.training.algorithms] if several else []


def _no_average(inputs: RunInputs, name: str) -> str:
    if name not in map(average_name, inputs.config.training.algorithms) or _averages(inputs):
        return ""
    return (
        "the average of several seeds, and training.seeds has one; give two or more with "
        "--training.seeds 0 1"
    )


def _average(material: Material) -> Made:
    """The averages; a learner whose actions cannot be averaged is named in a note."""
    seeds = material.config.training.seeds
    candidates: list[Candidate] = []
    notes: list[str] = []
    for learner in material.config.training.algorithms if len(seeds) > 1 else ():
        try:
            policy = average_policy([material.trained[learner][seed] for seed in seeds])
        except InputError as error:
            notes.append(f"the seeds of {learner} cannot be averaged: {error}")
            continue
        metadata = {"algorithm": learner, "seeds": [*seeds]}
        text = f"mean of {len(seeds)} seeds"
        candidates.append(
            Candidate(average_name(learner), AVERAGE, policy, seeds, text, metadata=metadata)
        )
    return Made(candidates, notes)


AVERAGED = Family(_averages, _average, _no_average)
