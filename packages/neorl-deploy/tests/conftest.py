"""A small run directory as a training run leaves it, and its log, made by hand."""

import hashlib
import json
import runpy
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import save_policy
from neorl_agents.networks import init_mlp, tanh
from neorl_agents.policies import NetworkPolicy
from neorl_core import (
    Channel,
    CostChannel,
    Spec,
    highs,
    lows,
    spec_to_dict,
    standardiser,
    unit_interval,
)
from neorl_core.control import PID
from neorl_core.infrastructure import head
from neorl_core.testing import configure_tests
from neorl_deploy._command.main import main
from neorl_deploy.bundle import read_bundle
from neorl_deploy.export import ExportOptions, export_run
from neorl_deploy.runtime import Runtime
from neorl_safety.constraints import action_constraints, constraints_to_dict
from neorl_safety.guards import default_settings, settings_to_dict


def pytest_configure() -> None:
    configure_tests()


def _run_here(command, **_):
    """The process of the parity check without a process, which would import JAX once more."""
    try:
        module = runpy.run_module(command[2])
        shown = {**module["parity"](command[-1]), "kept_out": module["KEPT_OUT"]}
    except Exception as error:
        return SimpleNamespace(returncode=1, stdout="", stderr=str(error))
    return SimpleNamespace(returncode=0, stdout=json.dumps(shown), stderr="")


@pytest.fixture(autouse=True, scope="session")
def _proven_here(pytestconfig):
    """By day the bundle ``exported`` alone is proven in a fresh process, and others in this one."""
    with pytest.MonkeyPatch.context() as patch:
        if not pytestconfig.getoption("--nightly"):
            here = SimpleNamespace(run=_run_here, TimeoutExpired=subprocess.TimeoutExpired)
            patch.setattr("neorl_deploy.export._export.subprocess", here)
        yield


SPEC = Spec(
    obs=(
        Channel("level", "m", 0.0, 2.0),
        Channel("temperature", "K", 280.0, 400.0),
        Channel("pressure", "bar", 0.5, 6.0),
    ),
    action=(Channel("valve", "%", 0.0, 100.0), Channel("jacket", "K", 280.0, 320.0)),
    cost=(CostChannel("overheating", "K", 5.0, "episode"),),
    dt=30.0,
    horizon=40,
)


class Command:
    """``neorl-deploy`` as a person types it."""

    def __init__(self, capsys):
        self._capsys = capsys

    def run(self, *words):
        """The exit code, and what is printed as a result and as an error."""
        code = main([str(word) for word in words])
        return code, *self._capsys.readouterr()

    def __call__(self, *words):
        """The result of a command that succeeds."""
        code, result, _ = self.run(*words)
        assert code == 0
        return result

    def refused(self, *words, code=2):
        """The error of a command that cannot be carried out."""
        ended, _, error = self.run(*words)
        assert ended == code
        return error


@pytest.fixture
def command(capsys):
    return Command(capsys)


@pytest.fixture(scope="session")
def spec() -> Spec:
    return SPEC


@pytest.fixture(scope="session")
def network() -> NetworkPolicy:
    return NetworkPolicy(
        obs=standardiser(
            jnp.array([1.0, 330.0, 3.0]),
            jnp.array([0.2, 10.0, 0.5]),
            span=jnp.array(highs(SPEC.obs)) - jnp.array(lows(SPEC.obs)),
        ),
        network=init_mlp((3, 32, 32, 2), jax.random.key(5), output=tanh),
        action=unit_interval(SPEC.action),
        low=jnp.array(lows(SPEC.action)),
        high=jnp.array(highs(SPEC.action)),
    )


@pytest.fixture(scope="session")
def pid() -> PID:
    return PID(
        kp=jnp.array([-20.0, 1.0]),
        ki=jnp.array([-0.02, 0.003]),
        kd=jnp.array([5.0, 0.0]),
        tau=jnp.array([60.0, 1.0]),
        setpoint=jnp.array([1.0, 335.0]),
        bias=jnp.array([50.0, 300.0]),
        low=jnp.array(lows(SPEC.action)),
        high=jnp.array(highs(SPEC.action)),
        dt=jnp.array(SPEC.dt),
        override_below=jnp.zeros((0,)),
        override_cap=jnp.zeros((0,)),
        measured=(0, 1),
    )


