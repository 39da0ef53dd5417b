"""Bounded authority: limits how far a policy on trial may move the actuators."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from neorl_deploy.bundle._manifest import Manifest
from neorl_deploy.runtime._decision import Decision

OF_BOX_AND_RATE = frozenset({"low", "high", "rate_down", "rate_up", "wear"})
"""Limits that any action between two admissible actions satisfies too."""


class Authority(NamedTuple):
    """A band around the actuator positions at the time it was granted.

    Attributes:
        anchor: Values that the actuators held, in the units of the channels.
        width: How far an action may lie from the anchor, by channel.
    """

    anchor: np.ndarray
    width: np.ndarray

    def bound(self, decision: Decision, received: np.ndarray, manifest: Manifest) -> np.ndarray:
        """Brings the decision's action into the band, along the line to the present values.

        All channels are scaled back by one factor, so the action lies between two that satisfy box,
        rate and linear rows, and satisfies them too. It is not scaled back if an interlock, a row
        or another limit has moved it, nor if the fallback acts: protecting the plant takes
        precedence over limiting the policy.

        Args:
            decision: Decision of the bundle.
            received: Present values of the actuators; if one is NaN (unknown), nothing is moved.
            manifest: Manifest of the bundle.

        Returns:
            The action to write, float32.
        """
        other_limits = sum(b for n, b in manifest.limits.items() if n not in OF_BOX_AND_RATE)
        fell_back = decision.flags & manifest.flags.get("fallback_used", 0)
        if fell_back or (decision.limits & np.uint32(other_limits)).any():
            return decision.action
        action, held = decision.action.astype(np.float64), received.astype(np.float64)
        low, high = self.anchor - self.width, self.anchor + self.width
        move = action - held
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(move > 0, (high - held) / move, (low - held) / move)
        ratio = np.where(move == 0, 1.0, ratio)  # in place of a division by zero
        # An unknown position gives NaN, and then nothing is moved.
        factor = float(np.clip(np.nan_to_num(ratio, nan=0.0), 0.0, 1.0).min(initial=1.0))
        if factor == 1.0:
            return decision.action
        known = np.isfinite(held)
        return np.where(known, held + factor * move, decision.action).astype(np.float32)
