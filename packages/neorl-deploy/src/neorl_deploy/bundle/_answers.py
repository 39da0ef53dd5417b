"""Checks that the stored answers of a bundle keep its stated limits; needs only NumPy."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neorl_deploy._errors import BundleError
from neorl_deploy.bundle._manifest import ChannelEntry, Manifest

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
