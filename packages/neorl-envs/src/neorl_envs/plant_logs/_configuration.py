"""The content of ``plant.toml`` as typed, checked values; the reference page lists every key."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, Literal

from neorl_core import InputError
from neorl_core.infrastructure import unknown_name
from neorl_envs.datasets._loops import FaceplateLoop
from neorl_envs.plant_logs._numbers import Decimal, Notation, Thousands

Role = Literal[
    "observation",
    "disturbance",
    "setpoint",
    "manipulated",
    "mode",
    "batch",
    "behaviour",
    "auxiliary",
]
"""An auxiliary tag, such as a price or a laboratory value, is used only in expressions."""
Ambiguous = Literal["refuse", "mask", "earliest", "latest", "order"]
OBSERVED: tuple[Role, ...] = ("observation", "disturbance", "setpoint")
WORDS: tuple[Role, ...] = ("mode", "batch", "behaviour")
"""Roles whose values are words, not numbers."""
BEFORE = "before_"
MOST_HISTORY = 1000
LONGEST_S = 1e9
"""Upper limit of every period and transport delay: about thirty years."""


@dataclasses.dataclass(frozen=True)
class Files:
    """Location of the log and format of its rows.

    Attributes:
        files: Paths or patterns, relative to ``plant.toml``.
        layout: ``"wide"`` with one column per tag, or ``"long"`` with one row per value.
        timestamp: Column of the timestamps.
        date: Column of the days, if ``timestamp`` holds the time of day alone; empty otherwise.
        timestamp_format: Empty for ISO 8601, ``"epoch_s"``, ``"epoch_ms"``, or a ``strptime``
            format.
        time_zone: Time zone of timestamps without an offset, such as ``"Europe/Vienna"``.
        ambiguous: How to treat the hour that is repeated when daylight saving ends.
        unreadable: What to do with a row whose stamp cannot be read.
        separator: Separator between the columns of a CSV file.
        encoding: Encoding of CSV files, such as ``"utf-8"``, ``"cp1252"`` or ``"utf-16"``.
        header_rows: CSV rows above the first sample: the names, and any rows below them such as
            units.
        decimal: Decimal mark, ``"."`` or ``","``.
        thousands: Mark between groups of three digits: ``"."``, ``","``, ``" "`` or ``"'"``. A mark
            that is not declared is refused.
        missing: Texts that stand for a missing value; any other text is refused.
        good: Values of the quality column that mark a good sample.
        tag_column: Column that holds the tag in the long layout.
        value_column: Column that holds the value in the long layout.
        quality_column: Column that holds the quality in the long layout; empty if there is none.
        unit_column: Column that holds the unit in the long layout; empty if there is none.
    """

    files: tuple[str, ...]
    timestamp: str
    layout: Literal["wide", "long"] = "wide"
    timestamp_format: str = ""
    time_zone: str = "UTC"
    ambiguous: Ambiguous = "refuse"
    unreadable: Literal["refuse", "mask"] = "refuse"
    separator: str = ","
    encoding: str = "utf-8"
    header_rows: int = 1
    decimal: Decimal = "."
    thousands: Thousands = ""
    missing: tuple[str, ...] = ()
    good: tuple[str, ...] = ("Good", "192")
    tag_column: str = "tag"
    value_column: str = "value"
    quality_column: str = ""
    unit_column: str = ""
    date: str = ""


@dataclasses.dataclass(frozen=True)
class Tag:
    """One tag of the log and its role for the controller.

    Attributes:
        name: Name of the channel, also used in expressions.
        role: Role of the tag, such as manipulated variable or setpoint.
        tag: Name of the tag in the log; if empty, the name of the channel.
        unit: Unit of the channel, after conversion.
        low: Lower end of the range, in ``unit``; values outside the range count as missing.
        high: Upper end of the range, in ``unit``.
        fill: Value between two samples: the earlier sample, or linear interpolation.
        factor: Conversion to ``unit``: ``unit = factor * logged + offset``.
        offset: See ``factor``.
        conversions: Factor and offset of every other unit that the unit column may name.
        delay_s: Transport delay. In expressions, the value at time t is the one measured at
            t + delay.
        largest_gap_s: Overrides the value of ``[sampling]``; ``inf`` for a tag logged on change.
        quality: Column with the quality of the tag in the wide layout; empty if there is none.
        decimal: Decimal mark of this tag; if empty, that of ``[log]``.
        automatic: Words of a mode tag that mean automatic.
        of: Manipulated variables that a mode tag belongs to; all of them if empty.
    """

    name: str
    role: Role
    tag: str = ""
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf
    fill: Literal["hold", "interpolate"] = "hold"
    factor: float = 1.0
    offset: float = 0.0
    conversions: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    delay_s: float = 0.0
    largest_gap_s: float = math.nan
    quality: str = ""
    decimal: Literal["", ".", ","] = ""
    automatic: tuple[str, ...] = ()
    of: tuple[str, ...] = ()

    @property
    def logged_as(self) -> str:
        """Name of the tag in the log."""
        return self.tag or self.name


@dataclasses.dataclass(frozen=True)
class Sampling:
    """The time grid.

    Attributes:
        period_s: Control period; every row of the dataset covers one period.
        largest_gap_s: Longest time for which a sample is held, and longest gap that is
            interpolated; zero means one period.
    """

    period_s: float
    largest_gap_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class Episodes:
    """Rules for where one episode ends and the next begins.

    Attributes:
        gap_s: An episode ends when there is no sample for longer than this.
        mode_change: Whether an episode ends when any mode changes.
        length: Rows after which an episode is cut; 0 means never.
        running: Condition over tags; the plant counts as shut down while it is false or unknown.
        trip: Condition over tags; the row that leads to a trip is marked as terminated.
        manual: Whether rows with a manipulated variable in manual are kept or masked.
    """

    gap_s: float
    mode_change: bool = False
    length: int = 0
    running: str = ""
    trip: str = ""
    manual: Literal["keep", "mask"] = "keep"


@dataclasses.dataclass(frozen=True)
class Exclusion:
    """A period whose rows do not enter the dataset, such as maintenance or a failed instrument.

    Attributes:
        begin: Start of the period, ISO 8601; without an offset, in the time zone of the log.
        end: End of the period, which is not itself part of it.
        reason: Why the period is left out.
    """

    begin: str
    end: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Reward:
    """Reward of a step as an expression over tags, and its unit."""

    expression: str
    unit: str = ""


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost of a step as an expression over tags, with its limit."""

    name: str
    expression: str
    unit: str
    limit: float
    per: Literal["step", "episode"] = "step"


