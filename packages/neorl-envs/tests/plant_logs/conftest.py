"""Known episodes of a tank, and exports of them as historians write them."""

import dataclasses
import datetime as dt
import importlib.util
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

# A checkout whose environment is older than the extra still runs the other tests.
collect_ignore_glob = [] if importlib.util.find_spec("polars") else ["test_*.py"]

PERIOD = 60
START = 1_700_000_040  # a whole minute, seconds since 1970


@dataclasses.dataclass
class Tank:
    """Samples of a level, its setpoint and a valve, once a minute; two gaps, one trip.

    Attributes:
        at: Seconds since 1970.
        level: Metres.
        setpoint: Metres.
        valve: Per cent.
        mode: ``"AUTO"`` or ``"MAN"``.
    """

    at: np.ndarray
    level: np.ndarray
    setpoint: np.ndarray
    valve: np.ndarray
    mode: np.ndarray


@pytest.fixture
def tank() -> Tank:
    """240 samples: a gap of 8 minutes behind sample 99, one of a day behind sample 179."""
    random = np.random.default_rng(4)
    n = 240
    at = START + PERIOD * np.arange(n)
    at[100:] += 480
    at[180:] += 86_400
    return Tank(
        at=at,
        level=np.round(1 + 0.3 * np.sin(np.arange(n) / 9) + 0.01 * random.normal(size=n), 4),
        setpoint=np.where(np.arange(n) % 80 < 40, 1.0, 1.25),
        valve=np.round(np.clip(50 + np.cumsum(random.normal(size=n)), 0, 100), 3),
        mode=np.where((np.arange(n) > 29) & (np.arange(n) < 40), "MAN", "AUTO"),
    )


WIDE: dict[str, Any] = {
    "name": "tank",
    "log": {"files": ["log.csv"], "timestamp": "time", "missing": ["Bad", "No Data"]},
    "sampling": {"period_s": 60, "largest_gap_s": 60},
    "episodes": {"gap_s": 300},
    "reward": {"expression": "-abs(level - setpoint) - 0.01 * abs(valve - before_valve)"},
    "cost": [
        {"name": "overflow", "expression": "greatest(level - 1.2, 0)", "unit": "m", "limit": 0.0}
    ],
    "tag": [
        {
            "name": "level",
            "tag": "LI-1.PV",
            "role": "observation",
            "unit": "m",
            "low": 0,
            "high": 2,
        },
        {
            "name": "setpoint",
            "tag": "LC-1.SP",
            "role": "setpoint",
            "unit": "m",
            "low": 0,
            "high": 2,
        },
        {
            "name": "valve",
            "tag": "LC-1.OP",
            "role": "manipulated",
            "unit": "%",
            "low": 0,
            "high": 100,
        },
        {"name": "mode", "tag": "LC-1.MODE", "role": "mode", "automatic": ["AUTO"]},
    ],
}


def stamp(seconds: float, zone: str = "UTC", how: str = "iso") -> str:
    moment = dt.datetime.fromtimestamp(seconds, ZoneInfo(zone))
    return moment.isoformat() if how == "iso" else moment.strftime(how)


def wide_lines(tank: Tank, *, zone: str = "UTC", how: str = "iso") -> list[str]:
    lines = ["time,LI-1.PV,LC-1.SP,LC-1.OP,LC-1.MODE"]
    rows = zip(tank.at, tank.level, tank.setpoint, tank.valve, tank.mode, strict=True)
    return lines + [f"{stamp(t, zone, how)},{x},{sp},{u},{m}" for t, x, sp, u, m in rows]


@pytest.fixture
def wide(tank: Tank, tmp_path: Path) -> Path:
    """A clean wide export."""
    (tmp_path / "log.csv").write_text("\n".join(wide_lines(tank)) + "\n")
    return tmp_path


def toml_of(values: dict[str, Any]) -> str:
    """The tables of a configuration as TOML."""

    def line(key: str, value: Any) -> str:
        return f"{key} = {str(value) if isinstance(value, int | float) else repr(value)}"

    lines = [line("name", values["name"])]
    for name in ("log", "sampling", "episodes", "reward"):
        lines += [f"[{name}]", *(line(*item) for item in values[name].items())]
    for name in ("tag", "cost"):
        for table in values[name]:
            lines += [f"[[{name}]]", *(line(*item) for item in table.items())]
    return "\n".join(lines) + "\n"
