"""A loaded bundle: a thin stateful shell around the exported program (extra ``jax``)."""

from __future__ import annotations

import enum
import math
import os
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy._errors import BundleError, NotDeployable
from neorl_deploy.bundle._manifest import Manifest
from neorl_deploy.bundle._read import Bundle, read_bundle
from neorl_deploy.bundle._test_vectors import relative_difference
from neorl_deploy.bundle._verdict import DEPLOY
from neorl_deploy.runtime._events import (
    FALLBACK,
    LOGGER,
    POLICY,
    RELEASE,
    RESET,
    STOP,
    Event,
    Events,
)
from neorl_deploy.runtime._packed import layout_of, packed, packed_step
from neorl_deploy.runtime._programs import (
    STOPPED,
    TOLD,
    jax_module,
    one_line_of,
    open_programs,
    told_entries,
)
from neorl_deploy.runtime._trial import TIME_LIMIT, require_trial

SELF_TEST_TOLERANCE = 1e-5
"""Between machines whose compilers round differently; on one machine parity is 1e-6."""


OF_THE_ACTION = ("active", "rows_infeasible", "hand_over")
"""Parts of names of flags that may depend on the last bit of an action."""


NO_CAUSES = frozenset({"fallback_used", "hand_over", "fallback_clipped", "monitor_alarm"})
"""Flags of a take-over that are no cause of it, or that the names of the monitors say better."""


class LastSent(enum.Enum):
    """What is said of the last action in place of its value."""

    AS_PROPOSED = "as proposed"
    """The plant received the last decision as it was; only where that is certain."""
    UNKNOWN = "unknown"
    """Nobody can say: no read-back yet, or it was lost."""


AS_PROPOSED, UNKNOWN = LastSent.AS_PROPOSED, LastSent.UNKNOWN


class Decision(NamedTuple):
    """One step of a bundle.

    Attributes:
        action: Action to send to the plant, physical units, shape ``(act,)``.
        flags: Decisions of the filter, named by :meth:`Runtime.flag_names`.
        limits: Active limits of every channel, shape ``(act,)``.
        intervention: Distance by which each channel was moved, in its unit, shape ``(act,)``.
        alarms: Monitors that alarm, named by :meth:`Runtime.alarm_names`.
    """

    action: np.ndarray
    flags: int
    limits: np.ndarray
    intervention: np.ndarray
    alarms: int


def load_bundle(
    path: str | os.PathLike[str],
    *,
    trusted_key: str | None = None,
    require_deploy: bool = False,
    self_test: bool = True,
    time_limit: float = TIME_LIMIT,
) -> Runtime:
    """Verifies a bundle, then loads its programs, then has them answer the test vectors.

    Before they run here, another process runs the programs for a limited time. The self-test then
    runs the very programs that will act: among the vectors are NaN and infinities, so a runtime
    that was compiled to ignore them is refused. A verdict other than "deploy" is logged as a
    warning.

    Args:
        path: The directory.
        trusted_key: Hexadecimal public key that must have signed it.
        require_deploy: Whether to refuse every verdict other than "deploy".
        self_test: Whether to compare with the test vectors.
        time_limit: Seconds that the programs may take in the other process.

    Returns:
        A runtime at the start of an episode.

    Raises:
        NotDeployable: If the verdict is not "deploy" and ``require_deploy`` asks for it.
        BundleError: If it is not intact, made for another platform or calling convention, does not
            end in time, or answers the test vectors otherwise.
        DeployError: If the extra ``jax`` is not installed.
    """
    bundle = read_bundle(path, trusted_key=trusted_key)
    verdict = bundle.manifest.verdict
    if verdict != DEPLOY:
        if require_deploy:
            raise NotDeployable(f"the verdict of {bundle.path} is {verdict!r}; it is not loaded")
        LOGGER.warning("the verdict of %s is %r: it is for shadow mode only", bundle.path, verdict)
    open_programs(bundle)  # what can be seen without running them is refused first
    require_trial(bundle, time_limit)
    runtime = Runtime(bundle)
    if self_test:
        runtime.self_test()
    return runtime


