"""Co-simulation units as plants, against FMPy's own simulation of the same unit."""

import functools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tank_unit
from neorl_core import InputError

fmpy = pytest.importorskip("fmpy")
pytest.importorskip("polars")
pytestmark = pytest.mark.skipif(tank_unit.compiler() is None, reason="no C compiler")

STEPS = 60
VARIANTS = ({"version": 2}, {"version": 3}, {"version": 2, "reset": False})


@pytest.fixture(scope="module", params=VARIANTS, ids=str)
def unit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tank_unit.build_tank(tmp_path_factory.mktemp("unit"), **request.param)


@pytest.fixture(scope="module")
def tank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tank_unit.build_tank(tmp_path_factory.mktemp("tank"))


def units(path: Path) -> Any:
    from neorl_envs.plants.fmi import Units

    names = {"inputs": ["valve"], "outputs": ["level", "flow"], "starts": ["level0"]}
    return Units(str(path), **names, period=1.0, horizon=STEPS)


def episode(of: Any, valve: np.ndarray, start: float) -> np.ndarray:
    """Outputs before the first and after every step, shape ``(time + 1, output)``."""
    starts = np.asarray([start], np.float32)
    point, outputs = of.begin(starts)
    rows, history = [outputs], np.zeros((STEPS, 1), np.float32)
    for time, value in enumerate(valve):
        inputs = np.asarray([value], np.float32)
        point, outputs = of.step(point, np.asarray(time), starts, history, inputs)
        history[time] = inputs
        rows.append(outputs)
    return np.stack(rows)


def by_fmpy(path: Path, valve: np.ndarray, start: float) -> np.ndarray:
    times = np.arange(len(valve) + 1.0)
    signal = np.zeros(len(times), [("time", float), ("valve", float)])
    signal["time"], signal["valve"][:-1] = times, valve.astype(np.float32)
    result = fmpy.simulate_fmu(
        str(path),
        input=signal,
        output=["level", "flow"],
        step_size=1.0,
        output_interval=1.0,
        stop_time=float(len(valve)),
        start_values={"level0": np.float32(start)},
    )
    return np.stack([result["level"], result["flow"]], axis=1)


def test_episodes_equal_those_of_fmpy(unit: Path) -> None:
    ours, random = units(unit), np.random.default_rng(0)
    for start in (0.8, 1.1):
        valve = random.uniform(0, 1, STEPS)
        np.testing.assert_array_equal(episode(ours, valve, start), by_fmpy(unit, valve, start))
    assert ours.replayed == 0


def test_a_step_is_a_pure_function_of_its_point(unit: Path) -> None:
    of, starts = units(unit), np.full((2, 1), 1.0, np.float32)
    points, _ = of.begin(starts)
    history = np.zeros((2, STEPS, 1), np.float32)
    for time in range(5):
        inputs = np.asarray([[0.2], [0.9]], np.float32)
        before = points
        points, outputs = of.step(points, np.full(2, time), starts, history, inputs)
        history[:, time] = inputs
    again = of.step(before, np.full(2, 4), starts, history, inputs)
    np.testing.assert_array_equal(again[0], points)
    np.testing.assert_array_equal(again[1], outputs)
    swapped = of.step(before, np.full(2, 4), starts, history, inputs[::-1])
    assert (swapped[0] != points).any()
    assert of.replayed > 0
    assert outputs[0, 0] < outputs[1, 0]


