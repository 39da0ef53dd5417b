"""What a co-simulation unit costs as a plant, beside FMPy's own loop over the same unit.

    PYTHONPATH=tests/support python tools/studies/benchmarks/unit_steps.py

The unit is a tank of ten Euler steps a period, so a step of it takes next to nothing, and what is
measured is what every unit pays on top of its own time. Processor time of a step on one core, in
turn: FMPy's loop of set, step and read on one instance; the same through the points of ``Units``;
a compiled episode of the plant, alone and 32 at once; and the Gymnasium environment. All episodes
are reset without loading the unit again.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from _rounds import interleaved, machine, on_one_core, pair_arguments, summary, write

STEPS, BATCH = 60, 32


def main() -> int:
    """Measures and writes."""
    arguments = pair_arguments(__doc__, "unit_steps")
    on_one_core(arguments.core)
    import tank_unit

    with tempfile.TemporaryDirectory() as folder:
        unit = tank_unit.build_tank(Path(folder))
        variants = _variants(unit)
        times = {
            name: interleaved({name: work}, steps, arguments.rounds)[name]
            for name, (work, steps) in variants.items()
        }
    result = {
        "benchmark": "unit_steps",
        "command": f"python tools/studies/benchmarks/unit_steps.py {' '.join(sys.argv[1:])}",
        "unit": "microseconds of CPU time a step",
        "steps of an episode": STEPS,
        "variants": {name: summary(rounds) for name, rounds in times.items()},
        **machine(("jax", "jaxlib", "numpy", "fmpy", "gymnasium")),
    }
    write(arguments.out, result)
    for name, rounds in times.items():
        print(f"{name}: {sorted(rounds)[len(rounds) // 2]:.1f} us a step")
    return 0


def _variants(unit: Path) -> dict[str, tuple[Any, int]]:
    """The work of each variant, and how many steps it makes."""
    import fmpy
    import jax
    import numpy as np
    from fmpy.fmi2 import FMU2Slave

    from neorl_envs import make
    from neorl_envs.closed_loop import drawn_start, rollout
    from neorl_envs.interfaces import GymnasiumEnv
    from neorl_envs.plants.fmi import Units

    description: Any = fmpy.read_model_description(str(unit))
    slave = FMU2Slave(
        guid=description.guid,
        unzipDirectory=fmpy.extract(str(unit)),
        modelIdentifier=description.coSimulation.modelIdentifier,
        instanceName="peer",
    )
    slave.instantiate()

    def by_fmpy() -> None:
        slave.reset()
        slave.setupExperiment(startTime=0.0)
        slave.setReal([5], [1.0])
        slave.enterInitializationMode()
        slave.exitInitializationMode()
        for time in range(STEPS):
            slave.setReal([3], [0.5])
            slave.doStep(currentCommunicationPoint=float(time), communicationStepSize=1.0)
            slave.getReal([1, 2])

    names = {"inputs": ["valve"], "outputs": ["level", "flow"], "starts": ["level0"]}
    units = Units(str(unit), **names, period=1.0, horizon=STEPS)
    history, starts = np.zeros((STEPS, 1), np.float32), np.ones(1, np.float32)
    inputs, times = np.full(1, 0.5, np.float32), [np.asarray(time) for time in range(STEPS)]

    def by_points() -> None:
        point, _ = units.begin(starts)
        for time in times:
            point, _ = units.step(point, time, starts, history, inputs)

    env: Any = make(str(unit))
    policy: Any = env.tunings()[env.reference]

    @jax.jit
    def episodes(keys: Any) -> Any:
        return jax.vmap(lambda key: rollout(env, policy, drawn_start(env, key)).rows.reward)(keys)

    one, many = (jax.random.split(jax.random.key(0), n) for n in (1, BATCH))
    shell = GymnasiumEnv(env)

    def by_gymnasium() -> None:
        shell.reset(seed=0)
        action = np.zeros(1, np.float32)
        for _ in range(STEPS):
            shell.step(action)

    return {
        "FMPy's loop": (by_fmpy, STEPS),
        "points": (by_points, STEPS),
        "compiled episode": (lambda: episodes(one), STEPS),
        "32 compiled episodes": (lambda: episodes(many), STEPS * BATCH),
        "Gymnasium": (by_gymnasium, STEPS),
    }


if __name__ == "__main__":
    raise SystemExit(main())
