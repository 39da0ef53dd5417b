import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from neorl_core import Channel, CostChannel, Policy, Spec, Step
from neorl_core.control import PID, ConstantPolicy
from neorl_core.testing import configure_tests
from neorl_envs import Dataset, collect_log, make
from neorl_envs._command.main import main
from neorl_envs.blocks import Actuator, Instrument, constant
from neorl_envs.datasets import dataset_from_columns
from neorl_envs.plants import PLANTS, ChemicalReactor, PlantDefaults, SimulatedPlant


def pytest_configure() -> None:
    configure_tests(strict_dtypes=True)


class Episodes(NamedTuple):
    """Whole episodes, axes ``(episode, time)``; rows after the end are zero."""

    obs: Array
    reward: Array
    cost: Array
    applied: Array
    alive: Array
    success: Array
    trip: Array


@functools.partial(jax.jit, static_argnums=(0, 3))
def run_episodes(env: Any, policy: Policy, keys: Array, spread: float = 0.15) -> Episodes:
    def step(carry: tuple, key: Array) -> tuple[tuple, Episodes]:
        params, state, obs, memory, alive = carry
        memory, action = policy(memory, obs, key)
        state, answer = env.step(params, state, action, key)
        memory = policy.sent(memory, answer.applied)
        info = answer.info
        seen = (answer.obs, answer.reward, answer.cost, answer.applied, alive)
        seen += (info.success, info.trip)
        rows = jax.tree.map(lambda x: jnp.where(alive, x, jnp.zeros_like(x)), Episodes(*seen))
        alive = alive & ~(answer.terminated | answer.truncated)
        return (params, state, answer.obs, memory, alive), rows

    def episode(key: Array) -> Episodes:
        for_params, for_reset, for_steps = jax.random.split(key, 3)
        params = env.sample_params(for_params, spread=spread)
        state, obs = env.reset(params, for_reset)
        carry = (params, state, obs, policy.initial_carry(), jnp.asarray(True))
        return jax.lax.scan(step, carry, jax.random.split(for_steps, env.spec.horizon))[1]

    return jax.vmap(episode)(keys)


@pytest.fixture(scope="session")
def episodes() -> Any:
    """``episodes(env, policy, keys)``: one compiled program a kind of policy."""
    return run_episodes


@pytest.fixture(scope="session")
def env() -> ChemicalReactor:
    return make("ChemicalReactor-v0")


@pytest.fixture(scope="session")
def log(env: ChemicalReactor) -> Dataset:
    """A plant log of one round of the tunings and a bit more."""
    return collect_log(env, n_steps=1000, key=jax.random.key(3))


@pytest.fixture
def toy_spec() -> Spec:
    return Spec(
        obs=(Channel("level", "m", 0.0, 2.0), Channel("temperature", "K", 280.0, 400.0)),
        action=(Channel("valve", "%", 0.0, 100.0),),
        cost=(CostChannel("overflow", "m", 0.5, "episode"),),
        dt=60.0,
        horizon=4,
    )


@pytest.fixture
def toy_columns() -> dict[str, np.ndarray]:
    """Three episodes of 3, 1 and 4 rows: a trip, a trip in the first row, a time limit."""
    n = 8
    rows = np.arange(n, dtype=np.float32)
    return {
        "obs": np.stack([rows / 8, 300 + rows], axis=1),
        "action": (10 * rows + 5)[:, None],
        "reward": rows - 1,
        "cost": (rows / 16)[:, None],
        "next_obs": np.stack([rows / 8 + 0.125, 301 + rows], axis=1),
        "terminated": np.isin(rows, [2, 3]),
        "truncated": np.isin(rows, [7]),
    }


@pytest.fixture
def toy(toy_spec: Spec, toy_columns: dict[str, np.ndarray]) -> Dataset:
    return dataset_from_columns(
        toy_spec,
        **toy_columns,
        behaviour=np.array([0, 1, 0]),
        behaviour_log_prob=np.linspace(-1, 0, 8),
        requested=np.where(np.arange(8)[:, None] > 0, 10.0 * np.arange(8)[:, None], np.nan),
        time=60.0 * np.arange(8),
        mode=np.arange(8)[:, None] % 2,
        setpoint=np.full((8, 1), 1.5),
        test_signal=np.where(np.arange(8)[:, None] < 4, 0.5, np.nan),
        term=np.stack([np.arange(8.0), np.full(8, np.nan)], axis=1),
        attributes={
            "name": "toy",
            "behaviours": ["a", "b"],
            "setpoints": [{"name": "level", "unit": "m"}],
        },
    )


@pytest.fixture
def toy_file(toy: Dataset, tmp_path: Path) -> Path:
    from neorl_envs import write_dataset

    return write_dataset(tmp_path / "toy.h5", toy)


@pytest.fixture
def toy_npz(toy_columns: dict[str, np.ndarray], tmp_path: Path) -> Path:
    """The toy log as NeoRL-2 keeps one."""
    arrays = {key: toy_columns[key] for key in ("obs", "action", "next_obs", "reward")}
    arrays["done"] = toy_columns["terminated"].astype(np.float32)
    arrays["truncated"] = toy_columns["truncated"].astype(np.float32)
    np.savez_compressed(tmp_path / "toy.npz", **arrays)
    return tmp_path / "toy.npz"