def test_instances_are_used_again(tank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fmpy.fmi2 import FMU2Slave

    made: list[Any] = []
    whole = FMU2Slave.instantiate
    monkeypatch.setattr(FMU2Slave, "instantiate", lambda self: (made.append(self), whole(self)))
    of = units(tank)
    for start in np.linspace(0.5, 1.0, 20):
        episode(of, np.full(STEPS, 0.5), start)
    assert len(made) == 1


def test_a_refused_step_ends_the_episode(tmp_path: Path) -> None:
    import jax
    import jax.numpy as jnp

    from neorl_envs import make

    low, high = "low = 0.8\nhigh = 1.2", "low = 1.9\nhigh = 1.95"
    length = "length = 60", "length = 60\ntrip_reward = -100.0"
    text = tank_unit.DECLARATION.replace(low, high).replace(*length)
    path = tank_unit.build_tank(tmp_path, declaration=text)
    env: Any = make(str(path))
    params = env.default_params()
    state, _ = env.reset(params, jax.random.key(0))
    step = jax.jit(env.step)
    for _ in range(STEPS):
        before = state
        state, result = step(params, state, jnp.ones(1), jax.random.key(1))
        if result.terminated:
            break
    assert bool(result.info.trip)
    assert not bool(result.truncated)
    assert float(result.reward) < -99
    np.testing.assert_array_equal(state.outputs, before.outputs)
    assert np.isfinite(np.asarray(result.obs)).all()


def test_reward_and_cost_follow_the_expressions(tank: Path) -> None:
    import jax
    import jax.numpy as jnp

    from neorl_envs import make

    env: Any = make(str(tank))
    params = env.default_params()
    state, _ = env.reset(params, jax.random.key(0))
    step = jax.jit(env.step)
    for valve in (0.6, 1.0, np.nan, -5.0):
        last = state
        state, result = step(params, state, jnp.asarray([valve]), jax.random.key(3))
        level, moved = float(state.outputs[0]), float(result.applied[0] - last.command[0])
        expected = -abs(level - 1.2) - 0.01 * abs(moved)
        assert float(result.reward) == pytest.approx(expected, abs=1e-6)
        assert float(result.cost[0]) == pytest.approx(max(level - 1.3, 0), abs=1e-6)
        assert abs(moved) <= 0.2 + 1e-6
    objective = env.objective(last.outputs, state.command, state.outputs, last.command)
    assert float(objective[0]) == pytest.approx(float(result.reward), abs=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("noise = 0.005", "", ""),
        ('tag = "flow"', 'tag = "flows"', "did you mean 'flow'"),
        ("low = 0.0\nhigh = 0.02", "", "low and high must be numbers"),
        ('unit = "m3/s"', 'unit = "l/s"', "write m3/s"),
        ('role = "manipulated"', 'role = "observation"', "no tag has the role 'manipulated'"),
        ("period_s = 1.0", "period = 1.0", "period"),
        ("level - 1.2", "levl - 1.2", "did you mean 'level'"),
        ("greatest(level - 1.3, 0)", "sum(level)", "looks beyond its row"),
        ("setpoint = 1.2", "", "setpoint"),
    ],
)
def test_declarations_are_checked(tank: Path, old: str, new: str, words: str) -> None:
    from neorl_envs import make

    declaration = tank.with_suffix(".toml")
    try:
        declaration.write_text(tank_unit.DECLARATION.replace(old, new), encoding="utf-8")
        if not words:
            make(str(tank))  # the drawn start still makes two episodes differ
            return
        with pytest.raises(InputError) as raised:
            make(str(tank))
    finally:
        declaration.write_text(tank_unit.DECLARATION, encoding="utf-8")
    assert words in str(raised.value)
    assert "tank" in str(raised.value)


