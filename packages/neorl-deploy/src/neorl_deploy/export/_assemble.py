"""Second stage of an export: assembles the bundle's files and its manifest."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neorl_deploy.bundle import _files as bundle_files
from neorl_deploy.bundle._document_heads import head
from neorl_deploy.bundle._manifest import KIND, VERSION, ArrayEntry
from neorl_deploy.bundle._strict_json import dump_canonical, dump_compact
from neorl_deploy.bundle._test_vectors import sequence_vectors, single_vectors, vector_archive
from neorl_deploy.export._read import GuardedParts, entries
from neorl_deploy.export._reference import Reference
from neorl_deploy.export._rounding import perturbed_observations
from neorl_deploy.export._stablehlo import OUTPUTS, Exported
from neorl_deploy.training_run._run import Run
from neorl_deploy.training_run._summaries import data_hash, evaluation_summary, trim

if TYPE_CHECKING:
    from neorl_agents import PolicyArtefact
    from neorl_core import Spec

VERSIONED = ("neorl-core", "neorl-safety", "neorl-agents", "neorl-deploy", "jax", "jaxlib", "numpy")
"""Distributions whose versions are recorded in the provenance."""

Sections = dict[str, dict[str, np.ndarray]]


def answered_vectors(reference: Reference, candidate: PolicyArtefact) -> Sections:
    """Test inputs, including extreme cases, with the training side's answers, by section."""
    obs, action = entries(candidate.spec.obs), entries(candidate.spec.action)
    single_obs, single_sent = single_vectors(obs, action, candidate.parity_obs)
    single_actions, single_flags = reference.single(single_obs, single_sent)
    perturbations = perturbed_observations(obs, single_obs)
    single_perturbed = [
        reference.single(rows, single_sent, seed)[0] for seed, rows in perturbations
    ]
    sequence_obs, overrides = sequence_vectors(obs, action)
    sent, actions, flags = reference.sequence(sequence_obs, overrides)
    perturbations = perturbed_observations(obs, sequence_obs)
    perturbed = [reference.sequence(rows, overrides, seed)[1] for seed, rows in perturbations]
    return {
        "single": _section(single_obs, single_sent, single_actions, single_flags, single_perturbed),
        "sequence": _section(sequence_obs, sent, actions, flags, perturbed),
    }


def assembled_files(run: Run, exported: Exported, vectors: Sections) -> dict[str, bytes]:
    """The sealed files of a bundle by name, except for the manifest."""
    return {
        bundle_files.STEP: exported.step,
        bundle_files.INITIAL_CARRY: exported.initial_carry,
        bundle_files.TEST_VECTORS: vector_archive(vectors),
        bundle_files.CONSTRAINTS: dump_canonical(run.constraints),
        bundle_files.GUARD: dump_compact(run.guard),
        bundle_files.VERDICT: dump_canonical(run.verdict),
        bundle_files.EVALUATION: dump_compact(run.evaluation),
    }


def assembled_manifest(
    run: Run, guarded: GuardedParts, carry: tuple[ArrayEntry, ...]
) -> dict[str, Any]:
    """The manifest of a bundle, before programs, parity and signature are known."""
    from neorl_core import spec_to_dict
    from neorl_safety.constraints import describe_constraints
    from neorl_safety.filters import Flag, Limit

    return {
        **head(KIND, VERSION),
        "spec": spec_to_dict(guarded.spec),
        "programs": None,
        "carry": [dataclasses.asdict(entry) for entry in carry],
        "flags": {(flag.name or "").lower(): int(flag) for flag in Flag},
        "limits": {(limit.name or "").lower(): int(limit) for limit in Limit},
        "constraints": run.constraints,
        "constraint_words": describe_constraints(guarded.constraints),
        "guard": _guard_entry(run, guarded),
        "provenance": {
            "run": run.name,
            "data_hash": data_hash(run.record),
            "policy": _artefact_entry(guarded.candidate, run.candidate),
            "fallback": _artefact_entry(guarded.fallback, run.fallback),
            "record": trim(run.record),
            "versions": {name: importlib.metadata.version(name) for name in VERSIONED},
        },
        "evaluation": evaluation_summary(run.evaluation),
        "verdict": run.verdict,
        "parity": None,
        "signature": None,
    }


def programs_entry(
    exported: Exported, files: Mapping[str, bytes], why_not: str = ""
) -> dict[str, Any]:
    """The manifest's entry about the programs' calling convention and the additional forms."""
    return {
        "forms": [name for name, parts in bundle_files.FORMS.items() if parts[0] in files],
        "without_numpy": why_not,
        "platforms": list(exported.platforms),
        "calling_convention": exported.calling_convention,
        "inputs": ["*carry", "obs", "last_sent"],
        "outputs": ["*carry", *OUTPUTS],
    }


def _guard_entry(run: Run, guarded: GuardedParts) -> dict[str, Any]:
    """The part of ``guard.json`` that the manifest repeats: all but the monitors' parameters."""
    from neorl_safety.guards import describe_settings

    fields = ("kind", "name", "false_alarms", "episodes")
    monitors = run.guard["monitors"]["monitors"]
    return {
        **{name: run.guard[name] for name in ("supervisor", "fallbacks", "max_age")},
        "monitors": [{name: monitor[name] for name in fields} for monitor in monitors],
        "words": describe_settings(guarded.settings, guarded.spec),
    }


def _section(
    obs: np.ndarray,
    last_sent: np.ndarray,
    action: np.ndarray,
    flags: np.ndarray,
    perturbed: list[np.ndarray],
) -> dict[str, np.ndarray]:
    """One section; ``rounding`` is how far actions move when the inputs move by their last bit."""
    rounding = np.fmax.reduce([np.abs(other - action) for other in perturbed])
    columns = {"obs": obs, "last_sent": last_sent, "action": action}
    return {**columns, "rounding": rounding, "flags": flags}


def _artefact_entry(artefact: PolicyArtefact, path: Path) -> dict[str, Any]:
    return {
        "file": f"policies/{path.name}",
        "kind": artefact.kind,
        "words": _policy_text(artefact),
        "digest": artefact.digest,
        "metadata": trim(artefact.metadata),
    }


def _policy_text(artefact: PolicyArtefact) -> str:
    """Describes what a constant policy holds, or the loops and interlocks of a PID; else empty."""
    spec = artefact.spec
    policy: Any = artefact.policy  # guaranteed by the kind
    if artefact.kind == "constant":
        held = zip(spec.action, policy.action, strict=True)
        values = ", ".join(f"{c.name} {_number(value)} {c.unit}" for c, value in held)
        return f"always {values}"
    if artefact.kind == "pid":
        loops = [
            f"{spec.action[i].name} holds {spec.obs[j].name} at {_number(setpoint)} "
            f"{spec.obs[j].unit}"
            for i, (j, setpoint) in enumerate(zip(policy.measured, policy.setpoint, strict=True))
        ]
        return "; ".join([*loops, *_interlock_text(policy, spec)])
    return ""


def _interlock_text(bank: Any, spec: Spec) -> Iterator[str]:
    """The caps that a bank of PID loops applies to its outputs; its setpoints do not show them."""
    outputs, inputs = bank.override_output, bank.override_measured
    numbers = zip(bank.override_cap, bank.override_below, strict=True)
    for i, j, (cap, below) in zip(outputs, inputs, numbers, strict=True):
        output, measured = spec.action[i], spec.obs[j]
        yield (
            f"{output.name} at most {_number(cap)} {output.unit} while {measured.name} is below "
            f"{_number(below)} {measured.unit} or lost"
        )


def _number(value: Any) -> str:
    return f"{float(value):g}"
