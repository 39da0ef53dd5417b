"""Loops of today's controller in ``plant.toml``: a faceplate's numbers in engineering units."""

import copy
import math
import tomllib
from typing import Any

import pytest

from neorl_core import InputError
from neorl_core.loops import pid_gains
from neorl_envs.datasets import TodaysFaceplate, todays_controller
from neorl_envs.plant_logs import (
    convert_log,
    draft_plant_log,
    plant_log_from_dict,
)

from .conftest import WIDE, Tank, wide_lines

LOOP = {
    "name": "LC-1",
    "controlled": "level",
    "manipulated": "valve",
    "direction": "direct",
    "setpoint_channel": "setpoint",
}
PERCENT = {"gain": 0.1, "gain_unit": "percent", "integral": 20, "integral_unit": "minutes"}


def declared(*loops: dict[str, Any]) -> dict[str, Any]:
    return {**copy.deepcopy(WIDE), "loop": list(loops)}


def test_a_faceplate_becomes_engineering_units_and_seconds(tank: Tank, tmp_path) -> None:
    """The level has a range of 2 m and the valve one of 100 %, so 0.1 %/% are 5 % per m."""
    (tmp_path / "log.csv").write_text("\n".join(wide_lines(tank)) + "\n")
    config = plant_log_from_dict(declared({**LOOP, **PERCENT}), "plant.toml")
    today = todays_controller(convert_log(config, folder=tmp_path))
    assert today.name == "LC-1"
    (loop,) = today.loops
    assert loop["gain"] == pytest.approx(5.0)
    assert loop["integral_time"] == pytest.approx(1200.0)
    assert loop["setpoint_channel"] == "setpoint"
    assert today.sentences == ("LC-1: gain 5 % per m, integral time 1200 s, direct acting",)
    (faceplate,) = today.faceplates
    assert isinstance(faceplate, TodaysFaceplate)
    assert (faceplate.name, faceplate.units) == ("LC-1", ("m", "%"))
    assert faceplate.shown == (0.1, 20, 0.0, 10.0)
    gains = pid_gains(faceplate.shown, form=faceplate.form)
    assert [float(number) for number in gains] == pytest.approx([-5.0, -5 / 1200, 0.0, 0.0])


SERIES = {"structure": "series", "gain": 5.0, "integral": 100, "derivative": 10}


@pytest.mark.parametrize(
    ("numbers", "gain", "seconds"),
    [
        ({"gain": 5.0, "integral": 1200}, 5.0, 1200.0),
        ({"proportional_band": 1000, "integral": 20, "integral_unit": "minutes"}, 5.0, 1200.0),
        ({"gain": 5.0, "integral": 0.05, "integral_unit": "per_minute"}, 5.0, 1200.0),
        ({"structure": "parallel", "gain": 5.0, "integral": 0.25, "integral_unit": "per_minute"},
         5.0, 1200.0),
        # (1 + 0.01 / s)(1 + 10 s) = 1.1 (1 + 1 / (110 s) + ...), with a filter that is far away.
        ({**SERIES, "derivative_filter": 1e9}, 5.5, 110.0),
        ({"gain": 5.0, "integral": 0, "integral_unit": "per_minute", "bias": 50.0}, 5.0, None),
        ({"gain": 5.0, "bias": 50.0}, 5.0, None),
    ],
)  # fmt: skip
def test_the_same_loop_in_other_forms(numbers, gain, seconds) -> None:
    (loop,) = plant_log_from_dict(declared({**LOOP, **numbers}), "plant.toml").loops
    standard = loop.standard(measurement=2.0, output=100.0)
    assert standard["gain"] == pytest.approx(gain, rel=1e-9)
    expected = None if seconds is None else pytest.approx(seconds, rel=1e-9)
    assert standard.get("integral_time") == expected


def test_a_derivative_keeps_its_time_and_its_filter() -> None:
    numbers = {"gain": 5.0, "integral": 1200, "derivative": 2, "derivative_unit": "minutes"}
    (loop,) = plant_log_from_dict(declared({**LOOP, **numbers}), "plant.toml").loops
    standard = loop.standard(measurement=2.0, output=100.0)
    assert standard["derivative_time"] == pytest.approx(120.0, rel=1e-9)
    assert standard["derivative_filter"] == pytest.approx(10.0, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gain": None}, "give either gain or proportional_band"),
        ({"proportional_band": 100.0}, "give either gain or proportional_band"),
        ({"gain": -0.1}, "gain must be above 0"),
        ({"gain": math.nan}, "must be finite"),
        ({"setpoint": 1.0}, "give either setpoint or setpoint_channel"),
        ({"integral": 0}, "integral must be positive"),
        ({"integral": math.inf}, "needs its bias"),
        ({"derivative": -1.0}, "derivative must be not negative"),
        ({"manipulated": "level"}, "manipulated tag of LC-1"),
        ({"controlled": "levle"}, "did you mean"),
        ({"controlled": "mode"}, "observed tag of LC-1"),
        ({"direction": "up"}, "direction"),
        ({"name": "LC/1"}, "also names files"),
    ],
)
def test_numbers_that_no_faceplate_shows_are_refused(change, message) -> None:
    loop = {k: v for k, v in {**LOOP, **PERCENT, **change}.items() if v is not None}
    with pytest.raises(InputError, match=message):
        plant_log_from_dict(declared(loop), "plant.toml")


def test_two_loops_on_one_valve_are_refused() -> None:
    with pytest.raises(InputError, match="another loop moves valve already"):
        plant_log_from_dict(declared({**LOOP, **PERCENT}, {**LOOP, **PERCENT}), "plant.toml")


def test_a_draft_has_a_table_for_every_loop_that_its_tags_show(tmp_path) -> None:
    heads = "time,AIC-401.PV [%],AIC-401.SP [%],AIC-401.OP [%],AIC-401.MODE,FI-1.PV [t/h],TI-3"
    rows = [
        f"2026-01-05T10:{m:02d}:00Z,{40 + m % 7},45,{m},AUTO,{m % 5},{m % 3}" for m in range(40)
    ]
    (tmp_path / "log.csv").write_text("\n".join([heads, *rows]) + "\n")
    text = draft_plant_log(tmp_path / "log.csv")
    (start,) = [i for i, line in enumerate(text.splitlines()) if line.startswith("# [[loop]]")]
    table = "\n".join(line.removeprefix("# ") for line in text.splitlines()[start : start + 12])
    (loop,) = tomllib.loads(table)["loop"]
    assert loop["name"] == "AIC-401"
    names = [loop[key] for key in ("controlled", "manipulated", "setpoint_channel")]
    assert names == ["AIC_401_PV", "AIC_401_OP", "AIC_401_SP"]