def test_without_chance_no_interval_could_be_given(tank: Path, tmp_path: Path) -> None:
    from neorl_envs import make

    copy = tmp_path / "tank.fmu"
    copy.write_bytes(tank.read_bytes())
    text = tank_unit.DECLARATION.replace("noise = 0.005", "").replace("high = 1.2", "high = 0.8")
    copy.with_suffix(".toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="every episode would be the same"):
        make(str(copy))


def test_a_draft_needs_only_its_marked_lines(tank: Path, tmp_path: Path) -> None:
    from neorl_envs import make
    from neorl_envs._command.main import main

    copy = tmp_path / "tank.fmu"
    copy.write_bytes(tank.read_bytes())
    with pytest.raises(InputError, match="neorl-envs init"):
        make(str(copy))
    assert main(["init", str(copy)]) == 0
    text = copy.with_suffix(".toml").read_text(encoding="utf-8")
    text = text.replace("# [[parameter]]", "[[parameter]]").replace("# name", "name")
    text = text.replace("# low", "low").replace("# high", "high")
    copy.with_suffix(".toml").write_text(text, encoding="utf-8")
    spec = make(str(copy)).spec
    assert [channel.name for channel in (*spec.obs, *spec.action)] == ["level", "flow", "valve"]
    assert [channel.unit for channel in spec.obs] == ["m", "m3/s"]
    assert (spec.dt, spec.horizon) == (1.0, 60)


def test_a_variable_that_is_no_real_number_is_no_channel(tank: Path, tmp_path: Path) -> None:
    from neorl_envs import make
    from neorl_envs._command.main import main

    copy = tmp_path / "tank.fmu"
    switch = (
        '<ScalarVariable name="pump" valueReference="9" causality="input" variability="discrete">'
        '<Boolean start="true"/></ScalarVariable></ModelVariables>'
    )
    with zipfile.ZipFile(tank) as old, zipfile.ZipFile(copy, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "modelDescription.xml":
                content = content.replace(b"</ModelVariables>", switch.encode())
            new.writestr(name, content)
    assert main(["init", str(copy)]) == 0
    drafted = copy.with_suffix(".toml").read_text(encoding="utf-8")
    assert "# left out, as a channel is a real number: pump (Boolean)\n" in drafted
    tag = '\n[[tag]]\nname = "pump"\nrole = "manipulated"\nlow = 0\nhigh = 1\n'
    copy.with_suffix(".toml").write_text(tank_unit.DECLARATION + tag, encoding="utf-8")
    with pytest.raises(InputError, match="pump is of the type Boolean, and a channel must be a"):
        make(str(copy))


def test_a_file_that_is_no_unit_is_refused(tmp_path: Path) -> None:
    from neorl_envs import make

    with pytest.raises(InputError, match="no such unit"):
        make(str(tmp_path / "none.fmu"))
    (tmp_path / "text.fmu").write_text("not a unit")
    with pytest.raises(InputError, match="cannot read this unit"):
        make(str(tmp_path / "text.fmu"))


@pytest.mark.nightly
def test_a_unit_keeps_every_law(unit: Path) -> None:
    from neorl_envs import make
    from neorl_envs.testing import check_environment

    findings = check_environment(make(str(unit)))
    assert [finding for finding in findings if finding.fault] == []


@pytest.mark.nightly
def test_processes_step_units_side_by_side(tank: Path) -> None:
    from gymnasium.vector import AsyncVectorEnv

    from neorl_envs.interfaces import GymnasiumEnv

    make_one = functools.partial(GymnasiumEnv, str(tank), physical=True)
    with_one = make_one()
    first, _ = with_one.reset(seed=5)
    envs = AsyncVectorEnv([make_one] * 2, context="spawn")
    try:
        obs, _ = envs.reset(seed=[5, 6])
        np.testing.assert_array_equal(obs[0], first)
        action = np.full((2, 1), 0.7, np.float32)
        for _ in range(3):
            expected = with_one.step(action[0])
            obs, reward, *_ = envs.step(action)
            np.testing.assert_array_equal(obs[0], expected[0])
            assert reward[0] == expected[1]
        assert (obs[0] != obs[1]).any()
    finally:
        envs.close()


@pytest.mark.nightly
def test_a_log_of_a_unit_is_collected(tank: Path, tmp_path: Path) -> None:
    from neorl_envs import read_dataset
    from neorl_envs._command.main import main

    log = tmp_path / "log.h5"
    assert main(["collect", str(tank), "--steps", "600", "--out", str(log)]) == 0
    dataset = read_dataset(log)
    assert dataset.n_rows >= 600
    assert dataset.attributes["behaviours"] == ["PID", "constant"]
