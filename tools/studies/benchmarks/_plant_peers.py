"""The peers of single plants: what their users install, stepped as their users step it."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

ORACLES = Path(__file__).resolve().parent.parent / "oracles"


class Build(Protocol):
    """Makes a call that steps a peer, and says how many steps it takes."""

    def __call__(self, *, tiny: bool) -> tuple[Callable[[], Any], int]:
        """The call and its steps; raises where the peer is not installed."""
        ...


@dataclasses.dataclass(frozen=True)
class Peer:
    """One implementation by others.

    Attributes:
        plant: The plant of ours that it is compared with.
        name: What is installed.
        what: How the two differ, for who reads the ratio.
        goal: Ratio that is aimed at.
        build: Makes the call.
    """

    plant: str
    name: str
    what: str
    goal: float
    build: Build


def pcgym_cstr(*, tiny: bool) -> tuple[Callable[[], Any], int]:
    """The stirred tank of pcgym with its default integrator, CVODES through casadi."""
    import numpy as np
    from pcgym import make_env  # pyright: ignore[reportMissingImports]

    n = 20 if tiny else 120
    env = make_env(
        {
            "model": "cstr",
            "N": n,
            "tsim": n * 0.25,
            "SP": {"Ca": [0.85] * n},
            "o_space": {"low": np.array([0.7, 300, 0.8]), "high": np.array([1, 350, 0.9])},
            "a_space": {"low": np.array([295.0]), "high": np.array([302.0])},
            "x0": np.array([0.8, 330, 0.8]),
        }
    )
    rng = np.random.default_rng(0)

    def work() -> Any:
        env.reset()
        for _ in range(n - 1):
            last = env.step(rng.uniform(-1, 1, 1))
        return last

    return work, n - 1


def official_industrial_benchmark(*, tiny: bool) -> tuple[Callable[[], Any], int]:
    """The authors' Python code, without its Gym shell."""
    import numpy as np

    np.__dict__["float"] = float  # the name that code of its age expects
    from industrial_benchmark_python.IDS import IDS  # pyright: ignore[reportMissingImports]

    n = 50 if tiny else 5000
    env = IDS(p=70)
    rng = np.random.default_rng(0)

    def work() -> Any:
        for action in rng.uniform(-1, 1, (n, 3)):
            env.step(action)
        return env.visibleState()

    return work, n


def or_gym_network(*, tiny: bool) -> tuple[Callable[[], Any], int]:
    """or-gym's NetInvMgmt, whose tables are pandas frames."""
    import numpy as np
    from or_gym.envs.supply_chain import (  # pyright: ignore[reportMissingImports]
        network_management,
    )

    n = 3 if tiny else 30
    env = network_management.NetInvMgmtMasterEnv(num_periods=n + 1)
    orders = np.random.default_rng(0).integers(0, 51, (n, env.action_space.shape[0]))

    def work() -> Any:
        env.reset()
        for row in orders:
            last = env.step(row)
        return last

    return work, n


def scipy_grid(*, tiny: bool) -> tuple[Callable[[], Any], int]:
    """The grid's 48 equations in NumPy, a second at a time by SciPy's RK45, network solved before.

    Its fastest modes and not its tolerance (1e-6) decide its steps: 200 evaluations a second at
    any from 1e-3 to 1e-8, as many as ours.
    """
    from scipy.integrate import solve_ivp

    sys.path.append(str(ORACLES))
    from power_grid_radau import two_area  # pyright: ignore[reportMissingImports]

    problem, n = two_area(reduced=True), 2 if tiny else 20

    def work() -> Any:
        state = problem.start
        for _ in range(n):
            run = solve_ivp(problem.slopes, (0, 1), state, "RK45", rtol=1e-6, atol=1e-9)
            state = run.y[:, -1]
        return state

    return work, n


def neorl2_double_mass(*, tiny: bool) -> tuple[Callable[[], Any], int]:
    """NeoRL-2's DMSD."""
    return _neorl2("dmsd", "DoubleMassSpringDamperEnv", 100 if tiny else 2000)


def neorl2_pipeline(*, tiny: bool) -> tuple[Callable[[], Any], int]:
    """NeoRL-2's Pipeline."""
    return _neorl2("pipline", "PipelineEnv", 100 if tiny else 5000)


