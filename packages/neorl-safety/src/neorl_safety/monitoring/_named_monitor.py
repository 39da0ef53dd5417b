"""A monitor with its name and guarantee, and monitors as a JSON document."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from neorl_core import InputError, Policy, Spec
from neorl_core.infrastructure import check_head, head, unknown_name
from neorl_safety.monitoring._learned import EnsembleMonitor, policy_ensemble
from neorl_safety.monitoring._monitor import Monitor, alarms_per_day
from neorl_safety.monitoring._novelty import DriftMonitor, MahalanobisMonitor, NeighbourMonitor
from neorl_safety.monitoring._sensors import FrozenMonitor, RangeMonitor
from neorl_safety.monitoring._stl import formula_text, read_formula
from neorl_safety.monitoring._stl_monitor import FormulaMonitor, formula_monitor

# A monitor with its name, its description and its guarantee.


NEVER = 2**30
"""Number of steps that stands for a channel that is not monitored for standstill."""

LONG_OPERATION = 1.9
"""Largest measured ratio of actual to guaranteed false alarms of a drift monitor in long operation.

The largest ratio among eleven simulated, healthy plants, whose thresholds were set on episodes and
which then ran for twenty times as long (``tools/studies/tables/drift_alarms.py``).
"""


@dataclasses.dataclass(frozen=True)
class NamedMonitor:
    """One monitor of a guard, with what people and documents need to know about it.

    Attributes:
        name: Name, unique in its guard.
        monitor: The monitor.
        false_alarms: Guaranteed fraction of operating stretches with a false alarm; NaN if its
            threshold is given and not calibrated.
        episodes: Number of held-out stretches that set its threshold; zero for a given threshold.
        policies: Names of the policies whose disagreement it monitors; empty for other kinds.
        stretch: Length of a stretch in seconds; NaN if unknown.
    """

    name: str
    monitor: Monitor
    false_alarms: float = math.nan
    episodes: int = 0
    policies: tuple[str, ...] = ()
    stretch: float = math.nan

    @property
    def calibrated(self) -> bool:
        """Whether its threshold comes from held-out episodes."""
        return not math.isnan(self.false_alarms)

    @property
    def per_day(self) -> float:
        """Guaranteed maximum of false alarms per day of operation; NaN without a guarantee."""
        return alarms_per_day(self.false_alarms, self.stretch)


def describe_monitor(named: NamedMonitor, spec: Spec) -> str:
    """Describes in words when a monitor alarms, with units and its guarantee.

    Args:
        named: A monitor with its name, with concrete numbers.
        spec: Specification that provides channels and units.

    Returns:
        A sentence without full stop.
    """
    text = f"{named.name}: {_condition(named, spec)}"
    if not named.calibrated:
        return text
    if math.isnan(named.stretch):
        return (
            f"{text}; guaranteed: a false alarm in at most {100 * named.false_alarms:.3g} % of "
            f"episodes like the {named.episodes} held-out ones that set its threshold"
        )
    sentence = (
        f"{text}; guaranteed: at most {named.per_day:.3g} false alarms in a day of operation like "
        f"the {named.episodes} held-out stretches of {named.stretch:g} s that set its threshold "
        f"(in {100 * named.false_alarms:.3g} % of them)"
    )
    if isinstance(named.monitor, DriftMonitor):
        sentence += (
            "; a plant that runs for much longer than one stretch may drift further: simulated "
            f"plants raised up to {LONG_OPERATION:g} times as many alarms"
        )
    return sentence


def _condition(named: NamedMonitor, spec: Spec) -> str:
    monitor: Any = named.monitor
    limit = f"above {float(monitor.threshold):.4g}" if hasattr(monitor, "threshold") else ""
    if isinstance(monitor, RangeMonitor):
        return (
            "an observation beyond its measuring range by more than "
            f"{100 * float(monitor.tolerance):g} % of it"
        )
    if isinstance(monitor, FrozenMonitor):
        frozen = [
            f"{channel.name} for more than {float(steps) * spec.dt:g} s"
            for channel, steps in zip(spec.obs, monitor.max_steps.tolist(), strict=True)
            if steps < NEVER
        ]
        return f"a measurement that does not move: {', '.join(frozen)}"
    if isinstance(monitor, FormulaMonitor):
        return f"not {formula_text(monitor.formula, spec)}"
    if isinstance(monitor, MahalanobisMonitor):
        return f"an observation far from the log, squared Mahalanobis distance {limit}"
    if isinstance(monitor, NeighbourMonitor):
        return (
            f"an observation far from the log, distance {limit} standard deviations to the nearest "
            f"{monitor.neighbours} of {len(monitor.rows)} representative rows"
        )
    if isinstance(monitor, DriftMonitor):
        return f"inputs that drift from the log, moving mean {limit} of its standard deviations"
    if isinstance(monitor, EnsembleMonitor):
        return (
            f"policies that disagree ({', '.join(named.policies)}), standard deviation {limit} of "
            "an actuator's range"
        )
    return f"{type(monitor).__name__} {limit}".strip()


# Monitors as a JSON document: records with plain numbers, read back to the same float32.


VERSION = 1
ARRAY_MONITORS: dict[str, tuple[type, tuple[str, ...], tuple[str, ...]]] = {
    "range": (RangeMonitor, ("low", "high", "tolerance"), ()),
    "frozen": (FrozenMonitor, ("min_change", "max_steps"), ()),
    "mahalanobis": (MahalanobisMonitor, ("mean", "whitening", "threshold"), ()),
    "neighbours": (NeighbourMonitor, ("rows", "mean", "scale", "threshold"), ("neighbours",)),
    "drift": (DriftMonitor, ("mean", "scale", "weight", "threshold"), ()),
}
"""Kinds of monitors that consist of arrays: class, array fields and static fields."""
BY_CHANNEL = {"low", "high", "min_change", "max_steps", "mean", "scale"}
COMMON_FIELDS = {"kind", "name", "false_alarms", "episodes", "stretch"}


def monitors_to_dict(monitors: Sequence[NamedMonitor], spec: Spec) -> dict[str, Any]:
    """Monitors as plain dictionaries, lists, strings and numbers, ready for JSON.

    Args:
        monitors: Monitors of the kinds in this package.
        spec: Specification for which they were made.

    Returns:
        The document.

    Raises:
        InputError: If a monitor is of a kind that has no record.
    """
    return {
        **head("monitors", VERSION),
        "observations": [channel.name for channel in spec.obs],
        "monitors": [_record(named, spec) for named in monitors],
    }


def _record(named: NamedMonitor, spec: Spec) -> dict[str, Any]:
    monitor: Any = named.monitor
    common = {
        "name": named.name,
        "false_alarms": named.false_alarms if named.calibrated else None,
        "episodes": named.episodes,
        "stretch": None if math.isnan(named.stretch) else named.stretch,
    }
    for kind, (monitor_class, arrays, static_fields) in ARRAY_MONITORS.items():
        if type(monitor) is monitor_class:
            numbers = {field: _json_value(getattr(monitor, field)) for field in arrays}
            return {
                "kind": kind,
                **common,
                **numbers,
                **{s: getattr(monitor, s) for s in static_fields},
            }
    if isinstance(monitor, FormulaMonitor):
        return {"kind": "formula", **common, "formula": formula_text(monitor.formula, spec)}
    if isinstance(monitor, EnsembleMonitor) and named.policies:
        threshold = _json_value(monitor.threshold)
        policies = list(named.policies)
        return {"kind": "ensemble", **common, "policies": policies, "threshold": threshold}
    raise InputError(
        f"monitor {named.name!r} is a {type(monitor).__name__}, which cannot be written to a "
        f"document; use one of the kinds {', '.join([*ARRAY_MONITORS, 'formula', 'ensemble'])}"
    )


def monitors_from_dict(
    data: Mapping[str, Any],
    spec: Spec,
    policies: Mapping[str, Policy] | None = None,
    source: str = "monitors",
) -> list[NamedMonitor]:
    """Inverse of :func:`monitors_to_dict`.

    Args:
        data: Result of :func:`monitors_to_dict`, possibly after a round trip through JSON.
        spec: Specification whose observations they monitor.
        policies: Policies by name, for monitors of disagreement.
        source: Origin of the data, for messages.

    Returns:
        The monitors, in order.

    Raises:
        InputError: If the document has another format or version or is for another plant, a kind or
            policy is unknown, or a field is missing, unknown or has another shape; the message
            names the monitor.
    """
    fields = check_head(data, "monitors", VERSION, source)
    _require_fields(source, fields, {"observations", "monitors"})
    names = [channel.name for channel in spec.obs]
    if fields["observations"] != names:
        raise InputError(
            f"{source} is for a plant with the observations {fields['observations']}, but the "
            f"observations of this plant are {names}"
        )
    if not isinstance(fields["monitors"], list):
        raise InputError(f"{source}: monitors must be a list, got {fields['monitors']!r:.60}")
    return [_named_monitor(record, spec, policies or {}, source) for record in fields["monitors"]]


def _named_monitor(
    record: Mapping[str, Any], spec: Spec, policies: Mapping[str, Policy], source: str
) -> NamedMonitor:
    if not isinstance(record, Mapping) or not isinstance(record.get("name"), str):
        raise InputError(
            f"{source}: every monitor must be an object with a name, got {record!r:.60}"
        )
    where, kind = f"{source}, monitor {record['name']!r}", record.get("kind")
    monitor, policy_names = _monitor_of(where, kind, record, spec, policies)
    false_alarms, episodes = record.get("false_alarms"), record.get("episodes")
    valid_rate = false_alarms is None or (isinstance(false_alarms, float) and 0 < false_alarms < 1)
    if not valid_rate or isinstance(episodes, bool) or not isinstance(episodes, int):
        raise InputError(
            f"{where}: false_alarms must be a rate in (0, 1) or null and episodes an integer, got "
            f"{false_alarms!r} and {episodes!r}"
        )
    rate = math.nan if false_alarms is None else false_alarms
    stretch = record.get("stretch")
    if stretch is not None and not (isinstance(stretch, float) and 0 < stretch < math.inf):
        raise InputError(f"{where}: stretch must be a number of seconds or null, got {stretch!r}")
    return NamedMonitor(
        record["name"],
        monitor,
        rate,
        episodes,
        policy_names,
        math.nan if stretch is None else stretch,
    )


def _monitor_of(
    where: str, kind: Any, record: Mapping[str, Any], spec: Spec, policies: Mapping[str, Policy]
) -> tuple[Any, tuple[str, ...]]:
    if kind == "formula":
        _require_fields(where, record, COMMON_FIELDS | {"formula"})
        return formula_monitor(read_formula(str(record["formula"]), spec), spec), ()
    if kind == "ensemble":
        _require_fields(where, record, COMMON_FIELDS | {"policies", "threshold"})
        for name in record["policies"]:
            if name not in policies:
                raise InputError(f"{where}: {unknown_name('policy', str(name), policies)}")
        members = [policies[name] for name in record["policies"]]
        threshold = _array(where, "threshold", record["threshold"], spec)
        return policy_ensemble(members, spec, threshold), tuple(record["policies"])
    if kind not in ARRAY_MONITORS:
        raise InputError(
            f"{where}: {unknown_name('kind', str(kind), [*ARRAY_MONITORS, 'formula'])}"
        )
    monitor_class, arrays, static_fields = ARRAY_MONITORS[kind]
    _require_fields(where, record, COMMON_FIELDS | {*arrays, *static_fields})
    values = {field: _array(where, field, record[field], spec) for field in arrays}
    if kind == "neighbours" and record["neighbours"] not in range(1, len(values["rows"]) + 1):
        raise InputError(
            f"{where}: neighbours must lie between 1 and the number of rows, "
            f"{len(values['rows'])}, got {record['neighbours']!r}"
        )
    return monitor_class(**values, **{field: record[field] for field in static_fields}), ()


def _array(where: str, field: str, value: Any, spec: Spec) -> Any:
    try:
        numbers = np.asarray(value, np.int32 if field == "max_steps" else np.float32)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{where}: {field} must hold numbers, got {value!r:.60}") from None
    n = spec.n_obs
    expected = {"whitening": (n, n), "rows": (len(numbers) if numbers.ndim else 0, n)}.get(
        field, (n,) if field in BY_CHANNEL else ()
    )
    if numbers.shape != expected or not np.isfinite(numbers).all():
        raise InputError(
            f"{where}: {field} has shape {numbers.shape}; expected finite numbers of {expected}"
        )
    return jnp.asarray(numbers)


def _json_value(value: Any) -> Any:
    """The shortest decimals that give the same float32."""
    array = np.asarray(value)
    if array.dtype.kind == "i":
        return array.tolist()
    if not np.isfinite(array).all():
        raise InputError(
            "a monitor without a threshold cannot be written to a document; calibrate it first"
        )
    shortest = np.vectorize(lambda number: float(str(number)), otypes=[np.float64])
    return shortest(array).tolist() if array.size else array.tolist()


def _require_fields(where: str, data: Mapping[str, Any], fields: set[str]) -> None:
    if set(data) != fields:
        raise InputError(
            f"{where} must have the fields {sorted(fields)}, got {sorted(map(str, data))}"
        )