def _log_columns(episodes: int = 5, steps: int = 40) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    rows = episodes * steps
    time = np.arange(rows, dtype=np.float64)
    obs = np.stack(
        [1 + 0.2 * np.sin(time / 9), 330 + 8 * np.cos(time / 13), 3 + 0.4 * np.sin(time / 17)], 1
    )
    action = np.stack([50 + 20 * np.sin(time / 7), 300 + 5 * np.cos(time / 5)], 1)
    obs, action = (x + rng.normal(0, 0.01, x.shape) for x in (obs, action))
    ends = np.zeros(rows, np.uint8)
    ends[steps - 1 :: steps] = 1
    next_action = np.roll(action, -1, axis=0) * (1 - ends[:, None])
    return {
        "obs": obs.astype("<f4"),
        "action": action.astype("<f4"),
        "reward": rng.normal(size=rows).astype("<f4"),
        "cost": np.zeros((rows, 1), "<f4"),
        "next_obs": np.roll(obs, -1, axis=0).astype("<f4"),
        "next_action": next_action.astype("<f4"),
        "terminated": np.zeros(rows, np.uint8),
        "truncated": ends,
        "mask": np.ones(rows, np.uint8),
        "episode_starts": np.arange(0, rows, steps).astype("<i8"),
    }


def _write_log(path: Path, columns: dict[str, np.ndarray], **changes) -> Path:
    """A dataset file, written from the published page alone."""
    described = spec_to_dict(SPEC)
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name, column in columns.items():
        digest.update(f"{name} {column.dtype.str} {list(column.shape)}\n".encode())
        digest.update(np.ascontiguousarray(column).tobytes())
    attributes = {
        "format": "neorl-dataset",
        "version": 2,
        "spec": json.dumps(described),
        "attributes": json.dumps({"name": "made by hand"}),
        "content_hash": f"sha256:{digest.hexdigest()}",
    }
    with h5py.File(path, "w") as file:
        for name, value in {**attributes, **changes}.items():
            file.attrs[name] = np.bytes_(value.encode()) if isinstance(value, str) else value
        for name, column in columns.items():
            file.create_dataset(name, data=column)
    return path


@pytest.fixture(scope="session")
def log_columns():
    return _log_columns


@pytest.fixture(scope="session")
def write_log():
    return _write_log


def _evaluation() -> dict:
    """Results in the layout of the training package, with raw episodes behind the tables."""
    names = {"iql-0": "learner", "iql-1": "learner", "pid": "classical", "log": "log"}
    rows = [
        {
            "name": name,
            "role": role,
            "guarded": True,
            "returns": {"value": 1.0, "low": float("nan")},
        }
        for name, role in names.items()
    ]
    return {
        **head("evaluation", 1),
        "units": {"return": "EUR"},
        "tables": {"candidate": "iql-0", "reference": "pid", "n_starts": 100, "rows": rows},
        "results": [{"name": name, "returns": list(range(200))} for name in names],
    }


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory, network, pid) -> Path:
    """``runs/0001`` with a candidate, a second policy, a fallback, results and a log."""
    run = tmp_path_factory.mktemp("workspace") / "runs" / "0001"
    (run / "policies").mkdir(parents=True)
    columns = _log_columns()
    observations = columns["obs"][:40]
    worse = NetworkPolicy(
        network.obs,
        init_mlp((3, 32, 32, 2), jax.random.key(6), output=tanh),
        network.action,
        network.low,
        network.high,
    )
    metadata = {"algorithm": "iql", "seed": 0}
    save_policy(run / "policies/iql-0.safetensors", network, SPEC, observations, metadata)
    save_policy(run / "policies/iql-1.safetensors", worse, SPEC, observations, metadata)
    save_policy(run / "policies/fallback.safetensors", pid, SPEC, observations, {})
    documents = {
        "run": {**head("run", 1), "status": "finished", "dataset": {"content_hash": "sha256:ab"}},
        "constraints": constraints_to_dict(action_constraints(SPEC, [0.5, None])),
        "guard": settings_to_dict(default_settings(SPEC), SPEC),
        "evaluation": _evaluation(),
        "verdict": {
            **head("verdict", 1),
            "answer": "deploy",
            "sentence": "The guarded iql-0 may be deployed: all clauses hold.",
            "clauses": [
                {"name": "return", "bound": 1.0, "relation": ">", "limit": 0.0, "holds": True}
            ],
            "candidate": "iql-0",
            "artefact": "policies/iql-0.safetensors",
        },
    }
    for name, document in documents.items():
        (run / f"{name}.json").write_text(json.dumps(document))
    _write_log(run / "dataset.h5", columns)
    return run


@pytest.fixture(scope="session")
def exported(finished_run, tmp_path_factory) -> Path:
    """The bundle of the run; not to be changed."""
    out = tmp_path_factory.mktemp("bundles") / "plant.bundle"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neorl_deploy.export._export.subprocess", subprocess)
        return export_run(finished_run, ExportOptions(out=out)).path


@pytest.fixture
def bundle(exported, tmp_path) -> Path:
    """A copy of the bundle, to be damaged."""
    return Path(shutil.copytree(exported, tmp_path / "plant.bundle"))


@pytest.fixture
def run_directory(finished_run, tmp_path) -> Path:
    """A copy of the run, to be damaged."""
    return Path(shutil.copytree(finished_run, tmp_path / "runs" / "0001"))


@pytest.fixture(scope="session")
def runtime(exported):
    """The bundle, ready to act; call ``reset`` first."""
    return Runtime(read_bundle(exported))