class Runtime:
    """Acts step by step, remembering the carry. Not for several threads.

    Args:
        bundle: A verified bundle.

    Attributes:
        bundle: The verified bundle.
        manifest: Manifest of the bundle: channels, units, verdict, provenance.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.manifest: Manifest = bundle.manifest
        programs = open_programs(bundle)
        with one_line_of(bundle, "its programs do not run"):
            fresh = tuple(programs.initial_carry.call())
            self._layout = layout_of([*self.manifest.carry, *told_entries(bundle)])
            self._step = packed_step(programs.step.call, self._layout, len(fresh))
            self._initial = _on_device(packed(self._layout, fresh))
        self._carry = self._initial
        self._proposed = self._nothing_sent()
        self._events, self._steps, self._fell_back, self._testing = Events(), 0, False, False
        self._fallback_used = self.manifest.flags.get("fallback_used", 0)
        self._max_age = np.array(
            [self.manifest.max_age.get(c.name, math.inf) for c in self.manifest.obs]
        )

    def reset(self) -> None:
        """Starts an episode: a fresh carry, no action sent yet.

        An emergency stop and a latch outlive it: only :meth:`release` ends them.
        """
        held = {name: self._supervisor(name) for name in (*STOPPED, "trips")}
        self._carry, self._proposed = self._initial, self._nothing_sent()
        if held["latched"]:
            for name, value in held.items():
                self._set(name, value)
        self._events.note(self._steps, RESET, "a new episode")

    def stop(self, reason: str) -> None:
        """Emergency stop: the fallback acts from the next step on, until :meth:`release`.

        Args:
            reason: Who pressed it and why; it is kept and logged.

        Raises:
            ValueError: If no reason is given.
        """
        for name in STOPPED:
            self._set(name, np.ones_like(self._supervisor(name)))
        self._events.note(self._steps, STOP, _said(reason))

    def release(self, reason: str) -> None:
        """Lets the policy act again after a latch or a stop, once all is well.

        Args:
            reason: Who decided that and why; it is kept and logged.

        Raises:
            ValueError: If no reason is given.
        """
        said = _said(reason)
        for name in ("latched", "stopped", "trips"):
            self._set(name, np.zeros_like(self._supervisor(name)))
        self._events.note(self._steps, RELEASE, said)

    @property
    def events(self) -> tuple[Event, ...]:
        """Stops, releases, resets and changes of who acts, with their reasons, oldest first."""
        return self._events.list()

    @property
    def carry(self) -> dict[str, np.ndarray]:
        """Copies of what the policy keeps between two steps, by the manifest's names."""
        words = np.asarray(self._carry)
        return {e.name: self._layout.get(words, e.name) for e in self.manifest.carry}

    def _supervisor(self, name: str) -> np.ndarray:
        return self._layout.get(np.asarray(self._carry), f".supervisor.{name}")

    def _set(self, name: str, value: np.ndarray) -> None:
        changed = self._layout.set(np.asarray(self._carry), f".supervisor.{name}", value)
        self._carry = _on_device(changed)

    def step(
        self,
        obs: np.ndarray,
        last_sent: np.ndarray | LastSent,
        *,
        ages: np.ndarray | None = None,
        max_age: float | None = None,
    ) -> Decision:
        """One control period.

        Args:
            obs: One observation in the order and units of ``manifest.obs``; NaN where a
                measurement is missing.
            last_sent: Action that the plant received since the last call, read back, in the order
                and units of ``manifest.action``; NaN where a channel was not read. Or
                ``LastSent.AS_PROPOSED`` or ``LastSent.UNKNOWN``. What is not known is assumed
                to be the last decision for a few steps, then the fallback acts; the rate limit
                holds in either case.
            ages: Seconds since each measurement was taken, shape ``(obs,)``; ``None`` where the
                source does not say. A measurement from the future (a negative age, after a clock
                was set back) counts as lost.
            max_age: Seconds after which a measurement counts as lost; never longer than the bundle
                has for the channel.

        Returns:
            The action to send and what the filter did. The action is finite, whatever comes in.

        Raises:
            ValueError: If a shape does not fit the channels, ``max_age`` is not positive or comes
                without ``ages``, or the bundle limits ages and none are given.
        """
        width = len(self.manifest.action)
        read = _vector("obs", obs, len(self.manifest.obs))
        if max_age is not None and not max_age > 0:
            raise ValueError(f"max_age must be a positive number of seconds, got {max_age}")
        if max_age is not None and ages is None:
            raise ValueError("max_age is given without the ages that it limits; give ages")
        if ages is not None:
            old = _vector("ages", ages, len(self.manifest.obs))
            most = self._max_age if max_age is None else np.minimum(self._max_age, max_age)
            read = np.where((old >= 0) & (old <= most), read, np.float32(np.nan))
        elif self.manifest.max_age and not self._testing:
            aged = ", ".join(self.manifest.max_age)
            raise ValueError(f"this bundle refuses old measurements of {aged}; give ages")
        if isinstance(last_sent, LastSent):
            sent = self._proposed if last_sent is AS_PROPOSED else self._nothing_sent()
        else:
            sent = _vector("last_sent", last_sent, width)
        if self._testing:
            with one_line_of(self.bundle, "its programs do not run"):
                self._carry = self._step(self._carry, read, sent)
        else:
            self._carry = self._step(self._carry, read, sent)
        words = np.asarray(self._carry)
        action, flags, limits, intervention, alarms = (
            self._layout.get(words, name) for name in TOLD
        )
        self._proposed = action.copy()
        decision = Decision(action, int(flags), limits, intervention, int(alarms))
        if not self._testing:
            self._note_who_acts(decision)
        return decision

    def _note_who_acts(self, decision: Decision) -> None:
        fell_back = bool(decision.flags & self._fallback_used)
        if fell_back != self._fell_back:
            causes = [name for name in self.flag_names(decision.flags) if name not in NO_CAUSES]
            alarms = [f"monitor {name}" for name in self.alarm_names(decision.alarms)]
            who = FALLBACK if fell_back else POLICY
            self._events.note(self._steps, who, ", ".join(causes + alarms) or "all is well")
            self._fell_back = fell_back
        self._steps += 1

    def _nothing_sent(self) -> np.ndarray:
        return np.full(len(self.manifest.action), np.nan, np.float32)

    @property
    def findings(self) -> int:
        """The flags that say something of the inputs.

        Whether a limit is active may depend on the last bit of an action; these may not.
        """
        flags = self.manifest.flags.items()
        return sum(bit for name, bit in flags if not any(part in name for part in OF_THE_ACTION))

    def flag_names(self, flags: int) -> tuple[str, ...]:
        """Names of the decisions in ``flags``."""
        return self.manifest.flag_names(flags)

    def alarm_names(self, alarms: int) -> tuple[str, ...]:
        """Names of the monitors in ``alarms``."""
        return self.manifest.alarm_names(alarms)

    def answers(self, section: str) -> tuple[np.ndarray, np.ndarray]:
        """Action and flags for the inputs of a section of the test vectors."""
        vectors = self.bundle.test_vectors(section)
        saved, proposed, self._carry = self._carry, self._proposed, self._initial
        decisions, self._testing = [], True
        for obs, last_sent in zip(vectors["obs"], vectors["last_sent"], strict=True):
            if section == "single":
                self._carry = self._initial
            decisions.append(self.step(obs, last_sent))
        self._carry, self._proposed, self._testing = saved, proposed, False
        actions = np.stack([decision.action for decision in decisions])
        return actions, np.array([decision.flags for decision in decisions], np.uint32)

    def self_test(self, tolerance: float = SELF_TEST_TOLERANCE) -> float:
        """Compares the answers to all test vectors.

        Args:
            tolerance: Largest allowed difference in units of a channel's size.

        Returns:
            The largest difference found.

        Raises:
            BundleError: If an action differs by more, or a finding about the inputs (which
                was not finite, out of range, unknown) is not the same.
        """
        findings, worst = np.uint32(self.findings), 0.0
        for section in ("single", "sequence"):
            vectors = self.bundle.test_vectors(section)
            actions, flags = self.answers(section)
            difference = relative_difference(
                self.manifest.action, actions, vectors["action"], vectors["rounding"]
            )
            worst = max(worst, difference)
            same = np.array_equal(flags & findings, vectors["flags"] & findings)
            if not (difference <= tolerance and same):
                raise BundleError(
                    f"{self.bundle.path}: this machine answers the test vectors ({section}) "
                    f"otherwise: largest difference {difference:.1e} of a channel's size, allowed "
                    f"{tolerance:.0e}, flags {'equal' if same else 'different'}; do not run it "
                    "here (is fast math on?)"
                )
        return worst


def _on_device(words: np.ndarray) -> Any:
    """Words where a step leaves them too, so that one compiled program takes either."""
    jax = jax_module()
    return jax.device_put(words, jax.devices()[0])


def _said(reason: str) -> str:
    if not reason.strip():
        raise ValueError("say who decides this and why: the reason is kept and logged")
    return reason


def _vector(name: str, value: Any, width: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        vector = np.asarray(value, np.float32)
    if vector.shape != (width,):
        raise ValueError(f"{name} has shape {vector.shape}; expected ({width},)")
    return vector
