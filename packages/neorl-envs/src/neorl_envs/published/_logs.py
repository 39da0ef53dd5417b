"""The table of published logs, what determines a log, and the comparison with the published one."""

import dataclasses
import functools
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from neorl_core import InputError, spec_to_dict
from neorl_core.infrastructure import check_head
from neorl_envs.blocks._constants import named_constants
from neorl_envs.blocks._limits import Limit
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.recording._behaviour import quality

# Description of the numerical environment, which determines the last bits of a computation.


SETS = ("avx512f", "avx2", "avx", "sse4_2")
"""Instruction sets of x86, widest first."""
HARMLESS = ("--xla_cpu_multi_thread_eigen", "--xla_force_host_platform_device_count")
"""Flags that change the speed of a computation but not its result, as a test verifies."""


def numerical_environment() -> str:
    """Compiler, device, instruction set and optimisation, on which the bits of a result depend.

    Returns:
        A description such as ``"jaxlib 0.10.2, cpu x86_64 avx512f, optimised"``.

    Example:
        >>> numerical_environment().startswith("jaxlib ")
        True
    """
    least = jax.config.read("jax_disable_most_optimizations")
    words = [f"jaxlib {metadata.version('jaxlib')}", _device(), "plain" if least else "optimised"]
    flags = [
        flag
        for flag in sorted(os.environ.get("XLA_FLAGS", "").split())
        if flag.partition("=")[0] not in HARMLESS
    ]
    return ", ".join(words + flags)


def _device() -> str:
    device = jax.devices()[0]
    if device.platform != "cpu":
        return f"{device.platform} {device.device_kind}"
    return f"cpu {platform.machine().lower()} {_instructions()}".rstrip()


def _instructions(path: Path = Path("/proc/cpuinfo")) -> str:
    """The widest known instruction set; empty if the system does not report it."""
    try:
        text = path.read_text()
    except OSError:
        return ""
    lines = [line for line in text.splitlines() if line.startswith("flags")]
    known = set(lines[0].split()) if lines else set()
    return next((name for name in SETS if name in known), "")


# Digest of everything that determines a generated log, comparable without a simulation.


DIGITS = 6
"""Significant digits of numbers in the digest, fewer than those of float32."""


