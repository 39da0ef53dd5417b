"""A bundle as an MLflow model: no pickle, no code in the model, and MLflow is not imported."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._read import Bundle, read_bundle
from neorl_deploy.runtime._load import load_bundle

__all__ = ["BundleModel", "write_mlflow_model"]

# The folder of an MLflow model that contains a bundle, and the model that its loader returns.


DATA, LOADER = "policy.bundle", "neorl_deploy.mlflow_model"
SENT = "last_sent_"
"""Prefix of the column with the value that an actuator received last."""


def write_mlflow_model(bundle: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Writes a folder that ``mlflow.pyfunc.load_model`` loads and ``mlflow models serve`` serves.

    It contains the unchanged bundle and one description. MLflow calls the loader of this package,
    which verifies the bundle and checks its answers to the test vectors before use. Nothing is
    unpickled, and no code comes with the model.

    Args:
        bundle: Directory of a bundle; it is verified first.
        out: Folder to write; it must not exist.

    Returns:
        The folder.

    Raises:
        DeployError: If the bundle is damaged, or the folder exists or cannot be written.
    """
    sealed, folder = read_bundle(bundle), Path(out)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise DeployError(f"{folder} exists already; name another place") from None
    except OSError as error:
        raise DeployError(f"cannot write {folder}: {error.strerror}") from error
    try:
        shutil.copytree(sealed.path, folder / DATA)
        version = metadata.version("neorl-deploy")
        extra = "" if "numpy" in sealed.manifest.forms else "[jax]"
        (folder / "requirements.txt").write_text(f"neorl-deploy{extra}=={version}\n")
        (folder / "MLmodel").write_text(json.dumps(_description(sealed), indent=2) + "\n")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        # If several files could not be copied, report the reason for the first.
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
        raise DeployError(f"cannot write {folder}: {reason}") from error
    return folder


def _description(bundle: Bundle) -> dict[str, Any]:
    """``MLmodel``, a YAML file, and therefore allowed to be JSON."""
    manifest = bundle.manifest
    columns = [{"type": "double", "name": c.name, "required": True} for c in manifest.obs]
    columns += [
        {"type": "double", "name": SENT + c.name, "required": False} for c in manifest.action
    ]
    loader = {
        "loader_module": LOADER,
        "data": DATA,
        "python_version": platform.python_version(),
    }
    return {
        "flavors": {"python_function": loader},
        "metadata": {"bundle": f"sha256:{bundle.digest}", "verdict": manifest.verdict},
        "model_uuid": uuid.uuid4().hex,
        "signature": {"inputs": json.dumps(columns), "outputs": None, "params": None},
        "utc_time_created": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
    }


def _load_pyfunc(path: str) -> BundleModel:
    """The function that MLflow calls; the bundle is verified and tested on this machine first."""
    form = "numpy" if "numpy" in read_bundle(path).manifest.forms else "stablehlo"
    runtime = load_bundle(path, form=form)
    runtime.release("a model of MLflow: nothing is written to a plant")
    return BundleModel(runtime)


class BundleModel:
    """Decides independent rows, each as the first step of an episode.

    Args:
        runtime: A loaded runtime, which only this model may use from then on.
    """

    def __init__(self, runtime: Any) -> None:
        runtime.reset()
        self._runtime, self._fresh, self._lock = runtime, runtime.words, threading.Lock()

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> list[dict]:
        """Computes the action for each row.

        Args:
            model_input: A data frame, or a list of mappings: a column for every observation, NaN
                where it is missing; and, if known, a column named ``last_sent_`` followed by the
                actuator's name with the value that it received last.
            params: Must be empty; there are no parameters.

        Returns:
            For every row the action by channel, and the names of the guard's flags as ``flags``.

        Raises:
            DeployError: If a column is missing or unknown, or contains a value that is not a
                number.
        """
        if params:
            raise DeployError(f"this model takes no parameters, got {', '.join(params)}")
        rows = model_input.to_dict("records") if hasattr(model_input, "to_dict") else model_input
        with self._lock:
            return [self._decide(row) for row in rows]

    def _decide(self, row: Any) -> dict[str, Any]:
        runtime = self._runtime
        names = [c.name for c in runtime.manifest.obs]
        actuators = [c.name for c in runtime.manifest.action]
        known = {*names, *(SENT + name for name in actuators)}
        if not isinstance(row, Mapping) or not set(names) <= set(row) <= known:
            columns = sorted(map(str, row)) if isinstance(row, Mapping) else row
            raise DeployError(f"a row has the columns {', '.join(sorted(known))}, got {columns!r}")
        runtime.restore_words(self._fresh)
        ages = np.zeros(len(names)) if runtime.manifest.max_age else None
        sent = _numbers([row.get(SENT + name) for name in actuators])
        decision = runtime.step(_numbers([row[name] for name in names]), sent, ages=ages)
        values = zip(actuators, map(float, decision.action), strict=True)
        return {**dict(values), "flags": list(runtime.flag_names(decision.flags))}


def _numbers(values: Sequence[Any]) -> np.ndarray:
    try:
        return np.array([math.nan if value is None else float(value) for value in values])
    except (TypeError, ValueError) as error:
        raise DeployError(f"a row holds something that is not a number: {error}") from error