def double_mass_reward(data: dict[str, Any]) -> float:
    """``sum -log(|x - x_target| + 0.01)`` over both masses, after the step."""
    import numpy as np

    seen = data["next_obs"]
    return float(np.sum(-np.log(np.abs(seen[:2] - seen[-2:]) + 0.01)))


def pipeline_reward(data: dict[str, Any]) -> float:
    """``((200 - |flow - target|) / 100)^2 - 3``, after the step."""
    flow, target = data["next_obs"][:2]
    return float((0.01 * (200 - abs(flow - target))) ** 2 - 3)


def _neorl2(module: str, kind: str, n: int) -> tuple[Callable[[], Any], int]:
    """A plant of NeoRL-2's wheel, which lacks the modules of its rewards: they are stated above."""
    import importlib
    import types

    import numpy as np

    rewards = {"dmsd": double_mass_reward, "pipeline": pipeline_reward}
    sys.modules.setdefault("neorl2.envs.reward", types.ModuleType("neorl2.envs.reward"))
    for name, reward in rewards.items():
        stated: Any = types.ModuleType(f"neorl2.envs.reward.{name}_reward")
        stated.get_reward = reward
        sys.modules.setdefault(stated.__name__, stated)
    env = getattr(importlib.import_module(f"neorl2.envs.{module}"), kind)()
    actions = np.random.default_rng(0).uniform(-1, 1, (n, *env.action_space.shape))

    def work() -> Any:
        env.reset()
        for action in actions:
            last = env.step(action)
            if last[2] or last[3]:
                env.reset()
        return last

    return work, n


def sustaingym_building(*, tiny: bool) -> tuple[Callable[[], Any], int]:
    """SustainGym's small office in Tucson: five zones and an attic, its own weather file."""
    import contextlib
    import io

    from sustaingym.envs.building import (  # pyright: ignore[reportMissingImports]
        BuildingEnv,
        ParameterGenerator,
    )

    with contextlib.redirect_stdout(io.StringIO()):
        env: Any = BuildingEnv(ParameterGenerator("OfficeSmall", "Hot_Dry", "Tucson"))
    n = 20 if tiny else 500
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(n)]

    def work() -> Any:
        env.reset(seed=0)
        return [env.step(action) for action in actions][-1]

    return work, n


def mujoco_arm(*, tiny: bool) -> tuple[Callable[[], Any], int]:
    """The arm's seven links under random torques: 25 steps of MuJoCo's 2 ms are one of ours."""
    import mujoco  # pyright: ignore[reportMissingImports]
    import numpy as np

    sys.path.append(str(ORACLES))
    from mujoco_arm import model  # pyright: ignore[reportMissingImports]

    n = 5 if tiny else 200
    arm = model()
    data = mujoco.MjData(arm)
    inside = round(0.05 / arm.opt.timestep)
    torques = np.random.default_rng(0).uniform(-5, 5, (n, arm.nv))

    def work() -> Any:
        mujoco.mj_resetData(arm, data)
        for torque in torques:
            data.qfrc_applied[:] = torque
            mujoco.mj_step(arm, data, inside)
        return data.qpos

    return work, n


PEERS = (
    Peer(
        *("DMSD-v0", "neorl2", "the same equations and reward", 50.0),
        build=neorl2_double_mass,
    ),
    Peer(
        *("Pipeline-v0", "neorl2", "the same equations and reward", 50.0),
        build=neorl2_pipeline,
    ),
    Peer(
        *("HVACControl-v0", "sustaingym", "six zones, linear and sampled once as ours", 50.0),
        build=sustaingym_building,
    ),
    Peer(
        *("RobotAssembly-v0", "mujoco", "the same links without contact and sensors", 50.0),
        build=mujoco_arm,
    ),
    Peer(
        *("PowerGrid-v0", "scipy", "the same machines and network in float64, no noise", 200.0),
        build=scipy_grid,
    ),
    Peer(
        *("CSTR-v0", "pcgym", "two states by CVODES against ours with noise and resets", 1000.0),
        build=pcgym_cstr,
    ),
    Peer(
        *("IndustrialBenchmark-v0", "industrial-benchmark-python", "the same equations", 150.0),
        build=official_industrial_benchmark,
    ),
    Peer(
        *("SupplyChain-v0", "or-gym", "the same rules, one lane more there", 5000.0),
        build=or_gym_network,
    ),
)