@dataclasses.dataclass(frozen=True)
class TermOfReward:
    """A physical amount that contributes to the reward, as an expression over tags.

    Attributes:
        name: Name of the amount, such as ``"steam"``.
        expression: The amount added in one step.
        unit: Unit of the amount, such as ``"kg"``.
        worth: Reward for one unit; zero for an amount that is only reported.
    """

    name: str
    expression: str
    unit: str
    worth: float = 0.0


@dataclasses.dataclass(frozen=True)
class Interlock:
    """A rule of the plant's own control system that overrides every controller.

    Attributes:
        name: Its name, for messages and reports.
        when: Condition over observed and manipulated tags; while it is true, the interlock acts.
        values: What it sets manipulated variables to, by name: a number in the unit of the tag, or
            an expression in which their names mean what the controller asks for.
    """

    name: str
    when: str
    values: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class History:
    """Number of past samples in an observation, and whether past actions are added."""

    steps: int = 1
    actions: bool = False


@dataclasses.dataclass(frozen=True)
class PlantLog:
    """The complete content of ``plant.toml``."""

    name: str
    log: Files
    sampling: Sampling
    episodes: Episodes
    reward: Reward
    tags: tuple[Tag, ...]
    costs: tuple[Cost, ...] = ()
    history: History = History()
    constraints: tuple[Mapping[str, Any], ...] = ()
    terms: tuple[TermOfReward, ...] = ()
    excludes: tuple[Exclusion, ...] = ()
    interlocks: tuple[Interlock, ...] = ()
    loops: tuple[FaceplateLoop, ...] = ()

    def of_role(self, *roles: str) -> tuple[Tag, ...]:
        """The tags with any of the given roles, in the order of the file."""
        return tuple(tag for tag in self.tags if tag.role in roles)

    def notation(self, tag: Tag) -> Notation:
        """Number format of a tag; a tag with its own decimal mark has no thousands mark."""
        decimal: Decimal = tag.decimal or self.log.decimal
        return Notation(decimal, "" if self.log.thousands == decimal else self.log.thousands)

    @property
    def numbers(self) -> tuple[Tag, ...]:
        """The tags whose values are numbers."""
        return tuple(tag for tag in self.tags if tag.role not in WORDS)


