"""Files of a run: checkpoints, policy artefacts, and the guard of each, written and read."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents import Algorithm, ArtefactError, load_policy, save_policy
from neorl_agents.artefact import kind_of
from neorl_agents.learning import require_policy
from neorl_core import InputError, Policy, Spec, Transition, as_arrays
from neorl_core.infrastructure import write_json
from neorl_core.statistics import range_statistics
from neorl_envs.closed_loop import LoopStep, drawn_start, rollout
from neorl_envs.plants import Plant
from neorl_safety.constraints import (
    Constraints,
    action_constraints,
    constraints_from_dict,
    constraints_to_dict,
    spec_channels,
)
from neorl_safety.guards import GuardSettings, settings_from_dict, settings_to_dict
from neorl_train.configuration._guard import LimitsConfig
from neorl_train.configuration._sections import CheckpointConfig
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.runs._directory import (
    CONSTRAINTS,
    FALLBACK,
    GUARD,
    VERDICT,
    RunDirectory,
    policy_file,
)

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


def require_storable(name: str, learner: Algorithm, spec: Spec) -> None:
    """Refuses a learner whose policy no file can hold, before it is trained.

    Its state is traced and not computed, so this needs no log.

    Args:
        name: Its name in the configuration.
        learner: The learner.
        spec: Channels of the run.

    Raises:
        InputError: If no kind of policy has the class of its policy, or that cannot act.
    """
    statistics, policies = range_statistics(spec), []

    def begin(key: PRNGKeyArray) -> tuple[()]:
        parts = {part: as_arrays(fit.learner) for part, fit in learner.fits().items()}
        context = {part: fitted.init(spec, statistics, key) for part, fitted in parts.items()}
        state = as_arrays(learner).init(spec, statistics, key, context=context or None)
        policies.append(require_policy(learner, state, spec))
        return ()

    try:
        jax.eval_shape(begin, jax.random.key(0))
        kind_of(policies[0])
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        return  # an initial state that depends on values is seen after the training alone
    except TypeError as error:
        raise InputError(f"{name}: {error}") from error


def write_policies(
    run: RunDirectory,
    algorithm: str,
    policies: Mapping[int, Policy],
    spec: Spec,
    observations: np.ndarray,
    metadata: Mapping[str, Any],
) -> dict[str, str]:
    """Writes one artefact per seed; returns the digest of every file by its name.

    Raises:
        InputError: If no kind of policy has the class of one.
    """
    digests = {}
    for seed, policy in policies.items():
        path = run.policy(algorithm, seed)
        path.parent.mkdir(exist_ok=True)
        description = {"role": "learner", "algorithm": algorithm, "seed": seed, **metadata}
        try:
            digests[path.name] = save_policy(path, policy, spec, observations, description)
        except TypeError as error:
            raise InputError(f"{error}, then resume the run") from error
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
    settings: CheckpointConfig,
    config_hash: str,
    name: str,
    dataset_hash: str,
    print_line: Callable[[str], None],
) -> Checkpoints:
    """Checkpoints that only the same run, configuration, log and learner can continue from."""
    return Checkpoints(
        run.checkpoints(name),
        identity={
            "run": run.record()["id"],
            "config_hash": config_hash,
            "dataset_hash": dataset_hash,
            "algorithm": name,
        },
        interval=settings.interval,
        keep=settings.keep,
        print_line=print_line,
        best=settings.best,
    )


MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True)
class PolicyUnderTest:
    """A policy and all parts of its guard.

    Attributes:
        name: For example ``"iql-0"``.
        policy: The policy without its guard.
        spec: Its channels, with the cost limits of the run.
        constraints: Limits that its guard enforces.
        fallbacks: Fallbacks by name.
        settings: Monitors and supervisor.
        source: Name of the plant, or file of the log, on which it was trained.
        constants: Factors on the constants of that plant.
        run: Directory of the run.
    """

    name: str
    policy: Policy
    spec: Spec
    constraints: Constraints
    fallbacks: dict[str, Policy]
    settings: GuardSettings
    source: str
    constants: dict[str, float]
    run: Path


def read_policy_under_test(path: Path, policy: str = "") -> PolicyUnderTest:
    """Finds the policy that a path refers to.

    Args:
        path: A run directory (its candidate), an artefact in a run, or a bundle in a run (the
            exported policy).
        policy: Name of another policy of the run.

    Returns:
        The policy with its guard.

    Raises:
        InputError: If the path is none of these, a part is missing or damaged, or the bundle was
            not exported from the artefacts beside it.
    """
    run, name = _locate(path)
    name = policy or name
    try:
        artefact = load_policy(run / policy_file(name))
        guard = _json(run / GUARD)
        records = guard.get("monitors", {}).get("monitors", [])
        needed = {
            str(policy_name) for record in records for policy_name in record.get("policies", ())
        }
        policies = {
            policy_name: load_policy(run / policy_file(policy_name)).policy
            for policy_name in sorted(needed)
        }
        settings = settings_from_dict(guard, artefact.spec, policies, str(run / GUARD))
        fallbacks = {
            policy_name: load_policy(run / policy_file(policy_name)).policy
            for policy_name in settings.fallbacks
        }
    except ArtefactError as error:
        raise InputError(f"cannot use a policy of {run}: {error}") from error
    return PolicyUnderTest(
        name=name,
        policy=artefact.policy,
        spec=artefact.spec,
        constraints=constraints_from_dict(_json(run / CONSTRAINTS), str(run / CONSTRAINTS)),
        fallbacks=fallbacks,
        settings=settings,
        source=str(artefact.metadata.get("source", "")),
        constants=dict(artefact.metadata.get("constants", {})),
        run=run,
    )


def _locate(path: Path) -> tuple[Path, str]:
    """The run that contains a path, and the policy that it names."""
    absolute = path.absolute()
    if (absolute / MANIFEST).is_file():
        return _of_bundle(absolute)
    if absolute.suffix == ".safetensors" and absolute.is_file():
        run = absolute.parent.parent
        RunDirectory(run).record()
        return run, absolute.stem
    if absolute.is_dir():
        RunDirectory(absolute).record()
        return absolute, str(_json(absolute / VERDICT).get("candidate", FALLBACK))
    raise InputError(
        f"{path} is not a run, a policy artefact or a bundle; give one of these, for example "
        "runs/0001"
    )


def _of_bundle(bundle: Path) -> tuple[Path, str]:
    """The run that contains a bundle; the bundle itself contains only the guarded program."""
    run = bundle.parent
    manifest = _json(bundle / MANIFEST)
    try:
        provenance = manifest["provenance"]["policy"]
        name, digest = Path(str(provenance["file"])).stem, provenance["digest"]
    except (KeyError, TypeError) as error:
        raise InputError(f"{bundle} has a damaged manifest; export it again") from error
    file = run / policy_file(name)
    if not file.is_file():
        raise InputError(
            f"{bundle} contains only the guarded program, and a comparison without the filter "
            f"needs the run that it was exported from, but {file} does not exist; restore that run"
        )
    if load_policy(file).digest != digest:
        raise InputError(
            f"{bundle} was not exported from {file}; give the run that it was exported from"
        )
    if _json(run / CONSTRAINTS) != manifest["constraints"]:
        raise InputError(
            f"{bundle} and {run / CONSTRAINTS} have different constraints; export the bundle again"
        )
    return run, name


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path}: there is no such file; give a finished run, which {path.parent} may not be"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); restore it") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is damaged: it does not contain a JSON object; restore it")
    return content
