"""``neorl-train loop``: from a log to a change sheet, and from two logs to an answer."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from neorl_core.control import standard_pid
from neorl_envs import read_dataset, write_dataset
from neorl_train._command.main import main
from neorl_train.candidates import write_loop_changes
from neorl_train.judging import read_changes

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


def test_a_log_with_a_declared_loop_gives_a_sheet_in_its_numbers(plant, tmp_path, capsys) -> None:
    assert main(["loop", str(plant), "--out", str(tmp_path / "sheets")]) == 0
    told = capsys.readouterr().out
    assert "AIC-401: RETUNE" in told
    assert "AIC-401: gain 0.1 to " in told
    page = (tmp_path / "sheets" / "change-AIC-401.html").read_text()
    assert "%/%" in page
    assert "May be tried" in page
    assert "2026-03-02 06:00 to" in page
    assert "range of AIC_401_OP: 0 to 100 %" in page


def test_a_run_writes_the_sheet_of_its_candidate(plant, tmp_path) -> None:
    dataset = read_dataset(plant)
    bank = standard_pid(
        gain=[1.2], integral_time=[500.0], derivative_time=[0.0], setpoint=[45.0], bias=[40.0],
        low=[0.0], high=[100.0], dt=PERIOD, measured=[0],
    )  # fmt: skip
    assert write_loop_changes(tmp_path, plant, dataset, bank) == []
    (change,) = read_changes(tmp_path / "loops.json")
    assert change.sentence.startswith("AIC-401: gain 0.1 to 0.36 %/%, reset 20 to 8.333 min")
    assert (tmp_path / "change-AIC-401.html").is_file()
    same = dataclasses.replace(bank, kp=bank.kp * 0 + 1 / 3, ki=bank.ki * 0 + 1 / 3600)
    assert write_loop_changes(tmp_path / "none", plant, dataset, same) == []
    assert not (tmp_path / "none").exists()


def test_two_logs_are_compared(tmp_path, capsys) -> None:
    old, new = export(tmp_path / "old.csv"), export(tmp_path / "new.csv", load=1.5, seed=1)
    assert main(["loop", str(new), "--before", str(old), "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "AIC-401: WORSE: ROLL BACK TO THE OLD VALUES" in told
    assert (tmp_path / "AIC-401-before-and-after.html").is_file()
    assert main(["loop", str(old), "--before", str(new), "--out", str(tmp_path), "--json"]) == 0
    (loop,) = json.loads(capsys.readouterr().out)["loops"]
    assert loop["answer"] == "better"
    assert main(["loop", str(old), "--before", str(new), "--band", "0"]) == 2
    assert "--band must be above 0" in capsys.readouterr().err