def check_plant_log(config: PlantLog, source: str) -> None:
    """Raises an ``InputError`` unless a configuration is consistent; the log itself is not read."""
    _check_numbers(config, source)
    _check_roles(config, source)
    _check_terms(config, source)
    for field in ("name", "logged_as"):
        names = [getattr(tag, field) for tag in config.tags]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InputError(f"{source}: two tags are called {repeated[0]!r}; rename one")
    if config.log.layout == "long" and config.log.ambiguous == "order":
        raise InputError(
            f'{source}: log.ambiguous = "order" needs rows in order of time, which the long layout '
            'does not have; choose from "mask", "earliest" and "latest"'
        )
    try:
        "x".encode(config.log.encoding)
    except (LookupError, ValueError) as error:
        raise InputError(f"{source}: log.encoding: {error}") from error
    if config.log.header_rows < 1:
        raise InputError(
            f"{source}: log.header_rows must be 1 or more, got {config.log.header_rows}; the names "
            "of the columns stand in the first row"
        )
    if config.log.thousands == config.log.decimal:
        raise InputError(
            f"{source}: log.thousands and log.decimal are both {config.log.decimal!r}; one mark "
            "cannot be both"
        )
    for tag in config.tags:
        where = f"{source}: tag {tag.name!r}"
        _check_range(tag, where)
        _check_conversions(tag, where)
        _check_role(tag, config, where)
    _check_loops(config, source)


def _check_roles(config: PlantLog, source: str) -> None:
    for role, roles in (("observation", OBSERVED), ("manipulated", ("manipulated",))):
        if not config.of_role(*roles):
            raise InputError(f"{source}: no tag has the role {role!r}; a dataset needs one")
    named = [tag.name for tag in config.of_role("behaviour")]
    if len(named) > 1:
        raise InputError(
            f"{source}: {', '.join(named)} have the role 'behaviour'; one tag says who ran the "
            "plant, so give the others another role"
        )


def _check_terms(config: PlantLog, source: str) -> None:
    names = [term.name for term in config.terms]
    for term in config.terms:
        if not term.name or names.count(term.name) > 1:
            raise InputError(f"{source}: two terms are called {term.name!r}, or one has no name")
        if not math.isfinite(term.worth):
            raise InputError(
                f"{source}: term {term.name!r}: worth must be a number, got {term.worth}; it is "
                f"the reward of one {term.unit or 'unit'}"
            )


def _check_numbers(config: PlantLog, source: str) -> None:
    period = config.sampling.period_s
    for key, value in (("sampling.period_s", period), ("episodes.gap_s", config.episodes.gap_s)):
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{source}: {key} must be above 0 s, got {value}")
    if period > LONGEST_S:
        raise InputError(f"{source}: sampling.period_s must be at most {LONGEST_S:g}, got {period}")
    if period * 1e9 != round(period * 1e9):
        raise InputError(f"{source}: sampling.period_s must be a multiple of 1e-9 s, got {period}")
    if config.episodes.length < 0:
        raise InputError(f"{source}: episodes.length must be 0 or more")
    if not 1 <= config.history.steps <= MOST_HISTORY:
        raise InputError(
            f"{source}: history.steps must be from 1 to {MOST_HISTORY}, got {config.history.steps}"
        )


