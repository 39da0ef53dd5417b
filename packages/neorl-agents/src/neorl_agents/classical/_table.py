"""The classical controllers by name."""

import dataclasses
from typing import Any

from neorl_agents.classical._base_stock import BaseStockLevels
from neorl_agents.classical._model_controllers import LQG, MPC
from neorl_agents.classical._pid_controllers import ImitatedPID, SmithPID, TunedPID
from neorl_agents.classical._task import ClassicalController
from neorl_core.infrastructure import Registry


def _check(name: str, kind: Any) -> None:
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        raise TypeError(f"expected a frozen dataclass with settings and fit, got {kind!r}")
    unset = [
        field.name
        for field in dataclasses.fields(kind)
        if (field.default, field.default_factory) == (dataclasses.MISSING,) * 2
    ]
    if unset:
        raise TypeError(f"every setting needs a default; give a default to {', '.join(unset)}")
    if not isinstance(kind(), ClassicalController):
        raise TypeError(
            "expected a neorl_agents.classical.ClassicalController, but it has no method fit"
        )


CLASSICAL: Registry[type] = Registry(
    "neorl.controllers",
    "classical controller",
    {
        "pid": TunedPID,
        "pid_imitation": ImitatedPID,
        "smith": SmithPID,
        "lqg": LQG,
        "mpc": MPC,
        "base_stock": BaseStockLevels,
    },
    _check,
)
"""The class of every classical controller by name; other packages can add to this mapping.

A distribution adds its own through the entry points ``neorl.controllers``, a script through
``CLASSICAL.register("fuzzy", Fuzzy)``.
"""
