"""The test sheet of a form: rows of inputs with the bundle's own answers, and the proof from it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy.bundle._read import Bundle
from neorl_deploy.forms._form import NOBODY, STOPPED, Evaluation, Form, word
from neorl_deploy.forms._lowering import NoFormError
from neorl_deploy.runtime._forms import sealed_operations
from neorl_deploy.runtime._operations import as_function

DEVIATION = 1e-5
"""Largest difference of an action, as a fraction of its channel's span."""
RELEASES, STOPS, OTHERS = 37, 53, 41
"""Rows between releases, stops and take-overs of a sheet."""


class Row(NamedTuple):
    """One step of a sheet.

    Attributes:
        inputs: The inputs by name.
        outputs: What the bundle answers: actions, flags and alarms by name.
    """

    inputs: dict[str, Any]
    outputs: dict[str, Any]


class SealedStep:
    """The sealed list of operations of a bundle as a block with the inputs of a form.

    Args:
        bundle: A verified bundle with the NumPy form.
    """

    def __init__(self, bundle: Bundle) -> None:
        listed, initial = sealed_operations(bundle)
        self._manifest, self._run = bundle.manifest, as_function(listed)
        self._names = [entry.name for entry in bundle.manifest.carry]
        self._carry: list[Any] = list(initial)
        self._released = False
        self._set(dict.fromkeys(STOPPED, True))

    def step(self, **inputs: Any) -> dict[str, Any]:
        """One step from the inputs of a form; actions, flags and alarms by name."""
        if inputs["stop"]:
            self._set(dict.fromkeys(STOPPED, True))
        elif inputs["release"] and not self._released:
            self._set({**dict.fromkeys(STOPPED[1:], False), ".supervisor.trips": 0})
        self._released = inputs["release"]
        if inputs["taking_over"]:
            self._set({".acted": NOBODY})
        obs = _values("in", self._manifest.obs, inputs)
        sent = _values("sent", self._manifest.action, inputs)
        results, count = self._run(*self._carry, obs, sent), len(self._carry)
        self._carry = list(results[:count])
        action, flags, _, _, alarms = results[count:]
        names = [word(f"out_{channel.name}") for channel in self._manifest.action]
        answer = dict(zip(names, action.tolist(), strict=True))
        return {**answer, "flags": int(flags), "alarms": int(alarms)}

    def _set(self, parts: dict[str, Any]) -> None:
        for name, value in parts.items():
            at = self._names.index(name)
            self._carry[at] = np.full_like(self._carry[at], value)


def _values(prefix: str, channels: Sequence[Any], inputs: dict[str, Any]) -> np.ndarray:
    names = [word(f"{prefix}_{channel.name}") for channel in channels]
    given = [inputs[name] if inputs[f"{name}_ok"] else np.nan for name in names]
    return np.array(given, np.float32)


def rows_of(bundle: Bundle) -> Iterator[Row]:
    """The test vectors of a bundle as steps of a block, with stops, releases and take-overs."""
    block, at = SealedStep(bundle), 0
    for section in ("sequence", "single"):
        vectors = bundle.test_vectors(section)
        for obs, sent in zip(vectors["obs"], vectors["last_sent"], strict=True):
            inputs = {
                "stop": at % STOPS == STOPS - 1,
                "release": at % RELEASES == 0,
                "taking_over": at % OTHERS == OTHERS - 1,
            }
            for prefix, channels, values in (
                ("in", bundle.manifest.obs, obs),
                ("sent", bundle.manifest.action, sent),
            ):
                for channel, value in zip(channels, values.tolist(), strict=True):
                    name, good = word(f"{prefix}_{channel.name}"), bool(np.isfinite(value))
                    inputs |= {name: value if good else 0.0, f"{name}_ok": good}
            at += 1
            yield Row(inputs, block.step(**inputs))


def test_sheet(rows: Sequence[Row]) -> str:
    """Rows as a table in CSV: inputs first, then the expected outputs."""
    buffer = io.StringIO()
    names = [*rows[0].inputs, *rows[0].outputs]
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["row", *names])
    for number, row in enumerate(rows, 1):
        values = [*row.inputs.values(), *row.outputs.values()]
        writer.writerow(
            [number, *(int(value) if isinstance(value, bool) else value for value in values)]
        )
    return buffer.getvalue()


def require_equal(bundle: Bundle, form: Form, rows: Sequence[Row]) -> float:
    """The largest difference between a form and the bundle over a sheet.

    Returns:
        The difference of an action as a fraction of its channel's span.

    Raises:
        NoFormError: If an action differs by more than 1e-5 of the span, or a flag differs.
    """
    block, worst = Evaluation(form), 0.0
    spans = {word(f"out_{c.name}"): c.high - c.low for c in bundle.manifest.action}
    for number, row in enumerate(rows, 1):
        answer = block.step(**row.inputs)
        for name, span in spans.items():
            difference = abs(float(answer[name]) - row.outputs[name]) / span
            worst = max(worst, difference)
            if not difference <= DEVIATION:
                raise NoFormError(
                    f"{bundle.path}: row {number} of the test sheet: {name} is "
                    f"{float(answer[name]):g} in the new form and {row.outputs[name]:g} in the "
                    "bundle; nothing was written"
                )
        for name in ("flags", "alarms"):
            if answer[name] != row.outputs[name]:
                raise NoFormError(
                    f"{bundle.path}: row {number} of the test sheet: {name} are "
                    f"{answer[name]:#x} in the new form and {row.outputs[name]:#x} in the bundle; "
                    "nothing was written"
                )
    return worst
