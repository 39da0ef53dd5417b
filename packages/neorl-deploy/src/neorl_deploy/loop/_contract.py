"""Who may write: what the plant's side shows, and why the loop may not write now."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from neorl_deploy.loop._block import TEXTS, BlockReason
from neorl_deploy.loop._tags import TagMap

UNATTENDED = "the plant has no permit and watches no heartbeat"
"""What a tag map must say in words if the loop may be closed without permits or a heartbeat."""


class Claim(NamedTuple):
    """What the loop has seen of the block's owner.

    Attributes:
        other: Another loop that has the block; 0 if none has.
        beat: The last beat of that loop.
        still: Periods for which that beat has not changed.
        taken: Whether the block has taken a proposal since the loop was closed.
    """

    other: int = 0
    beat: float = math.nan
    still: int = 0
    taken: bool = False


NO_CLAIM = Claim()


def watch_owner(
    before: Claim, loop_tags: Mapping[str, float], own: int, *, most: int, closed: bool
) -> Claim:
    """Follows who owns the block; a loop whose beat stands still for some periods owns it no more.

    Args:
        before: What was seen before.
        loop_tags: The tags of the loop by name; NaN if unknown.
        own: Owner number of this loop.
        most: Periods after which a beat that stands still is that of a process that has ended.
        closed: Whether this loop writes to the actuators.
    """
    owner, beat = loop_tags["owner"], loop_tags["heartbeat"]
    if math.isnan(owner):
        return before
    taken = closed and (before.taken or loop_tags["active"] == 1)
    if owner in (0, own):
        return Claim(taken=taken)
    moved = owner != before.other or beat != before.beat
    still = 0 if moved else before.still + 1
    return Claim(0 if still >= most else int(owner), beat, still, taken)


def objection(
    tags: TagMap, loop_tags: Mapping[str, float], claim: Claim, own: int, *, closed: bool
) -> str:
    """Why the plant does not let the loop write; empty if it does.

    Args:
        tags: The tag map.
        loop_tags: The tags of the loop by name; NaN if unknown.
        claim: What was seen of the block's owner.
        own: Owner number of this loop.
        closed: Whether the loop writes to the actuators already.
    """
    if tags.block is None:
        return _of_direct_writing(tags, loop_tags)
    names = ("owner", "granted", "sequence", "active", "reason")
    unknown = [tags.named[name] for name in names if math.isnan(loop_tags[name])]
    if unknown:
        return f"the block of the plant cannot be read: {', '.join(unknown)}"
    if claim.other:
        return f"another loop, owner {claim.other}, has the block"
    if closed and loop_tags["active"] == 1:
        return ""
    reason = loop_tags["reason"]
    text = (
        TEXTS.get(BlockReason(int(reason)), "")
        if reason in set(BlockReason)
        else f"reason {reason:g}"
    )
    if reason != BlockReason.NOT_ASKED or (closed and claim.taken):
        return f"the block does not take the proposal: {text}"
    if loop_tags["granted"] != own:
        return f"the block does not take the proposal: {TEXTS[BlockReason.NOT_GRANTED]}"
    return ""


def _of_direct_writing(tags: TagMap, loop_tags: Mapping[str, float]) -> str:
    lacking = [output.channel for output in tags.outputs if not output.permit]
    if (lacking or not tags.loop.heartbeat) and tags.loop.unattended != UNATTENDED:
        what = [f"a permit for {', '.join(lacking)}"] if lacking else []
        what += [] if tags.loop.heartbeat else ["a heartbeat"]
        return (
            f"direct writing needs {' and '.join(what)} in the tag map, or in [loop] the words "
            f'unattended = "{UNATTENDED}"'
        )
    for output in tags.outputs:
        if output.permit and loop_tags[f"permit {output.channel}"] != 1:
            return f"{output.channel} has no permit: {output.permit} is not 1"
    return ""
