"""Where the time of a plant's step goes, by leaving parts out.

The step of ``tools/studies/benchmarks/plants.py`` (noise, delays, random parameters, automatic resets,
N = 1,024) beside the same without automatic resets, without random parameters, without the draws of
its action, with given draws, and the physics alone; each is one compiled scan on one core, and the
differences of their processor times are what the parts cost. Compiling is counted by loops and
kernels. Rounds of all variants alternate. About a minute a plant on a quiet core:

    python tools/studies/benchmarks/plant_profile.py
    python tools/studies/benchmarks/plant_profile.py --only CSTR-v0 --rounds 3
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _rounds import (
    RESULTS,
    interleaved,
    machine,
    on_one_core,
    write,
)
from plants import (
    REFERENCE,
    SLOW,
    STARTS,
    STEPS,
    batch_scan,
)

MISSED = (
    *("CSTR-v0", "IndustrialBenchmark-v0", "SupplyChain-v0", "HVACControl-v0"),
    *("SteelAnnealing-v0", "WaterTreatment-v0", "RobotAssembly-v0", "PowerGrid-v0"),
)
VARIANTS = {
    "whole": "automatic resets",
    "no resets": "parameters of its own in every plant",
    "shared parameters": "draws of the action",
    "held action": "draws of the plant",
    "given draws": "actuators, instruments, limits, reward",
    "physics": "physics",
}
"""What is run, from all to least, and what the next one is without."""


def main() -> int:
    """Profiles the plants and writes what was found."""
    arguments = _arguments()
    on_one_core(arguments.core)
    from neorl_envs import make

    rows = []
    for name in [arguments.only] if arguments.only else MISSED:
        env, length = make(name), max(STEPS[REFERENCE] // SLOW.get(name, 1), 2)
        made = {variant: _program(env, variant, length) for variant in VARIANTS}
        times = interleaved(
            {variant: work for variant, (work, _) in made.items()},
            REFERENCE * length,
            arguments.rounds,
        )
        middle = {variant: statistics.median(rounds) for variant, rounds in times.items()}
        order = [*middle.values(), 0.0]
        shares = {
            part: (order[i] - order[i + 1]) / order[0] for i, part in enumerate(VARIANTS.values())
        }
        rows.append(
            {
                "plant": name,
                "microseconds": times,
                "shares": shares,
                "compiled": {variant: facts for variant, (_, facts) in made.items()},
            }
        )
        breakdown = ", ".join(f"{part} {share:.0%}" for part, share in shares.items())
        print(f"{name}: {order[0]:.3f} us a step; {breakdown}", flush=True)
    write(
        arguments.out, {"benchmark": "plant_profile", "plants": rows, **machine(("jax", "jaxlib"))}
    )
    return 0


def _program(env: Any, variant: str, length: int) -> tuple[Callable[[], Any], dict[str, float]]:
    """A compiled scan of a variant, and what compiling it took and made."""
    import jax
    import jax.numpy as jnp

    from neorl_core import highs, lows
    from neorl_envs.plants._simulated import _physics
    from neorl_envs.wrappers import autoreset, randomised

    low, high = (jnp.asarray(ends(env.spec.action)) for ends in (lows, highs))
    own = {"whole": autoreset(randomised(env), cached=STARTS), "no resets": randomised(env)}
    plant: Any = own.get(variant, env)
    params: Any = None if variant in own else env.default_params()

    def one(state: Any, key: Any) -> Any:
        action = (low + high) / 2
        if variant in ("whole", "no resets", "shared parameters"):
            for_action, key = jax.random.split(key)
            action = jax.random.uniform(for_action, low.shape, low.dtype, low, high)
        if variant == "physics":
            new = env.evolve(_physics(params), state.plant, action, state.disturbance, state.time)
            state = state._replace(plant=new, time=state.time + 1)
            return state, sum(leaf.sum() for leaf in jax.tree.leaves(new))
        if variant == "given draws":
            draws = jax.eval_shape(lambda key: env.sample_noise(params, key), key)
            nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), draws)
            state, step = env.step_with_noise(params, state, action, nothing)
        else:
            state, step = plant.step(params, state, action, key)
        return state, (step.reward, step.cost.sum(), step.obs.sum())

    return _compiled(*batch_scan(one, lambda key: plant.reset(params, key)[0], REFERENCE, length))


def _compiled(scan: Callable[..., Any], states: Any) -> tuple[Callable[[], Any], dict[str, float]]:
    import jax

    held = [states, jax.random.key(1)]
    start = time.process_time()
    lowered = jax.jit(scan).lower(*held)
    traced = time.process_time()
    program = lowered.compile()
    done, text = time.process_time(), program.as_text() or ""

    def work() -> Any:
        (held[0], held[1]), seen = program(*held)
        return seen

    return work, {
        "tracing_seconds": traced - start,
        "compiling_seconds": done - traced,
        "kernels": text.count(" fusion("),
        "loops": text.count(" while("),
        "float64": text.count("f64["),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of every variant (5)")
    parser.add_argument("--only", help="one plant")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to (0)")
    parser.add_argument("--out", type=Path, default=RESULTS / "plant_profile.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
