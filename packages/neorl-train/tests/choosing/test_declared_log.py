"""What the ``plant.toml`` of a converted log declares reaches the plant model."""

import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("polars", reason="expressions of plant.toml need neorl-envs[etl]")

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import RetuneSettings, learned_plants
from neorl_core import Channel, CostChannel, Spec
from neorl_envs import write_dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_train._job.plant_model import log_context

STEPS, EPISODES = 20, 16
SPEC = Spec(
    (Channel("level", "m", -5.0, 5.0), Channel("demand", "m3/h", -5.0, 5.0)),
    (Channel("valve", "%", -5.0, 5.0),),
    (CostChannel("overflow", "m", 1.0, "episode"),),
    60.0,
    STEPS,
)
CONFIGURATION = {
    "reward": {"expression": "-abs(level - 1) - 0.1 * abs(valve - before_valve)"},
    "cost": [{"name": "overflow", "expression": "greatest(level - 1.5, 0)"}],
    "tag": [
        {"name": "level", "role": "observation"},
        {"name": "demand", "role": "disturbance"},
        {"name": "valve", "role": "manipulated"},
    ],
}


@pytest.fixture(scope="module")
def log():
    """A tank that a proportional controller with a test signal fills."""
    rng = np.random.default_rng(0)
    columns = {name: [] for name in ("obs", "action", "next_obs", "reward", "cost")}
    for _ in range(EPISODES):
        level, last = 1 + 0.5 * rng.normal(), np.nan
        for demand in 0.3 * rng.normal(size=STEPS + 1):
            action = 0.5 * (1 - level) + 0.4 * rng.normal()
            after = 0.9 * level + 0.4 * action - 0.2 * demand + 0.1
            moved = 0.0 if np.isnan(last) else abs(action - last)
            columns["obs"].append([level, demand])
            columns["action"].append([action])
            columns["reward"].append(-abs(after - 1) - 0.1 * moved)
            columns["cost"].append([max(after - 1.5, 0.0)])
            level, last = after, action
    arrays = {name: np.asarray(column) for name, column in columns.items() if column}
    ends = np.arange(EPISODES * (STEPS + 1)) % (STEPS + 1)
    # The row behind the last one of an episode is its successor alone.
    following = np.roll(arrays["obs"], -1, axis=0)
    kept = ends < STEPS
    return dataset_from_columns(
        SPEC,
        **{name: arrays[name][kept] for name in ("obs", "action", "reward", "cost")},
        next_obs=following[kept],
        terminated=np.zeros(kept.sum(), bool),
        truncated=ends[kept] == STEPS - 1,
        attributes={"provenance": {"configuration": CONFIGURATION}},
    )


def test_expressions_and_roles_are_facts_of_the_plant(log, tmp_path):
    write_dataset(tmp_path / "log.h5", log)
    known = log_context(tmp_path / "log.h5")
    assert known.controllers == {}
    assert known.facts.exogenous == ("demand",)
    assert known.facts.setpoints == ()  # a demand acts on the plant itself
    assert known.notes[0] == "computed by the expressions of plant.toml: reward, cost overflow"
    quick = RetuneSettings(model=HistoryModelSettings(updates=20))
    plants = learned_plants(log.transitions, SPEC, 0, known.facts, quick)
    assert plants.model.predicted == (0,)
    start = plants.evaluation_plant.sample_params(jnp.asarray([0, 1], jnp.uint32))
    state, _ = plants.evaluation_plant.reset(start)
    done = []
    for action in (0.7, -0.4):
        state, step = plants.evaluation_plant.step(start, state, jnp.asarray([action]))
        done.append((float(step.obs[0]), float(step.reward), float(step.cost[0])))
    # The second step knows the first action; what the log left of the first is its own beginning.
    level, reward, cost = done[1]
    assert reward == pytest.approx(-abs(level - 1) - 0.1 * abs(-0.4 - 0.7), abs=1e-4)
    assert cost == pytest.approx(max(level - 1.5, 0), abs=1e-4)
