"""What a unit does not say of itself: which variables are channels, the step, reward and limits.

It stands in a TOML file beside the unit, ``tank.toml`` beside ``tank.fmu``, in the words of
``plant.toml``: tags with roles and ranges, ``[reward]``, ``[[cost]]`` and ``[[loop]]``.
"""

import dataclasses
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure import Binder, unknown_name
from neorl_envs.datasets._loops import FaceplateLoop
from neorl_envs.plant_logs._configuration import BEFORE, Reward
from neorl_envs.plant_logs._expressions import Expression
from neorl_envs.plant_logs._interlocks import Formula, UntranslatableError, evaluate, formula_of
from neorl_envs.plants.fmi._units import REAL

ROWS = 200
"""Rows in which a compiled expression is compared with the value that polars computes."""
TODO = "TODO"

# The file.


@dataclasses.dataclass(frozen=True)
class UnitTag:
    """One variable of a unit as a channel.

    Attributes:
        name: Name of the channel, also used in expressions.
        role: ``"observation"`` or ``"manipulated"``; ``"auxiliary"`` for a variable that is read
            for expressions alone, such as a profit that the unit computes.
        tag: Name of the variable in the unit; the name of the channel if empty.
        unit: Unit; that of the description if empty. Values are not converted.
        low: Lower end of the range; that of the description if absent.
        high: Upper end of the range.
        noise: Standard deviation of the instrument's error, in ``unit``.
        rate: Largest change of a manipulated variable per second.
        start: Value of a manipulated variable before the first step; that of the description if
            absent, or the middle of the range.
    """

    name: str
    role: Literal["observation", "manipulated", "auxiliary"]
    tag: str = ""
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf
    noise: float = 0.0
    rate: float = math.inf
    start: float | None = None

    @property
    def variable(self) -> str:
        """Name of the variable in the unit."""
        return self.tag or self.name


@dataclasses.dataclass(frozen=True)
class UnitParameter:
    """A parameter of the unit, drawn evenly between two values at every reset.

    Attributes:
        name: Name of the variable in the unit.
        low: Lowest value.
        high: Highest value.
    """

    name: str
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class UnitCost:
    """Cost of a step; ``penalty`` is what one unit of it takes off the reward in training."""

    name: str
    expression: str
    unit: str
    limit: float
    per: Literal["step", "episode"] = "step"
    penalty: float = 1.0


@dataclasses.dataclass(frozen=True)
class UnitEpisodes:
    """Length of an episode in steps, a condition that ends it, and the reward of that step."""

    length: int
    trip: str = ""
    trip_reward: float = 0.0


@dataclasses.dataclass(frozen=True)
class UnitSampling:
    """The control period, which is the communication step of the unit."""

    period_s: float


@dataclasses.dataclass(frozen=True)
class UnitDeclaration:
    """The content of the file beside a unit, completed with what the unit says of itself."""

    sampling: UnitSampling
    episodes: UnitEpisodes
    reward: Reward
    tags: tuple[UnitTag, ...]
    costs: tuple[UnitCost, ...] = ()
    parameters: tuple[UnitParameter, ...] = ()
    loops: tuple[FaceplateLoop, ...] = ()

    def of_role(self, role: str) -> tuple[UnitTag, ...]:
        """The tags of a role, in the order of the file."""
        return tuple(tag for tag in self.tags if tag.role == role)


_BINDER = Binder(keys={"tags": "tag", "costs": "cost", "parameters": "parameter", "loops": "loop"})


def declaration_file(unit: str) -> Path:
    """Path of the file beside a unit."""
    return Path(unit).with_suffix(".toml")


