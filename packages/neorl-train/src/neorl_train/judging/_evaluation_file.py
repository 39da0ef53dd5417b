"""An evaluation on disk: ``evaluation.json`` and ``traces.json``."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure import Binder, check_head, head, write_text
from neorl_core.infrastructure.command_line import one_line
from neorl_train.judging._results import Evaluation
from neorl_train.runs._names import EVALUATION, TRACES

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Converts dataclasses, tuples and arrays to JSON data.

    NaN becomes ``null``, and infinities become ``"inf"`` and ``"-inf"``, because JSON has no such
    numbers.
    """
    return _BINDER.plain(value)


def from_plain(kind: type[T], plain: Any) -> T:
    """Inverse of :func:`to_plain` for a type made of dataclasses, tuples, arrays and scalars.

    Raises:
        InputError: If a field is missing, unknown or of another type; the message names its path.
    """
    return _BINDER.bound(kind, plain)


def _array(hint: Any, plain: Any, where: str) -> Any:
    """Reads a value that is annotated as an array of a known rank."""
    if not hasattr(hint, "dtypes"):
        return NotImplemented
    dtype_name = str(hint.dtypes[0])
    dtype = np.float64 if "float" in dtype_name else np.bool_ if "bool" in dtype_name else np.int64
    try:
        array = np.array(_numbers(plain), dtype)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{where} must be an array of numbers with rows of equal length"
        ) from error
    rank = len(hint.dim_str.split())
    if not isinstance(plain, list) or (array.ndim != rank and array.size > 0):
        raise InputError(f"{where} must be an array with {rank} axes, got {array.ndim} axes")
    return array


def _numbers(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_numbers(entry) for entry in plain]
    if plain is None:
        return math.nan
    return float(plain) if plain in ("inf", "-inf") else plain


_BINDER = Binder(complete=True, number=_numbers, special=_array)


def read_json(path: Path, kind: str, version: int) -> dict[str, Any]:
    """The object in a file, whose head must be as given, without that head."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path}: there is no such file, because the run was not evaluated; resume the run"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} is damaged ({one_line(error)}); `neorl-train resume` evaluates the run again"
        ) from None
    return check_head(content, kind, version, str(path))


def decode(path: Path, decode: Callable[..., T], *content: dict[str, Any]) -> T:
    """Applies ``decode`` to the content of a file; its errors name the file."""
    try:
        return decode(*content)
    except InputError as error:
        raise InputError(f"{path}: {error}; `neorl-train resume` evaluates the run again") from None


VERSION = 1
"""Version of both files."""


def evaluation_to_json(evaluation: Evaluation) -> dict[str, Any]:
    """The content of ``evaluation.json``: tables, episodes and units; rows are left out."""
    plain = to_plain(evaluation)
    del plain["traces"], plain["stretches"]
    spec = evaluation.tables.spec
    units = {
        "return": evaluation.tables.reward_unit,
        "length": f"steps of {spec.dt:g} s",
        "cost": {channel.name: channel.unit for channel in spec.cost},
        "action": {channel.name: channel.unit for channel in spec.action},
        "fraction": "1",
    }
    return {**head("evaluation", VERSION), "units": units, **plain}


def traces_to_json(evaluation: Evaluation) -> dict[str, Any]:
    """The content of ``traces.json``: episodes and stretches of a log, row by row."""
    spec = evaluation.tables.spec
    units = {
        field: {channel.name: channel.unit for channel in getattr(spec, field)}
        for field in ("obs", "action", "cost")
    }
    return {
        **head("traces", VERSION),
        "units": {**units, "reward": evaluation.tables.reward_unit},
        "period_s": spec.dt,
        "traces": to_plain(evaluation.traces),
        "stretches": to_plain(evaluation.stretches),
    }


def evaluation_from_json(evaluation: dict[str, Any], traces: dict[str, Any]) -> Evaluation:
    """Inverse of :func:`evaluation_to_json` and :func:`traces_to_json`, without their heads."""
    plain = {name: value for name, value in evaluation.items() if name != "units"}
    rows = {name: traces[name] for name in ("traces", "stretches") if name in traces}
    return from_plain(Evaluation, {**plain, **rows})


def write_evaluation(run: str | os.PathLike[str], evaluation: Evaluation) -> None:
    """Writes both files into a run directory, each completely or not at all.

    Args:
        run: Run directory.
        evaluation: Results of the evaluation.

    Raises:
        OSError: If a file cannot be written.
    """
    for name, content in (
        (EVALUATION, evaluation_to_json(evaluation)),
        (TRACES, traces_to_json(evaluation)),
    ):
        write_text(
            Path(run) / name, json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n"
        )


def read_evaluation(run: str | os.PathLike[str]) -> Evaluation:
    """The evaluation of a run.

    Raises:
        InputError: If a file is missing, damaged or of another version; the message names it.
    """
    path = Path(run) / EVALUATION
    evaluation = read_json(path, "evaluation", VERSION)
    traces = read_json(path.with_name(TRACES), "traces", VERSION)
    return decode(path, evaluation_from_json, evaluation, traces)