LEVEL, VALVE = Channel("level", "m", 0.0, 2.0), Channel("valve", "%", 0.0, 100.0)


class Tank(eqx.Module, PlantDefaults):
    """A plant from outside, as small as the contract allows: one level, one inlet valve."""

    name: ClassVar[str] = "Tank-v0"
    reward_unit: ClassVar[str] = "m"
    reference: ClassVar[str] = "steady"

    @property
    def spec(self) -> Spec:
        return Spec((LEVEL,), (VALVE,), (), dt=10.0, horizon=25)

    def tunings(self) -> dict[str, PID]:
        one = jnp.ones(1)
        gains = {"steady": 50.0, "nervous": 200.0}
        return {
            name: PID(
                *(gain * one, 0 * one, 0 * one, one, one, 50 * one, 0 * one, 100 * one),
                *(jnp.asarray(10.0), jnp.zeros(0), jnp.zeros(0), (0,)),
            )
            for name, gain in gains.items()
        }

    def default_params(self, preset: str = "plant") -> Array:
        if preset != "plant":
            raise ValueError(f"preset must be 'plant', got {preset!r}")
        return jnp.asarray(0.01)

    def sample_params(self, key: Array, *, preset: str = "plant", spread: float = 0.15) -> Array:
        return self.default_params(preset) * (1 + spread * jax.random.uniform(key, (), None, -1, 1))

    def reset(self, params: Array, key: Array) -> tuple[Any, Array]:
        level = jax.random.uniform(key, (1,), None, 0.5, 1.5)
        return (level, jnp.asarray(0, jnp.int32)), level

    def step(self, params: Array, state: Any, action: Array, key: Array) -> tuple[Any, Step]:
        level, time = state
        applied = jnp.clip(jnp.where(jnp.isnan(action), 50.0, action), 0, 100)
        level = jnp.clip(level + params * (applied - 50), 0, 2)
        step = Step(
            obs=level,
            final_obs=level,
            reward=-jnp.abs(level - 1)[0],
            cost=jnp.zeros(0),
            applied=applied,
            terminated=jnp.asarray(False),
            truncated=time + 1 >= 25,
            info=(),
        )
        return (level, time + 1), step


@pytest.fixture
def tank(monkeypatch: pytest.MonkeyPatch) -> type[Tank]:
    """The class of a plant from outside; what a test registers is forgotten after it."""
    monkeypatch.setattr(PLANTS, "_registered", {})
    for identifier in ("neorl/Tank-v0", "neorl/Tank-physical-v0"):
        monkeypatch.delitem(gymnasium.registry, identifier, raising=False)
    return Tank


class VesselConstants(NamedTuple):
    """Of :class:`Vessel`."""

    area: Array = constant(2.0, "m2", "own choice")


class Vessel(SimulatedPlant):
    """A level that rises by 0.01 m3 a step for every per cent above 50; the reward is minus it."""

    horizon: int = eqx.field(static=True, default=10)

    name = "Vessel-v0"
    dt = 1.0
    constants = VesselConstants()
    initial = 1.0
    instruments = (Instrument(Channel("level", "m", 0.0, 9.0)),)
    actuators = (Actuator(Channel("valve", "%", 0.0, 100.0), start=50.0),)
    reward_unit: ClassVar[str] = "m"
    reference: ClassVar[str] = "filling"

    def derive(self, c: Any) -> Any:
        return 0.01 / c.area

    def evolve(self, c: Any, plant: Any, inputs: Array, disturbance: Any, time: Array) -> Any:
        return plant + c.derived * (inputs[0] - 50)

    def measure(self, c: Any, now: Any) -> Array:
        return now.plant[None]

    def reward(self, c: Any, before: Any, now: Any, trip: Array) -> Array:
        return -now.plant

    def tunings(self) -> dict[str, Policy]:
        return {"filling": ConstantPolicy(jnp.asarray([60.0]))}


@pytest.fixture
def vessel() -> Vessel:
    """A plant of blocks whose returns are known: minus 1 + 0.1 t / area, summed over the steps."""
    return Vessel()


class Command:
    """``neorl-envs`` as a person types it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *words: object) -> tuple[int, str, str]:
        """The exit code, and what is printed as a result and as an error."""
        code = main([str(word) for word in words])
        return code, *self._capsys.readouterr()

    def __call__(self, *words: object) -> str:
        """The result of a command that succeeds."""
        code, result, _ = self.run(*words)
        assert code == 0
        return result

    def refused(self, *words: object) -> str:
        """The error of a command that cannot be carried out."""
        code, _, error = self.run(*words)
        assert code == 2
        return error


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """``command("list")`` in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("neorl_envs._command.main.prepare_process", lambda: None)
    return Command(capsys)


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """``distribution(group, entry)`` installs a distribution that declares one entry point."""

    def install(group: str, entry: str) -> None:
        folder = tmp_path / "site" / "foreign-0.3.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 0.3\n")
        (folder / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
        monkeypatch.syspath_prepend(tmp_path / "site")

    return install
