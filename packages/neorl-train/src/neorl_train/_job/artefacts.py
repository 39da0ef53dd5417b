"""Files of a run: checkpoints, policy artefacts and the constraints that must guard them."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents import save_policy
from neorl_core import Policy, Spec, Transition
from neorl_core.infrastructure import write_json
from neorl_envs.closed_loop import LoopStep, drawn_start, rollout
from neorl_envs.plants import Plant
from neorl_safety.constraints import (
    Constraints,
    action_constraints,
    constraints_from_dict,
    constraints_to_dict,
    spec_channels,
)
from neorl_safety.guards import GuardSettings, settings_to_dict
from neorl_train.configuration._limits import LimitsConfig
from neorl_train.configuration._sections import Config, config_hash
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import CONSTRAINTS, GUARD, policy_file

PARITY_ROWS = 64
"""Number of observations on which every artefact is checked to act the same elsewhere."""
PARITY_STEPS = 8
"""Number of steps of each episode that supply them if there is no log."""


def hard_constraints(limits: LimitsConfig, spec: Spec) -> Constraints:
    """The box, the rates and the other constraints that a run's guard enforces."""
    names = [channel.name for channel in spec.action]
    action = action_constraints(
        spec,
        [(limits.rate_up[name], limits.rate_down[name]) for name in names],
        low=[limits.low[name] for name in names],
        high=[limits.high[name] for name in names],
    )
    if not limits.further:
        return Constraints(action)
    document = constraints_to_dict(action)
    document["observations"] = [channel._asdict() for channel in spec_channels(spec).obs]
    document["constraints"] += limits.further
    return constraints_from_dict(document, source="limits.further")


def write_guard_files(
    run: RunDirectory,
    constraints: Constraints,
    fallbacks: Mapping[str, Policy],
    settings: GuardSettings,
    spec: Spec,
    observations: np.ndarray,
) -> None:
    """Writes constraints, settings and the fallbacks' artefacts with parity observations."""
    run.fallback.parent.mkdir(exist_ok=True)
    write_json(run.path / CONSTRAINTS, constraints_to_dict(constraints))
    write_json(run.path / GUARD, settings_to_dict(settings, spec))
    for name, policy in fallbacks.items():
        path = run.path / policy_file(name)
        save_policy(path, policy, spec, observations, {"role": "fallback"})


def write_policies(
    run: RunDirectory,
    algorithm: str,
    policies: Mapping[int, Policy],
    spec: Spec,
    observations: np.ndarray,
    metadata: Mapping[str, Any],
) -> dict[str, str]:
    """Writes one artefact per seed; returns the digest of every file by its name."""
    digests = {}
    for seed, policy in policies.items():
        path = run.policy(algorithm, seed)
        path.parent.mkdir(exist_ok=True)
        description = {"role": "learner", "algorithm": algorithm, "seed": seed, **metadata}
        digests[path.name] = save_policy(path, policy, spec, observations, description)
    return digests


def parity_observations(rows: Transition | None, environment: Plant | None) -> np.ndarray:
    """Observations on which every artefact of a run is checked to act the same elsewhere.

    They are taken from the log at regular intervals. Without a log, the plant generates them under
    its reference controller, because unrealistic observations might give non-finite actions.
    """
    if rows is None:
        assert environment is not None  # a run has a plant or a log
        reference = environment.tunings()[environment.reference]
        obs: Any = np.asarray(_visited_observations(environment, reference, jax.random.key(0)))
    else:
        obs = rows.obs
        known = np.flatnonzero(np.asarray(rows.mask))  # a masked row may hold NaN
        return np.asarray(obs[known[evenly_spaced_rows(len(known))]])
    return np.asarray(obs[evenly_spaced_rows(len(obs))])


@jax.jit
def _visited_observations(
    environment: Plant, policy: Policy, key: PRNGKeyArray
) -> Float[Array, "row obs"]:
    """The observations of the first steps of several episodes."""

    def episode(key: PRNGKeyArray) -> Float[Array, "time obs"]:
        start = drawn_start(environment, key)
        start = start._replace(noise_keys=start.noise_keys[:PARITY_STEPS])
        return rollout(environment, policy, start, record=_obs, hold=True).rows

    obs = jax.vmap(episode)(jax.random.split(key, PARITY_ROWS))
    return obs.reshape(-1, obs.shape[-1])


def _obs(loop_step: LoopStep) -> Float[Array, " obs"]:
    return loop_step.obs


def evenly_spaced_rows(n_rows: int) -> np.ndarray:
    """Row numbers spread over a log for the parity check; a shorter log repeats rows."""
    return np.linspace(0, n_rows - 1, PARITY_ROWS).round().astype(np.int64)


def run_checkpoints(
    run: RunDirectory,
    config: Config,
    name: str,
    dataset_hash: str,
    print_line: Callable[[str], None],
) -> Checkpoints:
    """Checkpoints that only the same run, configuration, log and learner can continue from."""
    return Checkpoints(
        run.checkpoints(name),
        identity={
            "run": run.record()["id"],
            "config_hash": config_hash(config),
            "dataset_hash": dataset_hash,
            "algorithm": name,
        },
        interval=config.checkpoints.interval,
        keep=config.checkpoints.keep,
        print_line=print_line,
    )
