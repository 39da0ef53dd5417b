"""Drafts a tag map from what a bundle states about its channels."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._manifest import ChannelEntry
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.loop._tags import TODO

HEAD = """\
# Assigns a tag of the plant to each channel of the bundle. Complete every {todo}, then run
#   neorl-deploy serve BUNDLE {name} --directory loop
bundle = {digest}

[connection]
kind = "opcua"
address = "opc.tcp://localhost:4840"

[loop]
late = 0.5          # fraction of the period after which a decision is too late to be written
most_misses = 3     # periods missed in a row before the fallback takes over for good
clean = 5           # steps without a fault before the loop may be closed
most_failures = 3   # periods without connection or with refused writes before it goes to manual
heartbeat = ""      # tag of a counter that shows the plant that the loop is alive
mode = ""           # tag that requests a mode: 0 manual, 1 shadow, 2 advisory, 3 closed loop
stop = ""           # tag that stops the loop as long as it is not 0
"""


def draft_tags(bundle: Bundle, *, plant: Path | None = None, name: str = "tags.toml") -> str:
    """The text of a tag map for the user to complete.

    Largest ages are three control periods, or what the bundle requires; limits are the measuring
    ranges widened by 5 %, as in the bundle's own monitor; tolerances are 1 % of an actuator's
    range.

    Args:
        bundle: The bundle.
        plant: The ``plant.toml`` of the log, which supplies the tag names.
        name: Name of the file, for the line that states the next step.

    Returns:
        TOML.

    Raises:
        DeployError: If the ``plant.toml`` cannot be read, or has a channel in another unit.
    """
    known = {} if plant is None else _plant_tags(plant)
    manifest = bundle.manifest
    parts = [HEAD.format(todo=TODO, name=name, digest=_text(f"sha256:{bundle.digest}"))]
    for channel in manifest.obs:
        tag = _tag(channel, known, plant)
        slack = 0.05 * (channel.high - channel.low)
        age = min(manifest.max_age.get(channel.name, 3 * manifest.dt), 3 * manifest.dt)
        parts.append(
            f"[[input]]\nchannel = {_text(channel.name)}\ntag = {_text(tag)}\n"
            f"unit = {_text(channel.unit)}\n"
            f"scale = 1.0          # channel = scale * tag + offset\noffset = 0.0\n"
            f'uncertain = "bad"    # what a value of uncertain quality counts as\n'
            f"max_age = {float(age)!r}       # seconds; "
            "inf for a setpoint, whose time is that of its last change\n"
            f"low = {_short(channel.low - slack)}\nhigh = {_short(channel.high + slack)}\n"
            f"frozen = inf         # seconds without any change after which it counts as lost\n"
            f"hold = 0.0           # seconds for which the last good value replaces a lost one\n"
        )
    for channel in manifest.action:
        tag = _tag(channel, known, plant)
        parts.append(
            f"[[output]]\nchannel = {_text(channel.name)}\ntag = {_text(tag)}\n"
            f"read_back = {_text(tag)}\nunit = {_text(channel.unit)}\n"
            f"scale = 1.0          # channel = scale * tag + offset\noffset = 0.0\n"
            f"tolerance = {_short(0.01 * (channel.high - channel.low))}\n"
            f"raw_low = {_short(channel.low)}    # limits of what is written to the tag\n"
            f"raw_high = {_short(channel.high)}\n"
            f'advice = ""\n'
            f'permit = ""           # tag that is 1 while the plant permits writing\n'
        )
    return "\n".join(parts)


def _tag(channel: ChannelEntry, known: dict[str, dict[str, Any]], plant: Path | None) -> str:
    entry = known.get(channel.name)
    if entry is None:
        return TODO
    unit = entry.get("unit", "")
    if unit != channel.unit:
        raise DeployError(
            f"{plant}: {channel.name} is in {unit!r} there, the bundle has it in {channel.unit!r}; "
            "this is not the log that the policy was trained on"
        )
    return str(entry.get("tag", channel.name))


def _plant_tags(plant: Path) -> dict[str, dict[str, Any]]:
    try:
        document = tomllib.loads(plant.read_text("utf-8"))
    except OSError as error:
        raise DeployError(f"cannot read {plant}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeError) as error:
        raise DeployError(f"{plant} is not valid TOML: {error}") from error
    tables = document.get("tag", [])
    if not isinstance(tables, list):
        raise DeployError(f"{plant} has no [[tag]], so it is not a plant.toml")
    return {t["name"]: t for t in tables if isinstance(t, dict) and isinstance(t.get("name"), str)}


def _short(value: float) -> str:
    """A number as a person would write it, without binary rounding digits."""
    return repr(float(f"{value:.10g}"))


def _text(value: str) -> str:
    """A TOML string: as in JSON, except for the one control character that JSON does not escape."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
