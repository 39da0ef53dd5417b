"""A log of the Tennessee Eastman plant under its own control, in its authors' format."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neorl_envs import read_dataset
from neorl_envs.inspection import dataset_report
from neorl_envs.plant_logs import convert_log, plant_log_from_dict, read_plant_log

SAMPLES, PERIOD_S = 301, 600


def export(folder: Path, target: Path) -> dict[str, np.ndarray]:
    """The four text files of a case as one table; hours as seconds since 1970."""
    columns = {name: np.loadtxt(folder / f"{name}.dat") for name in "uyr"}
    hours = np.loadtxt(folder / "t.dat")[:, 0]
    columns["at"] = np.round(hours * 3600).astype(np.int64)
    names = [f"XMV({i + 1})" for i in range(12)] + [f"XMEAS({i + 1})" for i in range(41)]
    rows = np.hstack([columns["u"], columns["y"][:, :41]])
    lines = [",".join(["time", *names, "LSP"])]
    for at, row, sp in zip(columns["at"], rows, columns["r"][:, 8], strict=True):
        lines.append(",".join(map(repr, [int(at), *map(float, row), float(sp)])))
    target.write_text("\n".join(lines))
    return columns


def configuration() -> dict[str, Any]:
    measured = [
        {
            "name": f"y{i}",
            "tag": f"XMEAS({i})",
            "role": "observation",
            "low": -1e4,
            "high": 1e4,
            "unit": "?",
        }
        for i in range(1, 42)
    ]
    manipulated = [
        {"name": f"u{i}", "tag": f"XMV({i})", "role": "manipulated", "low": 0, "high": 100}
        for i in range(1, 13)
    ]
    setpoint = {"name": "sp", "tag": "LSP", "role": "setpoint", "low": 0, "high": 100}
    return {
        "name": "tep",
        "log": {"files": ["*.csv"], "timestamp": "time", "timestamp_format": "epoch_s"},
        "sampling": {"period_s": PERIOD_S},
        "episodes": {"gap_s": 3600, "trip": "y7 > 3000 or y8 < 2"},
        "reward": {"expression": "-abs(y8 - before_y8) - 0.01 * abs(u1 - before_u1)"},
        "cost": [
            {"name": "pressure", "expression": "greatest(y7 - 2895, 0)", "unit": "kPa", "limit": 0}
        ],
        "tag": [*measured, *manipulated, setpoint],
    }


@pytest.mark.parametrize("case", ["idv1", "idv2", "idv3", "idv4"])
def test_a_case_comes_back_number_by_number(shared_data: Any, tmp_path: Path, case: str) -> None:
    source = export(Path(shared_data("tep", case, "u.dat")).parent, tmp_path / "case.csv")
    dataset = convert_log(plant_log_from_dict(configuration(), "plant.toml"), folder=tmp_path)
    y, u = source["y"][:, :41], source["u"]
    columns: Any = dataset.transitions
    assert (dataset.n_episodes, dataset.n_rows) == (1, SAMPLES - 2)
    assert columns.mask.all()
    np.testing.assert_array_equal(columns.obs[:, :41], np.float32(y[1:-1]))
    np.testing.assert_array_equal(columns.next_obs[:, :41], np.float32(y[2:]))
    np.testing.assert_array_equal(columns.action, np.float32(u[1:-1]))
    reward = -np.abs(np.diff(y[1:, 7])) - 0.01 * np.abs(np.diff(u[:-1, 0]))
    np.testing.assert_allclose(columns.reward, reward, rtol=1e-6, atol=1e-7)
    pressure = np.maximum(y[2:, 6] - 2895, 0)
    np.testing.assert_allclose(columns.cost[:, 0], pressure, rtol=1e-6)
    np.testing.assert_array_equal(dataset.setpoint, np.float32(source["r"][1:-1, 8:9]))


def test_a_draft_of_a_real_log_converts_and_is_inspected(
    command: Any, shared_data: Any, tmp_path: Path
) -> None:
    """What stands still keeps a range; roles follow the names; the log alone is named."""
    source = export(Path(shared_data("tep", "idv2", "u.dat")).parent, tmp_path / "idv2.csv")
    command("init", "idv2.csv")
    drafted = read_plant_log("plant.toml")
    roles = [tag.role for tag in drafted.tags]
    assert roles.count("manipulated") == 12
    assert drafted.sampling.period_s == PERIOD_S
    command("convert", "idv2.csv", "--out", "idv2.h5")
    dataset = read_dataset("idv2.h5")
    columns: Any = dataset.transitions
    assert dataset.n_rows >= SAMPLES - 2
    assert columns.mask.all()
    names = [channel.name for channel in dataset.spec.obs]
    np.testing.assert_array_equal(
        columns.obs[:, names.index("XMEAS_9")], np.float32(source["y"][: dataset.n_rows, 8])
    )
    notes = dataset_report(dataset)["notes"]
    assert "action XMV_12 hardly moves: nothing can be learned about it" in notes
