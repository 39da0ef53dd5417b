"""Controllers that a configuration declares, with the numbers that the control system shows."""

from typing import Any

from neorl_agents.controllers import TrackingPID
from neorl_core import InputError, Policy, Spec
from neorl_train.candidates._family import Family, Made, Material, RunInputs
from neorl_train.candidates._fitted import tuning_text
from neorl_train.configuration._classical import (
    ClassicalConfig,
    declared_controller,
    declared_loops,
)
from neorl_train.configuration._sections import CandidateConfig
from neorl_train.data._experience import training_sample
from neorl_train.judging._pool import Candidate
from neorl_train.judging._wording import number

DECLARED = "declared"
"""Family of the controllers of ``classical.declared``."""


def check_controllers(classical: ClassicalConfig, spec: Spec, *, logged: bool) -> None:
    """Refuses declared controllers that do not fit the channels, before anything is written."""
    for name, records in classical.declared.items():
        declared_controller(name, records, spec)
        without = [loop for loop in declared_loops(name, records) if loop.bias is None]
        if without and not logged:
            raise InputError(
                f"classical.declared.{name}: {without[0].name} declares no bias, and without a log "
                f"no episode shows where it starts; give bias in the unit of "
                f"{without[0].manipulated}"
            )


def _names(inputs: RunInputs) -> tuple[str, ...]:
    return tuple(inputs.config.classical.declared)


def _declare(material: Material) -> Made:
    """The declared controllers; loops without a bias take it from the training episodes."""
    config, spec, dataset = material.config, material.spec, material.dataset
    declared, seed = config.classical.declared, material.seed
    rows = None
    if declared and dataset is not None:
        rows = training_sample(config.data, dataset).transitions
    candidates: list[Candidate] = []
    notes: list[str] = []
    for name, records in declared.items():
        policy = declared_controller(name, records, spec, rows)
        metadata = {"controller": name, "seed": seed}
        candidates.append(Candidate(name, DECLARED, policy, (seed,), metadata=metadata))
        bias = _bias_text(name, config, policy, spec)
        notes.append(f"{name} (declared): {tuning_text(policy, spec)}{bias}")
    return Made(candidates, notes)


def _bias_text(name: str, config: CandidateConfig, policy: Policy, spec: Spec) -> str:
    """The biases that a declared controller takes from the log; empty if it declares all."""
    records = config.classical.declared[name]
    without = {loop.manipulated for loop in declared_loops(name, records) if loop.bias is None}
    loops: Any = policy.loops if isinstance(policy, TrackingPID) else policy
    return "".join(
        f", bias of {channel.name} {number(float(bias))} {channel.unit} (from the first rows of "
        "the log's episodes)"
        for channel, bias in zip(spec.action, loops.bias, strict=True)
        if channel.name in without
    )


DECLARATIONS = Family(_names, _declare)
