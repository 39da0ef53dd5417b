"""Provenance of a collected log."""

import importlib.metadata
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from neorl_core import Spec
from neorl_envs.recording._operators import OperatorPlan


def excitation_attributes(spec: Spec, plan: OperatorPlan, rows: Any) -> dict[str, Any]:
    """Planned and realised excitation of every manipulated channel, ready for JSON."""
    seconds = spec.dt
    channels = [
        {
            "channel": channel.name,
            "unit": channel.unit,
            "prbs_amplitude": float(plan.amplitude[i]),
            "prbs_mean_dwell_s": float(plan.dwell) * seconds,
            "prbs_fraction_of_steps": float((rows.signal[:, i] != 0).mean()),
            "manual_fraction_of_steps": float(rows.manual[:, i].mean()),
            "action_std": float(rows.step.applied[:, i].std()),
        }
        for i, channel in enumerate(spec.action)
    ]
    return {
        "channels": channels,
        "manual_hold_s": [
            int(plan.hold_shortest) * seconds,
            int(plan.hold_longest) * seconds,
        ],
        "manual_hold_mean_interval_s": _interval(plan.hold_every, seconds),
        "setpoint_step": [float(step) for step in plan.setpoint_step],
        "setpoint_mean_interval_s": _interval(plan.setpoint_every, seconds),
        "setpoint_fraction_of_steps": float((rows.offset != 0).any(axis=-1).mean()),
    }


def _interval(steps: Array, seconds: float) -> float | None:
    """Seconds between two interventions; ``None`` if there are none, since JSON has no infinity."""
    return float(steps) * seconds if np.isfinite(steps) else None


def provenance_attributes(key: PRNGKeyArray, spread: float, n_steps: int) -> dict[str, Any]:
    """Everything needed to generate the same log again, without anything that varies by run."""
    return {
        "generator": "neorl_envs.collect_log",
        "neorl-envs": importlib.metadata.version("neorl-envs"),
        "jax": jax.__version__,
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "spread": spread,
        "n_steps": n_steps,
    }
