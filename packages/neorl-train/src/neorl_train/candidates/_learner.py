"""Trained policies, one for each seed of each learner."""

from neorl_train.candidates._family import Family, Made, Material, RunInputs
from neorl_train.judging._pool import LEARNER, Candidate


def _names(inputs: RunInputs) -> tuple[str, ...]:
    return inputs.config.training.algorithms


def _trained(material: Material) -> Made:
    candidates = [
        Candidate(name, LEARNER, policy, (seed,))
        for name, seeds in material.trained.items()
        for seed, policy in seeds.items()
    ]
    return Made(candidates, [])


TRAINED = Family(_names, _trained, always_judged=True)
