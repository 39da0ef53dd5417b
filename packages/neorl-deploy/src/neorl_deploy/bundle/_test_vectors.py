"""Test vectors: inputs with the training side's answers, which check a runtime and the limits."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neorl_deploy._errors import BundleError
from neorl_deploy.bundle._manifest import MAX_ROUNDING, ChannelEntry, Manifest

# Compares numbers with declared ranges, of which both may have been rounded to float32.


RESOLUTION = float(np.finfo(np.float32).eps)
"""Relative distance of neighbouring float32 numbers."""


def rounding(low: float, high: float) -> float:
    """How far rounding to float32 may take a number beyond its range; an end may be infinite."""
    # A sensor at the end of its range may send 100.00001 for a limit of 100.
    return RESOLUTION * max((abs(end) for end in (low, high) if math.isfinite(end)), default=0.0)


def outside(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether numbers lie outside their ranges by more than float32 rounding; NaN does not."""
    slack = np.array([rounding(*ends) for ends in zip(low, high, strict=True)])
    numbers = np.asarray(values, np.float64)
    return (numbers < low - slack) | (numbers > high + slack)


# Test vectors: inputs with the training side's answers, by which a runtime is checked.


SEED = 7
N_RANDOM = 32
N_STEPS = 64
MAX_CHANNELS = 16
"""In wide observations, only the first channels are varied one by one."""


