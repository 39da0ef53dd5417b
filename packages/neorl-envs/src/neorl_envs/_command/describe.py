"""``neorl-envs describe PLANT``: channels, limits, units and controllers of a plant."""

import dataclasses
import json
from typing import Any

import numpy as np

from neorl_core import CostChannel, Spec, spec_to_dict
from neorl_core.infrastructure import head
from neorl_core.infrastructure.command_line import Positional, parse_options
from neorl_envs._command.plants import complete_plant
from neorl_envs.blocks import Limit
from neorl_envs.blocks._constants import named_constants

VERSION = 1
"""Version of the JSON document."""


@dataclasses.dataclass(frozen=True)
class Describe:
    """Describes a plant: measured and manipulated channels, limits, units and controllers.

    example: neorl-envs describe ChemicalReactor-v0

    Attributes:
        name: One of `neorl-envs list`, or a class or function that makes a plant, as MODULE:NAME.
        constants: Also list the physical constants, with unit and source.
        json: Print JSON instead of text.
    """

    name: Positional[str]
    constants: bool = False
    json: bool = False


def command(words: list[str]) -> None:
    """``neorl-envs describe``."""
    options = parse_options(Describe, words, program="neorl-envs describe")
    env = complete_plant(options.name)
    if options.json:
        document = {**head("plant-description", VERSION), **description(env, options.constants)}
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(_lines(env, options.constants)))


def description(env: Any, with_constants: bool) -> dict[str, Any]:
    """Description of a plant, as plain values."""
    described = {
        "name": env.name,
        "spec": spec_to_dict(env.spec),
        "largest_change_a_second": [
            rate if np.isfinite(rate) else None for rate in env.action_rates()
        ],
        "penalty_weights": dict(env.penalty_weights()),
        "limits": [
            {
                "quantity": limit.quantity,
                "unit": _unit(limit, env.spec),
                "low": limit.low if np.isfinite(limit.low) else None,
                "high": limit.high if np.isfinite(limit.high) else None,
                "cost": limit.cost,
                "factor": limit.factor,
                "trip": limit.trip,
            }
            for limit in _limits(env)
        ],
        "reward_unit": env.reward_unit,
        "controllers": list(env.tunings()),
        "reference": env.reference,
        "glossary": env.glossary,
    }
    if with_constants:
        described["constants"] = [
            {"name": name, "value": np.asarray(value).tolist(), "unit": c.unit, "source": c.source}
            for name, c, value in named_constants(getattr(env, "constants", ()))
        ]
    return described


def _lines(env: Any, with_constants: bool) -> list[str]:
    spec = env.spec
    lines = [f"{env.name}: period {spec.dt:g} s, at most {spec.horizon} steps", "", "measured:"]
    lines += _columns([(c.name, _unit_text(c.unit), f"{c.low:g} to {c.high:g}") for c in spec.obs])
    actuators = zip(spec.action, env.action_rates(), strict=True)
    lines += ["", "manipulated:"]
    lines += _columns(
        [(c.name, _unit_text(c.unit), f"{c.low:g} to {c.high:g}", _rate(r)) for c, r in actuators]
    )
    limits = [
        (limit.quantity, _unit_text(_unit(limit, spec)), _range(limit), _consequence(limit))
        for limit in _limits(env)
    ]
    lines += ["", "limits of true quantities:", *(_columns(limits) or ["  none"])]
    costs = [
        (
            c.name,
            _unit_text(c.unit),
            f"at most {c.limit:g} per {c.per}",
            f"penalty {penalty(env, c)}",
        )
        for c in spec.cost
    ]
    lines += ["", "costs:", *(_columns(costs) or ["  none"])]
    lines += ["", f"reward: {env.reward_unit}"]
    names = [f"{name} (reference)" if name == env.reference else name for name in env.tunings()]
    lines += [f"controllers: {', '.join(names)}"]
    lines += [text for text in (env.glossary, env.channel_descriptions) if text]
    if with_constants:
        short: Any = {"float": "{:.6g}".format}
        rows = [
            (name, f"{np.array2string(np.asarray(value), formatter=short)} {c.unit}", c.source)
            for name, c, value in named_constants(getattr(env, "constants", ()))
        ]
        lines += ["", "constants:", *(_columns(rows) or ["  none declared"])]
        lines += [f"  must satisfy {relation}" for relation in getattr(env, "relations", ())]
    return lines


def _limits(env: Any) -> tuple[Limit, ...]:
    """The declared limits, or the bands of a plant that is not built from blocks."""
    bands = [Limit(name, *ends, channel=name) for name, ends in env.bands().items()]
    return getattr(env, "limits", tuple(bands))


def _unit(limit: Limit, spec: Spec) -> str:
    units = [channel.unit for channel in spec.obs if channel.name == limit.channel]
    return limit.unit or (units[0] if units else "1")


def _range(limit: Limit) -> str:
    if np.isinf(limit.low):
        return f"at most {limit.high:g}"
    return f"at least {limit.low:g}" if np.isinf(limit.high) else f"{limit.low:g} to {limit.high:g}"


def _consequence(limit: Limit) -> str:
    counts = f"adds {limit.factor:g} to the cost {limit.cost} per unit beyond it and step"
    return ", ".join([counts] * bool(limit.cost) + ["ends the episode"] * limit.trip)


def _unit_text(unit: str) -> str:
    """A unit for display in a column; a dash for dimensionless numbers."""
    return unit if unit not in ("", "1") else "-"


def penalty(env: Any, cost: CostChannel) -> str:
    """Penalty of one unit of a cost in the reward, such as ``0.75 points per K min``."""
    weight, unit = env.penalty_weights().get(cost.name, 0), env.reward_unit
    times = " ×" if unit[:1].isdigit() else ""  # a unit may begin with a number, such as 100 $
    return f"{weight:g}{times} {unit} per {cost.unit if cost.unit != '1' else 'unit'}"


def _rate(rate: float) -> str:
    return f"at most {rate:g} per second" if np.isfinite(rate) else "no rate limit"


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        ("  " + "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]
