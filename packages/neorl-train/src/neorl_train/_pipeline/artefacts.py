"""What leaves a run: policy artefacts and the constraints they must run behind."""

import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from neorl_agents import save_policy
from neorl_core import Policy, Spec, Transition, highs, lows
from neorl_core.boundary import write_json
from neorl_core.control import ConstantPolicy
from neorl_envs import Dataset
from neorl_safety.constraints import ActionConstraints, action_constraints, constraints_to_dict
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import CONSTRAINTS


def hard_constraints(environment: Any, spec: Spec) -> ActionConstraints:
    """The box of the specification with the plant's rates; without a plant the box alone."""
    if environment is None:
        return action_constraints(spec)
    rates = [None if math.isinf(rate) else rate for rate in environment.action_rates()]
    return action_constraints(spec, rates)


def fallback_policy(environment: Any, dataset: Dataset) -> Policy:
    """The plant's reference controller; without a plant the mean logged action, held."""
    if environment is not None:
        return environment.tunings()[environment.reference]
    mean = np.asarray(dataset.transitions.action, np.float64).mean(axis=0)
    held = np.clip(mean, lows(dataset.spec.action), highs(dataset.spec.action))
    return ConstantPolicy(jnp.asarray(held, jnp.float32))


def write_guard_files(
    run: RunDirectory, constraints: ActionConstraints, fallback: Policy, dataset: Dataset
) -> None:
    """Writes the constraints and the artefact of the fallback."""
    run.fallback.parent.mkdir(exist_ok=True)
    write_json(run.path / CONSTRAINTS, constraints_to_dict(constraints))
    observations = parity_observations(dataset.transitions)
    save_policy(run.fallback, fallback, dataset.spec, observations, {"role": "fallback"})


def write_policies(
    run: RunDirectory,
    algorithm: str,
    policies: Mapping[int, Policy],
    dataset: Dataset,
    metadata: Mapping[str, Any],
) -> dict[str, str]:
    """Writes one artefact for each seed.

    Args:
        run: Where to.
        algorithm: Its name.
        policies: By seed.
        dataset: Gives the observations on which parity is proved.
        metadata: What travels with each, as plain JSON.

    Returns:
        Digest of every file, by its name.
    """
    observations = parity_observations(dataset.transitions)
    digests = {}
    for seed, policy in policies.items():
        path = run.policy(algorithm, seed)
        path.parent.mkdir(exist_ok=True)
        about = {"role": "learner", "algorithm": algorithm, "seed": seed, **metadata}
        digests[path.name] = save_policy(path, policy, dataset.spec, observations, about)
    return digests


def parity_observations(rows: Transition, count: int = 64) -> np.ndarray:
    """Observations spread over the log, to prove parity on; the log repeats if it is shorter."""
    positions = np.linspace(0, len(rows.obs) - 1, count).round().astype(np.int64)
    return np.asarray(rows.obs)[positions]