def single_vectors(
    obs: Sequence[ChannelEntry], action: Sequence[ChannelEntry], recorded: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Observations and last actions that cover normal and extreme cases.

    They include recorded and random observations within range; every channel at and beyond both
    ends of its range; NaN, infinities, huge and subnormal numbers; and last actions that are
    unknown, mid-range, at the limits and beyond.

    Args:
        obs: Observed channels.
        action: Manipulated channels.
        recorded: Observations from the policy artefact, shape ``(vector, obs)``.

    Returns:
        ``obs`` and ``last_sent``, one row per vector, float32.
    """
    rng = np.random.default_rng(SEED)
    low, high = _ends(obs)
    middle = (low + high) / 2
    rows = [*recorded, *rng.uniform(low, high, (N_RANDOM, len(obs)))]
    for i in range(min(len(obs), MAX_CHANNELS)):
        span = high[i] - low[i]
        for value in (low[i], high[i], low[i] - span / 2, high[i] + span / 2, np.nan):
            rows.append(np.where(np.arange(len(obs)) == i, value, middle))
    # Huge, but not so huge that the order of summation decides between finite and infinite.
    for value in (np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-40):
        rows.append(np.full(len(obs), value))
    observations = np.asarray(rows, np.float32)
    return observations, _last_actions(action, len(observations))


def _last_actions(action: Sequence[ChannelEntry], count: int) -> np.ndarray:
    low, high = _ends(action)
    span = high - low
    kinds = np.stack(
        [
            np.full(len(action), np.nan),
            (low + high) / 2,
            low,
            high,
            low - span,
            high + span,
            np.full(len(action), np.inf),
            np.where(np.arange(len(action)) == 0, np.nan, (low + high) / 2),
        ]
    )
    return kinds[np.arange(count) % len(kinds)].astype(np.float32)


def sequence_vectors(
    obs: Sequence[ChannelEntry], action: Sequence[ChannelEntry]
) -> tuple[np.ndarray, np.ndarray]:
    """A drifting sequence of observations with lost sensors and an interval of manual control.

    Returns:
        ``obs`` and ``overrides`` (the action that the plant received instead of the policy's; NaN
        where it received the policy's), one row per step, float32.
    """
    rng = np.random.default_rng(SEED + 1)
    low, high = _ends(obs)
    walk = np.cumsum(rng.normal(0, 0.04, (N_STEPS, len(obs))), axis=0)
    observations = low + (high - low) * (0.5 + 0.45 * np.sin(2 * walk + rng.normal(size=len(obs))))
    observations[20, 0] = np.nan
    observations[21:23] = np.nan
    low, high = _ends(action)
    overrides = np.full((N_STEPS, len(action)), np.nan)
    overrides[30:36] = rng.uniform(low, high)
    overrides[45] = high + (high - low)
    return observations.astype(np.float32), overrides.astype(np.float32)


def vector_archive(sections: dict[str, dict[str, np.ndarray]]) -> bytes:
    """The test vectors as an ``.npz`` archive; equal arrays give equal bytes."""
    arrays = {
        f"{section}_{name}": array
        for section, columns in sections.items()
        for name, array in columns.items()
    }
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def compared(
    action: Sequence[ChannelEntry],
    checked: int,
    answers: tuple[np.ndarray, np.ndarray],
    stored: Mapping[str, np.ndarray],
) -> tuple[float, bool]:
    """How far answers to test vectors are from the stored ones.

    Args:
        action: Manipulated channels.
        checked: The flags that must be equal, as bits.
        answers: Actions and flags, one row per vector.
        stored: ``action``, ``rounding`` and ``flags`` of the vectors.

    Returns:
        The :func:`relative_difference` of the actions, and whether those flags are equal.
    """
    actions, flags = answers
    difference = relative_difference(action, actions, stored["action"], stored["rounding"])
    bits = np.uint32(checked)
    return difference, np.array_equal(flags & bits, stored["flags"] & bits)


def relative_difference(
    action: Sequence[ChannelEntry],
    actual: np.ndarray,
    expected: np.ndarray,
    rounding: np.ndarray | float = 0.0,
) -> float:
    """Largest difference between two sets of actions, relative to the size of their channel.

    The size of a channel is the larger of its span and the magnitudes of its limits: 1e-6 of it is
    about 8 units in the last place of a float32 number of that size.

    Args:
        action: Manipulated channels.
        actual: Actions, shape ``(vector, act)``.
        expected: Actions to compare with, of the same shape.
        rounding: How much each expected action may differ by float32 rounding; this much of a
            difference is ignored, up to 1e-4 of the channel's size.

    Returns:
        The difference beyond rounding; infinite if an action is NaN.
    """
    size = _sizes(action)
    difference = np.abs(np.asarray(actual, np.float64) - np.asarray(expected, np.float64)) / size
    difference = np.maximum(difference - relative_rounding(action, rounding), 0.0)
    # A NaN makes every comparison false, so it counts as an infinite difference.
    return float("inf") if np.isnan(difference).any() else float(difference.max(initial=0.0))


def relative_rounding(action: Sequence[ChannelEntry], rounding: np.ndarray | float) -> np.ndarray:
    """The part of each action that counts as rounding, relative to the size of its channel.

    Args:
        action: Manipulated channels.
        rounding: Stored rounding in the units of the channels, shape ``(vector, act)``.

    Returns:
        Numbers between 0 and 1e-4; 0 where the stored value is NaN or negative.
    """
    stated = np.asarray(rounding, np.float64) / _sizes(action)
    # A forged value, NaN or huge, must not make every difference count as rounding.
    return np.clip(np.nan_to_num(stated, nan=0.0), 0.0, MAX_ROUNDING)


def _sizes(channels: Sequence[ChannelEntry]) -> np.ndarray:
    low, high = _ends(channels)
    return np.maximum(high - low, np.maximum(np.abs(low), np.abs(high)))


def _ends(channels: Sequence[ChannelEntry]) -> tuple[np.ndarray, np.ndarray]:
    low = np.array([channel.low for channel in channels])
    return low, np.array([channel.high for channel in channels])


# Checks that the stored answers of a bundle keep its stated limits; needs only NumPy.


ROUNDING = 1e-6
"""Float32 rounding that is allowed, relative to the numbers compared."""


def require_answers_within_limits(
    source: str, manifest: Manifest, sections: Mapping[str, Mapping[str, np.ndarray]]
) -> None:
    """Raises unless every stored action keeps range, box and rate, and all flags are known.

    The answers come from the training side, and the programs must reproduce them at load. This
    check therefore detects, without running anything, stated limits or periods that are tighter
    than those of the programs, and actions that no honest guard would send. A rate is checked only
    if the last action is known, and a box only if no interlock may leave it and the step began
    inside.

    Args:
        source: Name of the file for messages.
        manifest: A parsed manifest.
        sections: ``last_sent``, ``action`` and ``flags`` of the test vectors, by section.

    Raises:
        BundleError: Names the channel and the first action that breaks a limit.
    """
    try:
        limits = _limits(manifest.document["constraints"], manifest.action)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(f"{source}: its constraints are malformed: {error!r}") from error
    known = sum(set(manifest.flags.values()))
    for section, vectors in sections.items():
        unknown = vectors["flags"] & ~np.uint32(known)
        if unknown.any():
            raise BundleError(
                f"{source}: the stored answers ({section}) have flags that it does not name"
            )
        _require_within_limits(
            f"{source}: the stored answers ({section})", manifest, limits, vectors
        )


def _limits(document: Any, channels: Sequence[ChannelEntry]) -> dict[str, np.ndarray]:
    """Ends of the actuator range and the box, and the largest steps up and down, per channel."""
    declared = [(entry["name"], entry["unit"]) for entry in document["channels"]]
    if declared != [(channel.name, channel.unit) for channel in channels]:
        raise ValueError("they are for other channels than the programs set")
    at = {channel.name: i for i, channel in enumerate(channels)}
    low, high = (np.array([float(e[k]) for e in document["channels"]]) for k in ("low", "high"))
    limits = {"range_low": low, "range_high": high, "low": low.copy(), "high": high.copy()}
    limits |= {"up": np.full(len(at), np.inf), "down": np.full(len(at), np.inf)}
    boxed = set()
    for record in document["constraints"]:
        if record["kind"] in ("box", "rate"):
            i = at[record["channel"]]
            for field in ("low", "high") if record["kind"] == "box" else ("up", "down"):
                value = record[field]
                limits[field][i] = np.inf if value is None else float(value)
            boxed |= {i} if record["kind"] == "box" else set()
    if len(boxed) != len(at):
        raise ValueError("a channel has no box")
    if any(record["kind"] == "interlock" for record in document["constraints"]):
        limits |= {"low": low, "high": high}
    return limits


def _require_within_limits(
    where: str,
    manifest: Manifest,
    limits: Mapping[str, np.ndarray],
    vectors: Mapping[str, np.ndarray],
) -> None:
    action = vectors["action"].astype(np.float64)
    if not np.isfinite(action).all():
        raise BundleError(f"{where} hold an action that is not finite")
    known = np.isfinite(vectors["last_sent"])
    start = np.clip(
        np.where(known, vectors["last_sent"], 0), limits["range_low"], limits["range_high"]
    )
    inside = known & (start >= limits["low"]) & (start <= limits["high"])
    step = action - start
    largest = {name: limits[name] * manifest.dt for name in ("up", "down")}
    # The stored float32 numbers are rounded in proportion to their size, not to the step.
    allowed = ROUNDING * (np.abs(action) + np.abs(start))
    violations = {
        "leave the range of the actuator": (action < limits["range_low"] - allowed)
        | (action > limits["range_high"] + allowed),
        "leave the box": inside
        & ((action < limits["low"] - allowed) | (action > limits["high"] + allowed)),
        "move faster than the rate": known
        & ((step > largest["up"] + allowed) | (-step > largest["down"] + allowed)),
    }
    for fault, violated in violations.items():
        if violated.any():
            row, i = (int(index) for index in np.argwhere(violated)[0])
            channel = manifest.action[i]
            raise BundleError(
                f"{where} {fault} that the bundle states: {channel.name} goes to "
                f"{action[row, i]:g} {channel.unit} in vector {row}; it was not exported like "
                "this, fetch it again"
            )
