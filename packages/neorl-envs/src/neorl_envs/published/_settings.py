"""Digest of everything that determines a generated log, comparable without a simulation."""

import dataclasses
import hashlib
import json
from typing import Any

import jax
import numpy as np

from neorl_core import spec_to_dict
from neorl_envs.blocks._constants import named_constants
from neorl_envs.blocks._limits import Limit
from neorl_envs.recording._qualities import quality

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
