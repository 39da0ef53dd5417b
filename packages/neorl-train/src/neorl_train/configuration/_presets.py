"""Default hyperparameters of a run that differ from those of the algorithms."""

from typing import Any

DEMO_HYPERPARAMETERS: dict[str, dict[str, Any]] = {
    "bc": {"networks": {"hidden": (64, 64)}, "steps": {"batch_size": 128}},
    "td3_bc": {
        "networks": {"hidden": (64, 64)},
        "steps": {"batch_size": 128},
        "alpha": 0.5,
        "critic_learning_rate": 1e-3,
        "tau": 0.02,
    },
    "iql": {
        "networks": {"hidden": (64, 64)},
        "steps": {"batch_size": 128},
        "advantage_scale": "std",
        "value_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
        "tau": 0.02,
        "decay_updates": -1,
    },
}
"""The defaults of a run that differ from those of the algorithms, which follow the papers."""