def settings_digest(env: Any, quality_name: str, *, seed: int, n_steps: int, spread: float) -> str:
    """SHA-256 over what determines a log: plant, declarations, parameters, controllers, operators.

    Numbers are rounded to six significant digits, so that the digest is the same on every machine.
    It does not include the code of the physics.

    Args:
        env: A plant.
        quality_name: See :func:`neorl_envs.recording.quality`.
        seed: Seed of the log.
        n_steps: Smallest number of rows.
        spread: Relative spread of the sampled parameters.

    Returns:
        ``"sha256:"`` followed by 64 hexadecimal digits.

    Example:
        >>> import neorl_envs
        >>> env = neorl_envs.make("DMSD-v0")
        >>> one = settings_digest(env, "medium", seed=0, n_steps=100, spread=0.15)
        >>> one == settings_digest(env, "medium", seed=1, n_steps=100, spread=0.15)
        False
    """
    policies, plan = quality(env, quality_name)
    settings = {
        "plant": env.name,
        "spec": spec_to_dict(env.spec),
        "parameters": _parameters(env),
        "controllers": {name: _plain(policy) for name, policy in policies.items()},
        "operators": _plain(plan),
        "seed": seed,
        "steps": n_steps,
        "spread": spread,
    }
    text = json.dumps(settings, sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _plain(tree: Any) -> list[list[Any]]:
    """Paths, shapes and numbers of all arrays of a tree."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [
        [jax.tree_util.keystr(path), list(np.shape(leaf)), _numbers(leaf)] for path, leaf in leaves
    ]


def _numbers(leaf: Any) -> list[str]:
    # Adding zero turns minus zero into zero.
    return [f"{number + 0.0:.{DIGITS}g}" for number in np.asarray(leaf, np.float64).ravel()]


def _parameters(env: Any) -> Any:
    """The declarations of a plant, from which all else is computed, or else its parameters."""
    if not hasattr(env, "constants"):
        return _plain(env.default_params())
    constants = [
        [name, _numbers(value), c.spread] for name, c, value in named_constants(env.constants)
    ]
    devices = [dataclasses.asdict(device) for device in (*env.instruments, *env.actuators)]
    return {
        "constants": constants,
        "devices": devices,
        "initial": _plain(env.initial),
        "initial_spread": _plain(env.initial_spread),
        "limits": [_limit_record(limit) for limit in env.limits],
    }


def _limit_record(limit: Limit) -> dict[str, Any]:
    """The declaration of a limit without its unit, which affects no row."""
    return {name: x for name, x in dataclasses.asdict(limit).items() if name != "unit"}


# The committed table of published logs.


VERSION = 1
SPREAD = 0.15
"""Relative spread of the sampled parameters in all published logs."""
SMALL = 2_000
SIZES: Mapping[str, int] = {
    "ChemicalReactor-v0": 1_000_000,
    "RobotAssembly-v0": 2_000_000,
    "HVACControl-v0": 1_500_000,
    "WaterTreatment-v0": 800_000,
    "SteelAnnealing-v0": 1_200_000,
    "PowerGrid-v0": 3_000_000,
    "SupplyChain-v0": 2_500_000,
}
"""Number of rows of the full logs; 100,000 for plants that are not listed."""


class PublishedLog(NamedTuple):
    """Record of one published log.

    Attributes:
        plant: Name of the plant.
        quality: See :func:`neorl_envs.recording.quality`.
        seed: Seed of the log.
        steps: Requested number of rows.
        settings: Digest from :func:`settings_digest`.
        rows: Actual number of rows.
        episodes: Number of episodes.
        returns: Mean and standard deviation of the returns.
        obs: Means of the observations.
        action: Means of the actions.
        content: Content hash by numerical environment.
    """

    plant: str
    quality: str
    seed: int
    steps: int
    settings: str
    rows: int
    episodes: int
    returns: tuple[float, float]
    obs: tuple[float, ...]
    action: tuple[float, ...]
    content: Mapping[str, str]


def log_size(plant: str, size: str) -> int:
    """Number of rows of a published size.

    Args:
        plant: Name of the plant.
        size: ``"small"`` (2,000 rows) or ``"full"``.

    Raises:
        InputError: If the size is neither of these.

    Example:
        >>> log_size("PowerGrid-v0", "full")
        3000000
    """
    if size not in ("small", "full"):
        raise InputError(f"size must be 'small' or 'full', got {size!r}")
    return SMALL if size == "small" else SIZES.get(plant, 100_000)


def log_statistics(dataset: Dataset) -> dict[str, Any]:
    """Statistics that are recorded with the hash of a log, with six significant digits.

    Args:
        dataset: A collected log.

    Returns:
        The entries ``rows`` to ``action`` of a :class:`PublishedLog`.
    """
    rows, returns = dataset.transitions, dataset.episode_returns()

    def short(values: Any) -> tuple[float, ...]:
        return tuple(float(f"{value:.6g}") for value in np.atleast_1d(values))

    return {
        "rows": dataset.n_rows,
        "episodes": dataset.n_episodes,
        "returns": short([returns.mean(), returns.std()]),
        "obs": short(np.mean(rows.obs, axis=0, dtype=np.float64)),
        "action": short(np.mean(rows.action, axis=0, dtype=np.float64)),
    }


@functools.cache
def published_logs() -> tuple[PublishedLog, ...]:
    """All published logs, in the order of the table.

    Example:
        >>> {log.quality for log in published_logs()} <= {"random", "medium", "mixed", "expert"}
        True
    """
    text = resources.files("neorl_envs.published").joinpath("logs.json").read_text()
    document = json.loads(text)
    check_head(document, "published-logs", VERSION, "logs.json")
    return tuple(PublishedLog(**entry) for entry in document["logs"])


# Compares a log with the published one, by hash or, where bits may differ, by statistics.


ROWS, MEANS = 0.02, 0.1
"""Largest allowed differences in another environment: relative length, and means in standard
deviations."""

Verdict = Literal["equal", "close", "differs", "other settings", "unpublished"]


class Comparison(NamedTuple):
    """Result of comparing a log with the published one.

    Attributes:
        verdict: ``"equal"``: identical bits. ``"close"``: no hash is known for this numerical
            environment, but the statistics agree. ``"differs"``: neither of these. ``"other
            settings"``: plant, controllers or operators differ from the record.
            ``"unpublished"``: there is no record.
        sentence: The verdict as a sentence.
    """

    verdict: Verdict
    sentence: str


def compare_log(
    env: Any,
    dataset: Dataset,
    quality: str,
    *,
    seed: int,
    n_steps: int,
    spread: float = SPREAD,
    environment: str | None = None,
) -> Comparison:
    """Compares a collected log with the published one of the same plant, quality, seed and size.

    Args:
        env: The plant.
        dataset: Dataset from ``collect_log`` with the key of ``seed``.
        quality: Quality of the log.
        seed: Seed of the log.
        n_steps: Requested number of rows.
        spread: Relative spread of the sampled parameters.
        environment: Numerical environment; that of this process by default.

    Returns:
        The verdict, by hash if one is known for this environment, otherwise, or if the hash
        differs, by statistics.
    """
    log_key = (env.name, quality, seed, n_steps)
    record = next((x for x in published_logs() if x[:4] == log_key and spread == SPREAD), None)
    if record is None:
        return Comparison("unpublished", "there is no published log of this quality, seed and size")
    if settings_digest(env, quality, seed=seed, n_steps=n_steps, spread=spread) != record.settings:
        return Comparison(
            "other settings",
            "the published log was recorded with other settings of the plant, controllers or "
            "operators",
        )
    here = numerical_environment() if environment is None else environment
    if here in record.content:
        if record.content[here] == dataset.content_hash:
            return Comparison("equal", "equal to the published log")
        # Models of processor with the same instructions may round otherwise, so this alone proves
        # no difference.
        reason = f"NOT bit for bit the published log, which is {record.content[here]}"
    else:
        reason = f"no hash is published for {here}"
    differences = _differences(record, dataset)
    if differences:
        return Comparison("differs", f"{reason}, and {differences[0]}")
    return Comparison("close", f"{reason}; rows, returns and means agree with the published ones")


def _differences(record: PublishedLog, dataset: Dataset) -> list[str]:
    rows, returns = dataset.transitions, dataset.episode_returns()
    differences = []
    if abs(dataset.n_rows - record.rows) > ROWS * record.rows:
        differences.append(f"there are {dataset.n_rows} rows; the published log has {record.rows}")
    deviation = abs(returns.mean() - record.returns[0])
    if deviation > MEANS * record.returns[1] + 1e-4 * abs(record.returns[0]):
        differences.append(
            f"the mean return is {returns.mean():.6g}; published: {record.returns[0]:.6g}"
        )
    for name, column, means, channels in (
        ("observation", rows.obs, record.obs, dataset.spec.obs),
        ("action", rows.action, record.action, dataset.spec.action),
    ):
        values = np.asarray(column, np.float64)
        slack = MEANS * values.std(axis=0) + 1e-4 * np.abs(means)
        for i in np.flatnonzero(np.abs(values.mean(axis=0) - means) > slack):
            mean = values[:, i].mean()
            differences.append(
                f"the mean of {name} {channels[i].name} is {mean:.6g}; published: {means[i]:.6g}"
            )
    return differences
