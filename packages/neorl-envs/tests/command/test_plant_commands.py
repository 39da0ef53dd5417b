"""The commands about plants: describe, render, check."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from neorl_core import spec_from_dict
from neorl_envs import make
from neorl_envs._command.main import main
from neorl_envs.plants import register_plant


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("neorl_envs._command.main.prepare_process", lambda: None)
    return tmp_path


def test_describe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "ChemicalReactor-v0", "--constants"]) == 0
    text = capsys.readouterr().out
    for word in ("T_adiab_hat", "at most", "(reference)", "kJ/kg", "Lucia"):
        assert word in text
    for line in (
        "T_R      K    361.15 to 365.15  counts as temperature, 0.833333 for each unit beyond and",
        "P        bar  at most 5         ends the episode",
        "temperature  K min  at most 20 per episode  penalty 0.75 points per K min",
    ):
        assert line in text
    assert main(["describe", "ChemicalReactor-v0", "--json", "--constants"]) == 0
    document = json.loads(capsys.readouterr().out)
    env = make("ChemicalReactor-v0")
    assert document["format"] == "neorl-plant-description"
    assert spec_from_dict(document["spec"]) == env.spec
    assert document["penalty_weights"] == env.penalty_weights()
    assert document["limits"][2] == {
        **{"quantity": "P", "unit": "bar", "low": None, "high": 3.5},
        **{"cost": "pressure", "factor": 1.0, "trip": False},
    }
    assert all({"name", "value", "unit", "source"} == set(row) for row in document["constants"])


def test_render(tank: Any, capsys: pytest.CaptureFixture[str]) -> None:
    register_plant("Tank-v0", tank)
    for policy in ("nervous", "random"):
        assert main(["render", "Tank-v0", "--out", f"{policy}.png", "--policy", policy]) == 0
    assert "25 steps, return" in capsys.readouterr().out
    pictures = [np.asarray(Image.open(f"{policy}.png")) for policy in ("nervous", "random")]
    assert pictures[0].shape == pictures[1].shape
    assert (pictures[0] != pictures[1]).any()
    assert main(["render", "Tank-v0", "--out", "run.gif"]) == 0
    with Image.open("run.gif") as gif:
        assert gif.n_frames == 25  # one a step, where there are few
        first = np.asarray(gif.convert("RGB"))
        gif.seek(24)
        assert (first != np.asarray(gif.convert("RGB"))).any()


BAD = {
    "plant": (["render", "Tonk-v0", "--out", "a.png"], "unknown environment 'Tonk-v0'"),
    "policy": (
        ["render", "Tank-v0", "--out", "a.png", "--policy", "nervus"],
        "unknown policy 'nervus'; did you mean 'nervous'?",
    ),
    "kind": (["render", "Tank-v0", "--out", "a.jpg"], "--out must end with .png or .gif"),
    "folder": (["render", "Tank-v0", "--out", "no/a.png"], "no folder no; create it first"),
    "seed": (["render", "Tank-v0", "--out", "a.png", "--seed", "-1"], "seed must be from 0"),
    "preset": (["render", "Tank-v0", "--out", "a.png", "--preset", "x"], "preset must be 'plant'"),
    "description": (["describe", "Tank-v1"], "did you mean 'Tank-v0'?"),
    "module": (["check", "no_such_module:Tank"], "no_such_module:Tank cannot be made: ModuleNot"),
    "class": (["check", "mine:Tonk"], "mine:Tonk cannot be made: AttributeError"),
    "name": (["check", "Tnk-v0"], "one of your own is MODULE:CLASS"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(
    tank: Any, here: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    register_plant("Tank-v0", tank)
    (here / "mine.py").write_text("")
    words, message = BAD[case]
    assert main(words) == 2
    seen = capsys.readouterr()
    assert message in seen.err
    assert len(seen.err.splitlines()) == 1
    assert not (here / "a.png").exists()


def test_an_existing_picture_is_kept(tank: Any, here: Path) -> None:
    register_plant("Tank-v0", tank)
    (here / "a.png").write_text("mine")
    assert main(["render", "Tank-v0", "--out", "a.png"]) == 2
    assert (here / "a.png").read_text() == "mine"


def test_check_says_which_laws_are_broken(tank: Any, capsys: pytest.CaptureFixture[str]) -> None:
    register_plant("Tank-v0", tank)
    assert main(["check", "Tank-v0"]) == 2
    seen = capsys.readouterr()
    assert "FAILED  a wrong shape is refused: an action of shape (2,) is accepted" in seen.out
    assert "ok      finite under hostile actions" in seen.out
    assert "breaks 1 of 17 laws" in seen.err
    assert len(seen.err.splitlines()) == 1
