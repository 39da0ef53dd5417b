"""``neorl-train loop``: no gains for a declared loop whose log does not tell enough."""

import math
from pathlib import Path

import numpy as np
import pytest

from neorl_envs import write_dataset
from neorl_train._command.main import main

pytest.importorskip("polars")
from neorl_envs.plant_logs import convert_log, plant_log_from_dict

PERIOD = 20.0
RANGES = {"AIC-401.PV": (30.0, 60.0), "AIC-401.SP": (30.0, 60.0), "AIC-401.OP": (0.0, 100.0)}
UNITS = {"AIC-401.PV": "°Bx", "AIC-401.SP": "°Bx", "AIC-401.OP": "%"}
LOOP = {
    "name": "AIC-401", "controlled": "AIC_401_PV", "manipulated": "AIC_401_OP",
    "setpoint_channel": "AIC_401_SP", "direction": "reverse", "gain": 0.1,
    "gain_unit": "percent", "integral": 20, "integral_unit": "minutes",
}  # fmt: skip


def export(path: Path, *, load: float = 0.35, seed: int = 0, n: int = 4000) -> Path:
    """Ten-odd hours of an evaporator under a sluggish PI, with moves of the setpoint."""
    rng = np.random.default_rng(seed)
    a, late, kp, ki = math.exp(-PERIOD / 500), 4, 100 / 300, 100 / 300 / 1200
    setpoint = 45.0 + 2.0 * (np.arange(n) // 250 % 2)
    y, u, loads = np.full(n, 45.0), np.full(n, 40.0), np.zeros(n)
    x, integral = 0.0, 40.0
    for t in range(n):
        loads[t] = 0.97 * loads[t - 1] + load * rng.normal() if t else 0.0
        if t > late:
            x = a * x + 0.9 * (1 - a) * (u[t - 1 - late] - 40.0 + loads[t - 1 - late])
        y[t] = 45.0 + x + 0.03 * rng.normal()
        integral += ki * PERIOD * (setpoint[t] - y[t])
        u[t] = kp * (setpoint[t] - y[t]) + integral
    stamps = np.datetime64("2026-03-02T06:00:00") + 20 * np.arange(n).astype("m8[s]")
    lines = ["time,AIC-401.PV,AIC-401.SP,AIC-401.OP"]
    lines += [
        f"{t}Z,{p:.4f},{s},{o:.4f}" for t, p, s, o in zip(stamps, y, setpoint, u, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def plant(tmp_path_factory) -> Path:
    """The same log with the faceplate of its loop declared."""
    folder = tmp_path_factory.mktemp("plant")
    export(folder / "log.csv")
    roles = {"AIC-401.PV": "observation", "AIC-401.SP": "observation", "AIC-401.OP": "manipulated"}
    tags = [
        {"name": name.replace("-", "_").replace(".", "_"), "tag": name, "role": role,
         "unit": UNITS[name], "low": RANGES[name][0], "high": RANGES[name][1]}
        for name, role in roles.items()
    ]  # fmt: skip
    config = {
        "name": "evaporator",
        "log": {"files": ["log.csv"], "timestamp": "time"},
        "sampling": {"period_s": PERIOD},
        "episodes": {"gap_s": 60.0, "length": 500},
        "reward": {"expression": "0"},
        "tag": tags,
        "loop": [LOOP],
    }
    dataset = convert_log(plant_log_from_dict(config, "plant.toml"), folder=folder)
    return write_dataset(folder / "plant.h5", dataset)


def test_a_loop_of_which_the_log_does_not_tell_enough_gets_no_gains(
    plant, tmp_path, capsys
) -> None:
    assert main(["loop", str(plant), "--out", str(tmp_path / "sheets")]) == 0
    told = capsys.readouterr().out
    assert "AIC-401: CANNOT TELL" in told
    assert "no gains are proposed, because the answer is 'cannot tell'" in told
    assert not (tmp_path / "sheets").exists()