def _check_loops(config: PlantLog, source: str) -> None:
    """Refuses loops whose tags do not exist, and numbers that no faceplate shows."""
    observed = {tag.name: tag for tag in config.of_role(*OBSERVED)}
    moved = {tag.name: tag for tag in config.of_role("manipulated")}
    seen: set[str] = set()
    for loop in config.loops:
        where = f"{source}: {loop.label}"
        for name in filter(None, (loop.controlled, loop.setpoint_channel)):
            if name not in observed:
                raise unknown_name(f"observed tag of {loop.label}", name, observed)
        if loop.manipulated not in moved:
            raise unknown_name(f"manipulated tag of {loop.label}", loop.manipulated, moved)
        if loop.manipulated in seen:
            raise InputError(f"{where}: another loop moves {loop.manipulated} already")
        seen.add(loop.manipulated)
        if (loop.setpoint is None) == (not loop.setpoint_channel):
            raise InputError(f"{where}: give either setpoint or setpoint_channel")
        if re.search(r"[^\w. +()-]", loop.name):
            raise InputError(
                f"{where}: its name also names files; use letters, digits, spaces and _ . + ( ) -"
            )
        span = (tag.high - tag.low for tag in (observed[loop.controlled], moved[loop.manipulated]))
        try:
            standard = loop.standard(*span)
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None
        if "integral_time" not in standard and loop.bias is None:
            raise InputError(f"{where}: a loop without an integral needs its bias")


def _check_range(tag: Tag, where: str) -> None:
    needed = tag.role in (*OBSERVED, "manipulated")
    finite = math.isfinite(tag.low) and math.isfinite(tag.high)
    if needed and not (finite and tag.low < tag.high):
        raise InputError(
            f"{where}: low and high must be numbers with low < high, got {tag.low} and "
            f"{tag.high}; give the range of the instrument or of the valve"
        )


def _check_conversions(tag: Tag, where: str) -> None:
    if not (math.isfinite(tag.factor) and math.isfinite(tag.offset) and tag.factor != 0):
        raise InputError(f"{where}: factor and offset must be finite, and factor must not be 0")
    for unit, numbers in tag.conversions.items():
        if len(numbers) != 2 or not all(map(math.isfinite, numbers)) or numbers[0] == 0:
            raise InputError(f"{where}: conversions.{unit} must be [factor, offset]")


def _check_role(tag: Tag, config: PlantLog, where: str) -> None:
    if tag.name.startswith(BEFORE) or not tag.name:
        raise InputError(f"{where}: a name must not be empty or begin with {BEFORE!r}")
    if tag.fill == "interpolate" and tag.role not in ("observation", "disturbance", "auxiliary"):
        raise InputError(
            f"{where}: a {tag.role} is held between samples; fill = 'interpolate' is not for this "
            "role"
        )
    steps = tag.delay_s / config.sampling.period_s
    if not (0 <= tag.delay_s <= LONGEST_S and abs(steps - round(steps)) < 1e-9):
        raise InputError(
            f"{where}: delay_s must be a multiple of the period of {config.sampling.period_s:g} s,"
            f" got {tag.delay_s:g}"
        )
    if tag.delay_s and tag.role in ("manipulated", *WORDS):
        raise InputError(
            f"{where}: a {tag.role} has no transport delay; declare it at the tags that are "
            "measured late"
        )
    if tag.role == "mode" and not tag.automatic:
        raise InputError(
            f'{where}: list the words that mean automatic, such as automatic = ["AUTO"]'
        )
    manipulated = [other.name for other in config.of_role("manipulated")]
    for name in tag.of:
        if name not in manipulated:
            raise unknown_name(f"manipulated variable of tag {tag.name!r}", name, manipulated)
