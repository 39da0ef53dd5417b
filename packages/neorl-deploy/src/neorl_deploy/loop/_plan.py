"""Roll-out plans: reads, drafts and checks the plan file."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._manifest import Manifest
from neorl_deploy.loop._tags import read_row

DEFAULT_TURNS = 10
EPISODES = re.compile(r"About (\d+) episodes of each")
"""Pattern by which a verdict "worth a trial" gives the length of the trial."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """A roll-out plan, as written in its file.

    Attributes:
        limits: Lowest and highest acceptable value by observed channel; a step outside is a
            violation.
        shadow_steps: Steps in shadow before the first turn.
        turn_steps: Steps per turn.
        turns: Number of turns of the policy; the present controller has as many turns in between.
        authority: Fraction of the range of every actuator by which the policy may move it, in a
            turn, from its initial position.
        window: Number of steps over which the policy is judged once it has full authority.
        most_fallback: Largest fraction of the policy's steps in which its fallback may act.
        significance: The policy is rolled back if this many violations or more are at most this
            likely, assuming that it breaks the limits no more often than the present controller.
        full: ``"ask"``: a person grants full authority; or ``"automatic"``.
        rollback: ``"fallback"``: the bundle's fallback acts until a person requests a mode; or
            ``"shadow"``: nothing is written any more.
    """

    limits: dict[str, tuple[float, float]]
    shadow_steps: int = 100
    turn_steps: int = 50
    turns: int = DEFAULT_TURNS
    authority: float = 0.1
    window: int = 200
    most_fallback: float = 0.1
    significance: float = 0.05
    full: str = "ask"
    rollback: str = "fallback"


def draft_plan(manifest: Manifest) -> str:
    """Drafts a plan file to complete, based on the verdict and the channels of a bundle.

    A turn is one episode. There are as many turns as the verdict "worth a trial" recommends
    episodes; ten if it gives no number.
    """
    sentence = str(manifest.document["verdict"].get("sentence", ""))
    number = EPISODES.search(sentence)
    turns = int(number[1]) if number else DEFAULT_TURNS
    lines = [
        f"# Plan of a roll-out, drafted from the bundle of run {manifest.run}.",
        f"turns = {turns}           # turns of the policy, each followed by one of what runs today"
        + ("; as the verdict recommends" if number else ""),
        f"turn_steps = {manifest.horizon}      # steps of a turn, here one episode",
        f"shadow_steps = {2 * manifest.horizon}",
        "authority = 0.1      # fraction of an actuator's range, around its value at the start",
        "most_fallback = 0.1  # largest fraction of the policy's steps in which the fallback acts",
        'full = "ask"         # or "automatic"',
        'rollback = "fallback"  # or "shadow"',
        "",
        "# A step outside these limits is a violation. They are drafted from the measuring ranges:",
        "# narrow each to good operation, or delete its line. A plan that narrows none is refused.",
        "[limits]",
        *(f'"{c.name}" = [{c.low!r}, {c.high!r}]  # {c.unit}' for c in manifest.obs),
    ]
    return "\n".join(lines) + "\n"


def read_plan(path: Path, manifest: Manifest) -> Plan:
    """Reads a plan and checks it against the bundle.

    Args:
        path: TOML file, drafted by ``neorl-deploy init --rollout``.
        manifest: Manifest of the bundle.

    Raises:
        DeployError: If it cannot be read, or a number or a channel does not fit; one line.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DeployError(f"cannot read the plan {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeError) as error:
        raise DeployError(f"the plan {path} is not valid TOML: {error}") from error
    limits = _limits(document.pop("limits", None), manifest, str(path))
    plan = read_row({**document, "limits": limits}, Plan, str(path))
    parts = {"authority": plan.authority, "most_fallback": plan.most_fallback}
    parts["significance"] = plan.significance
    for name, value in parts.items():
        if not 0 < value <= 1:
            raise DeployError(f"{path}: {name} must be above 0 and at most 1, got {value:g}")
    for name, choices in (("full", ("ask", "automatic")), ("rollback", ("fallback", "shadow"))):
        if getattr(plan, name) not in choices:
            raise DeployError(f"{path}: {name} must be {' or '.join(map(repr, choices))}")
    return plan


def _limits(table: Any, manifest: Manifest, source: str) -> dict[str, tuple[float, float]]:
    names = [channel.name for channel in manifest.obs]
    if not isinstance(table, dict) or not table:
        raise DeployError(f"{source}: [limits] is missing; it says which values are good")
    limits = {}
    for name, ends in table.items():
        if name not in names:
            raise DeployError(f"{source}, [limits]: the bundle observes no {name!r}")
        pair = isinstance(ends, list) and len(ends) == 2
        if not (pair and all(type(end) in (int, float) for end in ends) and ends[0] < ends[1]):
            raise DeployError(f"{source}, [limits]: {name} must be [lowest, highest], got {ends!r}")
        limits[name] = (float(ends[0]), float(ends[1]))
    ranges = {channel.name: (channel.low, channel.high) for channel in manifest.obs}
    if all(
        low <= ranges[name][0] and high >= ranges[name][1] for name, (low, high) in limits.items()
    ):
        raise DeployError(
            f"{source}, [limits]: every limit is as wide as the measuring range, so that no "
            "violation could be seen; narrow those of the channels that tell good from bad"
        )
    return limits
