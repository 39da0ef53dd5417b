"""The page on limits: its tables are read as they stand, and say what the page says."""

import re
import tomllib
from pathlib import Path

import numpy as np

from neorl_core import Channel, Spec
from neorl_safety.constraints import (
    declared_constraints,
    describe_constraints,
    identified_model,
)

PAGE = Path(__file__).parents[1] / "docs" / "pages" / "how-to" / "declare-limits.md"
BOILER = Spec(
    obs=(
        Channel("pressure", "bar", 0.0, 80.0),
        Channel("level", "m", 0.0, 2.0),
        Channel("flue", "degC", 0.0, 600.0),
    ),
    action=(Channel("fuel", "kg/h", 0.0, 500.0), Channel("feedwater", "t/h", 0.0, 60.0)),
    cost=(),
    dt=10.0,
    horizon=360,
)


def test_the_tables_of_the_page_declare_the_boiler():
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    records = [one for block in blocks for one in tomllib.loads(block).get("constraint", [])]
    rng = np.random.default_rng(0)
    action = rng.uniform([40, 0], [500, 60], (3000, 2))
    obs = np.full((3001, 3), [50.0, 1.0, 300.0])
    for t in range(3000):
        pull = 0.002 * (action[t, 0] - 250) - 0.02 * (action[t, 1] - 30)
        obs[t + 1, 0] = 0.98 * obs[t, 0] + 1.0 + pull + rng.normal(0, 0.2)
        obs[t + 1, 1] = 0.9 * obs[t, 1] + 0.1 + 0.002 * (action[t, 1] - 30) + rng.normal(0, 0.01)
        obs[t + 1, 2] = 0.8 * obs[t, 2] + 0.2 * action[t, 0] + rng.normal()
    model = identified_model(obs[:-1], action, [0])
    words = describe_constraints(declared_constraints(BOILER, records, model=model))
    assert words[:4] == [
        "fuel between 40 and 500 kg/h",
        "feedwater between 0 and 60 t/h",
        "fuel rises by at most 2 kg/h per second",
        "feedwater rises by at most 0.05 t/h per second and falls by at most 0.1 t/h per second",
    ]
    assert words[4] == "fuel at 0 kg/h while level is below 0.6 m"
    assert words[5] == "0.1 fuel + 1 feedwater at most 95"
    assert re.match(r"pressure at most 64 bar, by a linear model: .* held-out steps$", words[6])
    assert words[7:] == [
        "feedwater moves by at least 0.5 t/h or holds",
        "feedwater rests for 120 s after every move",
    ]
