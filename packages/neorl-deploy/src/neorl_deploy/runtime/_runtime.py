"""A loaded bundle: a thin stateful wrapper around the exported step."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from neorl_deploy._errors import BundleError
from neorl_deploy.bundle._manifest import Manifest
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.bundle._test_vectors import compared
from neorl_deploy.runtime._decision import (
    AS_PROPOSED,
    FALLBACK,
    POLICY,
    RELEASE,
    RESET,
    RESTART,
    STOP,
    Decision,
    Event,
    Events,
    LastSent,
    causes_in_words,
    findings,
    vector,
)
from neorl_deploy.runtime._forms import OUTPUTS, STOPPED, FormName, one_line_of, open_form
from neorl_deploy.runtime._state import (
    State,
    StateFile,
    aged_words,
    read_state,
    write_state,
)

SELF_TEST_TOLERANCE = 1e-5
"""Allows for compilers that round differently; on one machine parity is 1e-6."""

NOBODY = -1
"""Value of a guard's ``acted`` if neither its policy nor its fallback acted last."""


class Runtime:
    """Runs a bundle step by step and keeps the carry. Do not share it between threads.

    For a plant, create one with :func:`~neorl_deploy.runtime.load_bundle`. A runtime that is
    constructed directly lets the policy act from the first step on, without the trial run, the
    self-test and a state file; this is meant for tests and simulations.

    Args:
        bundle: A verified bundle.
        form: ``"stablehlo"``, compiled (extra ``jax``), or ``"numpy"``, with NumPy only.

    Attributes:
        bundle: The verified bundle.
        form: The form that runs.
        manifest: Manifest of the bundle: channels, units, verdict, provenance.
    """

    def __init__(self, bundle: Bundle, form: FormName = "stablehlo") -> None:
        self.bundle, self.form = bundle, form
        self.manifest: Manifest = bundle.manifest
        opening = open_form(bundle, form)
        self._step, self._initial, self._layout, self._n_carry_words, self._place = opening
        self._carry = self._initial
        self._proposed = self._nothing_sent()
        self._events, self._steps, self._fell_back, self._testing = Events(), 0, False, False
        self._file: StateFile | None = None
        self._fallback_used = self.manifest.flags.get("fallback_used", 0)
        self._max_age = np.array(
            [self.manifest.max_age.get(c.name, math.inf) for c in self.manifest.obs]
        )

    def reset(self) -> None:
        """Starts an episode: a fresh carry, and no action sent yet.

        An emergency stop, a latch and the count of take-overs persist: only :meth:`release` ends
        them.
        """
        held = {name: self._supervisor(name) for name in (*STOPPED, "trips")}
        self._carry, self._proposed = self._initial, self._nothing_sent()
        self._set(held if held["latched"] else {"trips": held["trips"]})
        self._events.note(self._steps, RESET, "a new episode")
        self._keep(durable=True)

    def stop(self, reason: str) -> None:
        """Emergency stop: the fallback acts from the next step on, until :meth:`release`.

        Args:
            reason: Name of the person and the reason; both are stored and logged.

        Raises:
            ValueError: If no reason is given; the stop takes effect nevertheless.
            StateError: If the stop cannot be written to the state file; it takes effect
                nevertheless.
        """
        self._set({name: np.ones_like(self._supervisor(name)) for name in STOPPED})
        self._events.note(self._steps, STOP, reason.strip() or "no reason given")
        self._keep(durable=True)
        _one_line(reason)

    def release(self, reason: str) -> None:
        """Lets the policy act again after a latch or a stop, once there is no fault and no alarm.

        Args:
            reason: Name of the person and the reason; both are stored and logged.

        Raises:
            ValueError: If no reason is given.
        """
        one_line = _one_line(reason)
        held = ("latched", "stopped", "trips")
        self._set({name: np.zeros_like(self._supervisor(name)) for name in held})
        self._events.note(self._steps, RELEASE, one_line)
        self._keep(durable=True)

    def authorize(self, band: np.ndarray | None) -> None:
        """Limits how far the policy may move the actuators; the fallback is not limited.

        Args:
            band: Lowest and highest action, shape ``(2, act)``, in the units of the channels;
                ``None`` for no limit but those of the bundle.
        """
        wide = np.array([[-np.inf], [np.inf]]) * np.ones(len(self.manifest.action))
        new = np.asarray(wide if band is None else band, np.float32)
        words = np.asarray(self._carry)
        if not np.array_equal(self._layout.get(words, ".band"), new):
            self._carry = self._place(self._layout.set(words, ".band", new))

    @property
    def events(self) -> tuple[Event, ...]:
        """Stops, releases, resets and changes of who acts, with their reasons, oldest first."""
        return self._events.list()

    @property
    def stopped(self) -> str:
        """Who stopped it and why; empty if no stop is in force."""
        if not self._supervisor("stopped").any():
            return ""
        stops = [event.reason for event in self.events if event.kind == STOP]
        return stops[-1] if stops else "an earlier process"

    @property
    def stored(self) -> bool:
        """Whether its state file, if it keeps one, holds the present state."""
        return self._file is None or self._file.stored

    @property
    def carry(self) -> dict[str, np.ndarray]:
        """Copies of the policy's carry, by the manifest's names."""
        words = np.asarray(self._carry)
        return {e.name: self._layout.get(words, e.name) for e in self.manifest.carry}

    @property
    def words(self) -> np.ndarray:
        """A copy of everything except the inputs that determines the next step, as 32-bit words."""
        return np.array(self._carry)[: self._n_carry_words]

    def restore_words(self, words: np.ndarray) -> None:
        """Restores the state of a runtime of this bundle, to recompute its decisions.

        Args:
            words: Value of :attr:`words`.

        Raises:
            ValueError: If there are more or fewer words than in this bundle.
        """
        if words.shape != (self._n_carry_words,):
            raise ValueError(f"got {words.shape} words; expected ({self._n_carry_words},)")
        restored = np.array(self._initial)
        restored[: self._n_carry_words] = words
        self._carry, self._proposed = self._place(restored), self._nothing_sent()

    def _supervisor(self, name: str) -> np.ndarray:
        return self._layout.get(np.asarray(self._carry), f".supervisor.{name}")

    def _set(self, parts: Mapping[str, np.ndarray]) -> None:
        words = np.asarray(self._carry)
        for name, value in parts.items():
            words = self._layout.set(words, f".supervisor.{name}", value)
        self._carry = self._place(words)

    def save(self, path: str | os.PathLike[str], *, durable: bool = True) -> None:
        """Writes the runtime's state to a file, together with the digest of its bundle.

        Args:
            path: The file; an earlier one is replaced atomically.
            durable: Whether to wait until it would survive a power failure.

        Raises:
            StateError: If it cannot be written.
        """
        if self._file is not None and Path(path) == self._file.path:
            self._keep(durable=durable)
        else:
            write_state(Path(path), self._state(), durable=durable)

    def _state(self) -> State:
        words, events = np.asarray(self._carry)[: self._n_carry_words], self._events.list()
        return State(self.bundle.digest, time.time(), self._steps, self._fell_back, words, events)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Restores a file that :meth:`save` wrote in this process or an earlier one.

        The time since it was written counts. The last action is older by that time, so it becomes
        unknown once it exceeds the few steps for which it may be assumed, until it is reported
        again; and each channel has held its value for longer by that time. If the clock was set
        back, the action is unknown immediately. A stop or a latch of this process stays in force.

        Args:
            path: The file.

        Raises:
            StateError: If it is missing, damaged or of another bundle; the runtime is then
                unchanged.
        """
        state = read_state(Path(path), self.bundle.digest, self._n_carry_words)
        words = aged_words(state, self._layout, np.asarray(self._initial), self.manifest.dt)
        own_values = {name: self._supervisor(name) for name in STOPPED}
        self._carry, self._proposed = self._place(words), self._nothing_sent()
        if own_values["latched"]:
            self._set(own_values)
        self._steps, self._fell_back = state.step, state.fell_back
        self._events.recall(state.events)
        self._events.note(self._steps, RESTART, f"with the state {path}, {state.age_text}")

    def keep(self, path: str | os.PathLike[str]) -> None:
        """Saves to a file from now on: after every step, and durably after every operator action.

        Args:
            path: The file.

        Raises:
            StateError: If it cannot be written.
        """
        self._file = StateFile(Path(path))
        self._keep(durable=True)

    def _keep(self, *, durable: bool) -> None:
        if self._file is not None:
            self._file.replace(self._state(), durable=durable)

    def step(
        self,
        obs: np.ndarray | dict[str, float],
        last_sent: np.ndarray | dict[str, float] | LastSent,
        *,
        ages: np.ndarray | dict[str, float] | None = None,
        max_age: float | None = None,
        taking_over: bool = False,
    ) -> Decision:
        """Runs one control period.

        Args:
            obs: One observation in the units and the order of ``manifest.obs``, or by channel name;
                NaN where a measurement is missing.
            last_sent: Action that the plant received since the last call, read back, in the units
                and the order of ``manifest.action``, or by name; NaN where a channel was not read.
                Alternatively ``LastSent.AS_PROPOSED`` or ``LastSent.UNKNOWN``. For a few steps an
                unknown value is assumed to equal the last decision, then the fallback acts; the
                rate limit holds in either case.
            ages: Seconds since each measurement was taken, shape ``(obs,)``; ``None`` if the source
                does not provide them. A measurement from the future (a negative age, after a clock
                was set back) counts as lost.
            max_age: Seconds after which a measurement counts as lost; it cannot extend the bundle's
                own limit for the channel.
            taking_over: Whether another controller has acted since the last call. Policy and
                fallback then track ``last_sent``, and the action starts from it, by an offset that
                decays.

        Returns:
            The action to send and what the filter did. The action is finite for any input.

        Raises:
            ValueError: If a shape does not fit the channels, ``max_age`` is not positive or comes
                without ``ages``, or the bundle limits ages and none are given.
            BundleError: If the step cannot be computed, such as one with a loop that does not end;
                the runtime is then unchanged.
        """
        read = vector("obs", obs, self.manifest.obs)
        if max_age is not None and not max_age > 0:
            raise ValueError(f"max_age must be a positive number of seconds, got {max_age}")
        if max_age is not None and ages is None:
            raise ValueError("max_age is given without the ages that it limits; give ages")
        if ages is not None:
            measured_ages = vector("ages", ages, self.manifest.obs)
            largest_ages = self._max_age if max_age is None else np.minimum(self._max_age, max_age)
            # An age that is not known is NaN, which compares false: it counts as too old.
            read = np.where(
                (measured_ages >= 0) & (measured_ages <= largest_ages), read, np.float32(np.nan)
            )
        elif self.manifest.max_age and not self._testing:
            channels = ", ".join(self.manifest.max_age)
            raise ValueError(f"this bundle refuses old measurements of {channels}; give ages")
        if isinstance(last_sent, LastSent):
            sent = self._proposed if last_sent is AS_PROPOSED else self._nothing_sent()
        else:
            sent = vector("last_sent", last_sent, self.manifest.action)
        carry = self._carry
        if taking_over:
            # `sent`, with which the program begins, is then `follow`, as a guard does both.
            words = np.asarray(carry)
            carry = self._place(self._layout.set(words, ".acted", np.array(NOBODY, np.int32)))
        with one_line_of(self.bundle, "its programs do not run"):
            carry = self._step(carry, read, sent)
            words = np.asarray(carry)
        self._carry = carry
        action, flags, limits, intervention, alarms = (self._layout.get(words, n) for n in OUTPUTS)
        self._proposed = action.copy()
        decision = Decision(action, int(flags), limits, intervention, int(alarms))
        if not self._testing:
            self._note_actor(decision)
        return decision

    def _note_actor(self, decision: Decision) -> None:
        fell_back = bool(decision.flags & self._fallback_used)
        changed = fell_back != self._fell_back
        if changed:
            causes = causes_in_words(self.manifest, decision)
            who = FALLBACK if fell_back else POLICY
            self._events.note(self._steps, who, "; ".join(causes) or "no alarm is left")
            self._fell_back = fell_back
        self._steps += 1
        if self._file is not None:
            self._file.step(self._state(), events=changed)

    def _nothing_sent(self) -> np.ndarray:
        return np.full(len(self.manifest.action), np.nan, np.float32)

    @property
    def findings(self) -> int:
        """The flags that describe the inputs.

        Whether a limit is active may depend on the last bit of an action; these flags may not.
        """
        return findings(self.manifest.flags)

    def flag_names(self, flags: int) -> tuple[str, ...]:
        """Names of the decisions encoded in ``flags``."""
        return self.manifest.flag_names(flags)

    def alarm_names(self, alarms: int) -> tuple[str, ...]:
        """Names of the monitors encoded in ``alarms``."""
        return self.manifest.alarm_names(alarms)

    def answers(self, section: str) -> tuple[np.ndarray, np.ndarray]:
        """Actions and flags for the inputs of one section of the test vectors."""
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
            tolerance: Largest allowed difference relative to a channel's size.

        Returns:
            The largest difference found.

        Raises:
            BundleError: If an action differs by more, or a flag about the inputs (not finite, out
                of range, unknown) differs.
        """
        action, worst = self.manifest.action, 0.0
        for section in ("single", "sequence"):
            vectors = self.bundle.test_vectors(section)
            answers = self.answers(section)
            difference, same = compared(action, self.findings, answers, vectors)
            worst = max(worst, difference)
            if not (difference <= tolerance and same):
                raise BundleError(
                    f"{self.bundle.path}: on this machine, the answers to the test vectors "
                    f"({section}) differ from the stored ones: largest difference "
                    f"{difference:.1e} of a channel's size, allowed {tolerance:.0e}, flags "
                    f"{'equal' if same else 'different'}; do not run it here (is fast math on?)"
                )
        return worst


def _one_line(reason: str) -> str:
    if not reason.strip():
        raise ValueError("say who decides this and why: the reason is stored and logged")
    return reason