def read_declaration(unit: str, description: Any) -> UnitDeclaration:
    """Reads the file beside a unit and completes it from the unit's description.

    Args:
        unit: Path of the unit.
        description: Its description, as FMPy reads it.

    Raises:
        InputError: If the file is missing or not valid, names a variable that the unit does not
            have, leaves a range open that the unit does not give, or declares nothing that makes
            two episodes differ.
    """
    path = declaration_file(unit)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path}: cannot read it: {error.strerror}; it says which variables of the unit are "
            f"channels: draft it with neorl-envs init {unit}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML: {error}") from error
    try:
        declared = _BINDER.bound(UnitDeclaration, values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    known = {variable.name: variable for variable in description.modelVariables}
    declared = dataclasses.replace(
        declared, tags=tuple(_completed(tag, known, str(path)) for tag in declared.tags)
    )
    _check(declared, known, str(path))
    return declared


def _completed(tag: UnitTag, known: Mapping[str, Any], source: str) -> UnitTag:
    """The tag with unit, range and start of the description where the file has none."""
    variable = _real(tag.variable, known, f"{source}: tag {tag.name!r}")
    causality = {"manipulated": ("input",)}.get(tag.role, ("output", "local", "input"))
    if variable.causality not in causality:
        raise InputError(
            f"{source}: tag {tag.name!r}: {tag.variable} is a variable of the kind "
            f"{variable.causality}; a tag of the role {tag.role} must be {' or '.join(causality)}"
        )
    if tag.unit and variable.unit and tag.unit != variable.unit:
        raise InputError(
            f"{source}: tag {tag.name!r}: its unit is {tag.unit}, and the description of the unit "
            f"says {variable.unit}; values are not converted, so write {variable.unit}"
        )
    declared = variable.declaredType
    low, high = (
        _number(getattr(variable, end), getattr(declared, end, None)) for end in ("min", "max")
    )
    tag = dataclasses.replace(
        tag,
        unit=tag.unit or variable.unit or getattr(declared, "unit", None) or "?",
        low=tag.low if math.isfinite(tag.low) or low is None else low,
        high=tag.high if math.isfinite(tag.high) or high is None else high,
    )
    if tag.role == "auxiliary":
        return tag
    if not (math.isfinite(tag.low) and math.isfinite(tag.high) and tag.low < tag.high):
        raise InputError(
            f"{source}: tag {tag.name!r}: low and high must be numbers with low < high, got "
            f"{tag.low} and {tag.high}; the unit does not give them, so take the range of the "
            "instrument or of the valve"
        )
    start = _number(tag.start, variable.start)
    inside = start is not None and tag.low <= start <= tag.high
    return dataclasses.replace(tag, start=start if inside else (tag.low + tag.high) / 2)


def _check(declared: UnitDeclaration, known: Mapping[str, Any], source: str) -> None:
    names = [tag.name for tag in declared.tags]
    for name in names:
        if not name or name.startswith(BEFORE) or names.count(name) > 1:
            raise InputError(
                f"{source}: tag {name!r}: a name must be given once, and not begin with {BEFORE!r}"
            )
    for role in ("observation", "manipulated"):
        if not declared.of_role(role):
            raise InputError(f"{source}: no tag has the role {role!r}; a plant needs one")
    if declared.episodes.length < 1 or not declared.sampling.period_s > 0:
        raise InputError(
            f"{source}: episodes.length must be 1 or more steps, and sampling.period_s above 0 s"
        )
    for tag in declared.tags:
        if not (tag.noise >= 0 and tag.rate > 0):
            raise InputError(
                f"{source}: tag {tag.name!r}: noise must not be negative, and rate be above 0"
            )
    _check_parameters(declared, known, source)
    noisy = any(tag.noise for tag in declared.of_role("observation"))
    if not noisy and not any(one.low < one.high for one in declared.parameters):
        raise InputError(
            f"{source}: every episode would be the same, so that no interval could be given; "
            "declare the noise of an instrument, or a [[parameter]] with low < high"
        )
    _check_loops(declared, source)


def _check_parameters(declared: UnitDeclaration, known: Mapping[str, Any], source: str) -> None:
    for parameter in declared.parameters:
        where = f"{source}: parameter {parameter.name!r}"
        variable = _real(parameter.name, known, where)
        if variable.causality != "parameter" and variable.initial != "exact":
            raise InputError(f"{where}: it is not a parameter or start value of the unit")
        if not (math.isfinite(parameter.low) and parameter.low <= parameter.high < math.inf):
            raise InputError(f"{where}: low must be at most high, and both be numbers")


def _check_loops(declared: UnitDeclaration, source: str) -> None:
    observed = [tag.name for tag in declared.of_role("observation")]
    moved = [tag.name for tag in declared.of_role("manipulated")]
    for loop in declared.loops:
        if loop.controlled not in observed:
            raise unknown_name(f"observed tag of {loop.label}", loop.controlled, observed)
        if loop.manipulated not in moved:
            raise unknown_name(f"manipulated tag of {loop.label}", loop.manipulated, moved)
        if loop.setpoint is None:
            raise InputError(f"{source}: {loop.label}: give its setpoint as a number")
    if len({loop.manipulated for loop in declared.loops}) < len(declared.loops):
        raise InputError(f"{source}: two loops move one manipulated variable")
    if len({loop.derivative_filter for loop in declared.loops}) > 1:
        raise InputError(f"{source}: give all loops one derivative_filter")


def _real(name: str, known: Mapping[str, Any], where: str) -> Any:
    """The variable of a name, which must be a real number."""
    if name not in known:
        raise unknown_name(f"variable of the unit in {where}:", name, known)
    if known[name].type not in REAL:
        raise InputError(
            f"{where}: {name} is of the type {known[name].type}, and a channel must be a real "
            f"number ({' or '.join(REAL)}); for a switch or a count, let the unit take a real "
            "number and round it inside"
        )
    return known[name]


def _number(*texts: Any) -> float | None:
    """The first of some texts that is a finite number."""
    for text in texts:
        try:
            if text is not None and math.isfinite(float(text)):
                return float(text)
        except (TypeError, ValueError):
            continue
    return None


# Expressions, as functions that can be compiled.


def compiled_expression(text: str, declared: UnitDeclaration, source: str) -> Formula:
    """Translates an expression over the channels, their earlier values and auxiliary tags.

    Raises:
        InputError: If it cannot be read or compiled, or differs from what polars computes.
    """
    channels = [tag for tag in declared.tags if tag.role != "auxiliary"]
    names = [tag.name for tag in declared.tags] + [BEFORE + tag.name for tag in channels]
    expression = Expression(text, names, source)
    try:
        formula = formula_of(expression.tree())
    except UntranslatableError as error:
        raise InputError(f"{source}: {text!r} cannot be compiled: {error}") from error
    random = np.random.default_rng(0)
    ranges = {tag.name: (tag.low, tag.high) for tag in channels}
    ranges |= {BEFORE + name: ends for name, ends in ranges.items()}
    columns = {
        name: random.uniform(*ranges.get(name, (-1.0, 1.0)), ROWS).astype(np.float32)
        for name in names
    }
    exact = expression({name: column.astype(np.float64) for name, column in columns.items()})
    ours = np.broadcast_to(np.asarray(evaluate(formula, columns), np.float64), exact.shape)  # type: ignore[arg-type]
    scale = float(np.nanmax(np.abs(exact), initial=1.0))
    if np.mean(~np.isclose(ours, exact, rtol=1e-3, atol=1e-5 * scale, equal_nan=True)) > 0.01:
        raise InputError(
            f"{source}: {text!r} has other values when it is compiled; write it with simple "
            "arithmetic and comparisons"
        )
    return formula


# The draft.


def draft_declaration(description: Any) -> str:
    """Drafts the file beside a unit from its description; what it does not say is marked TODO.

    Args:
        description: The description, as FMPy reads it.
    """
    experiment = description.defaultExperiment
    step = _number(getattr(experiment, "stepSize", None))
    stop = _number(getattr(experiment, "stopTime", None))
    known = [v for v in description.modelVariables if v.type in REAL]
    others = [
        f"{v.name} ({v.type})"
        for v in description.modelVariables
        if v.type not in REAL and v.causality in ("input", "output", "parameter")
    ]
    outputs = [v for v in known if v.causality == "output"]
    length = round(stop / step) if step and stop else None
    lines = [
        "[sampling]",
        f"period_s = {step:g}" if step else f"period_s = 1.0  # {TODO}: the control period",
        "",
        "[episodes]",
        f"length = {length}" if length else f"length = 200  # {TODO}: steps of an episode",
        "",
        "[reward]",
        f'expression = "0"  # {TODO}: such as "-abs({outputs[0].name if outputs else "y"} - 1.0)"',
    ]
    for variable in known:
        roles = {"input": "manipulated", "output": "observation"}
        if variable.causality in roles:
            lines += ["", *_drafted_tag(variable, roles[variable.causality])]
    if others:
        lines += ["", f"# left out, as a channel is a real number: {', '.join(others)}"]
    parameters = [v.name for v in known if v.causality == "parameter"]
    lines += [
        "",
        f"# {TODO}: give an observation its noise, or draw a parameter at every reset:",
        "# [[parameter]]",
        f'# name = "{parameters[0] if parameters else "parameter"}"',
        "# low = 0.9",
        "# high = 1.1",
    ]
    return "\n".join(lines) + "\n"


def _drafted_tag(variable: Any, role: str) -> list[str]:
    name = re.sub(r"\W", "_", variable.name)  # other characters need quotes in expressions
    tag = [f'tag = "{variable.name}"'] if name != variable.name else []
    lines = ["[[tag]]", f'name = "{name}"', *tag, f'role = "{role}"']
    declared = variable.declaredType
    for key, end in (("low", "min"), ("high", "max")):
        number = _number(getattr(variable, end), getattr(declared, end, None))
        text = f"{0.0 if key == 'low' else 1.0}  # {TODO}: the range of the instrument or valve"
        lines.append(f"{key} = {text if number is None else float(number)}")
    unit = variable.unit or getattr(declared, "unit", None)
    return lines if unit else [*lines, f'unit = "1"  # {TODO}: the unit gives none']
