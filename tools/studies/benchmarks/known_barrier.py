"""Hard violations of 1,000 episodes with and without barrier rows on an exactly known plant.

DMSD is linear and has no noise, so the model of the barrier is the plant itself: the equations of
its page, written here again. No mass may be further than 1 m from its rest, though targets reach
1.5 m. The barrier is ``h = 1 - (p + tau v)`` to each side of each mass, ``tau`` = 2 s: from
``h >= 0`` in every step and ``p <= 1`` at the start follows
``p' = p + dt v <= p + dt / tau (1 - p) <= 1``. On that set ``|p| <= 1`` and ``|v| <= 1``, so the
force that keeps ``p + tau v`` where it is, ``-(m / tau) v - pull(p, v)``, is at most 28 N of 30 N:
the rows always leave an action.

Four policies that do not know of the limit act in the same starts, bare and behind the guard:
the regulator, the regulator with the wrong sign, the largest force for ever, forces at random. Then
the time of one step of a simulated loop (regulator and plant, one compiled program on one core)
with and without the guard, in alternation:

    python tools/studies/benchmarks/known_barrier.py
    python tools/studies/benchmarks/known_barrier.py --counts    # no times: on a machine that is not quiet
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _rounds import RESULTS, machine, on_one_core

EPISODES, SEED = 1000, 1
LIMIT, TAU, DECAY, MARGIN = 1.0, 2.0, 0.5, 1e-4
DT, STIFFNESS, DAMPING, MASS = 0.2, 2.0, 4.0, 20.0
CALLS, SHARE, SECONDS = 2000, 0.10, 1e-3


def main() -> int:
    """Counts, measures and writes; 0 if nothing was broken and the filter is cheap enough."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--counts", action="store_true", help="leave out the times")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of every variant (15)")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to (0)")
    parser.add_argument("--out", type=Path, default=RESULTS / "known_barrier.json")
    arguments = parser.parse_args()
    on_one_core(arguments.core)
    counts = {name: _counted(*pair) for name, pair in policies().items()}
    document: dict[str, Any] = {
        "case": {"episodes": EPISODES, "seed": SEED, "limit": LIMIT, "tau": TAU, "decay": DECAY,
                 "margin": MARGIN},
        "episodes": counts,
    }  # fmt: skip
    good = not any(one["guarded"]["broken"] for one in counts.values())
    if not arguments.counts:
        document["step"] = _timed(arguments.rounds)
        good = good and document["step"]["share"] <= SHARE
        good = good and document["step"]["added_microseconds"] <= 1e6 * SECONDS
    document |= machine(("jax", "jaxlib", "numpy"))
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document, indent=1))
    return 0 if good else 1


def model() -> tuple[Any, Any, Any]:
    """``A``, ``B`` and ``c`` of one period; observed are positions, velocities and targets."""
    import numpy as np

    between = np.array([[-2.0, 1.0], [1.0, -2.0]])
    a, b = np.eye(6), np.zeros((6, 2))
    a[:2, 2:4] += DT * np.eye(2)
    a[2:4, :2] += DT / MASS * STIFFNESS * between
    a[2:4, 2:4] += DT / MASS * DAMPING * between
    b[2:4] = DT / MASS * np.eye(2)
    return a, b, np.zeros(6)


def records(channels: Any) -> list[dict[str, Any]]:
    """Four barriers: each mass, each side."""
    from neorl_safety.constraints import barrier_records

    return [
        one
        for mass in ("1", "2")
        for side in (1.0, -1.0)
        for one in barrier_records(
            channels, model(), keep={f"x{mass}": side, f"v{mass}": side * TAU}, at_most=LIMIT,
            decay=DECAY, margin=MARGIN,
        )
    ]  # fmt: skip


def policies() -> dict[str, tuple[Any, Any]]:
    """Every policy, bare and guarded; the fallback of the guard is the regulator."""
    import dataclasses

    import jax.numpy as jnp

    from neorl_core.control import ConstantPolicy
    from neorl_envs.plants import DMSD
    from neorl_safety.constraints import declared_constraints, spec_channels
    from neorl_safety.guards import guard

    spec, regulator = DMSD().spec, DMSD().tunings()["LQR"]
    constraints = declared_constraints(spec, records(spec_channels(spec)))
    wrong = dataclasses.replace(regulator, gain=-regulator.gain)
    bare = {
        "regulator": regulator,
        "wrong sign": wrong,
        "largest force": ConstantPolicy(jnp.full((2,), 30.0)),
        "random": _random(),
    }
    return {name: (one, guard(one, constraints, regulator, spec)) for name, one in bare.items()}


def _random() -> Any:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    class RandomForces(eqx.Module):
        """Forces that are drawn anew in every step, a third of them beyond the actuators."""

        largest: Any

        def initial_carry(self) -> tuple[()]:
            return ()

        def __call__(self, carry: tuple[()], obs: Any, key: Any) -> tuple[tuple[()], Any]:
            return carry, jax.random.uniform(key, (2,), minval=-self.largest, maxval=self.largest)

        def sent(self, carry: tuple[()], action: Any) -> tuple[()]:
            return carry

    return RandomForces(jnp.float32(45.0))


def _counted(bare: Any, guarded: Any) -> dict[str, Any]:
    """Both; that the model is the plant is told of the guarded one, which no sensor cuts off."""
    counts = {"bare": episodes(bare), "guarded": episodes(guarded)}
    del counts["bare"]["model_error"]
    return counts


def episodes(policy: Any, count: int = EPISODES) -> dict[str, Any]:
    """What became of the limit in as many episodes, and whether the model was the plant."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from scipy.stats import binomtest

    from neorl_envs.plants import DMSD
    from neorl_safety.filters import Flag
    from neorl_train.judging import rollouts

    plant, key = DMSD(), jax.random.key(SEED)
    rows = jax.device_get(rollouts(plant, policy, key, jnp.arange(count)))
    before = np.concatenate([rows.first_obs[:, None], rows.obs[:, :-1]], axis=1)
    a, b, _ = model()
    predicted = before.astype(np.float64) @ a.T + rows.applied.astype(np.float64) @ b.T
    error = np.abs(predicted - rows.obs)[..., :4][rows.mask].max()
    beyond = (np.abs(rows.obs[..., :2]) > LIMIT).any(axis=-1) & rows.mask
    broken = int(beyond.any(axis=1).sum())
    interval = binomtest(broken, count).proportion_ci()
    flags = np.asarray(rows.flags)[rows.mask]
    return {
        "broken": broken,
        "upper": float(interval.high),
        "steps": int(beyond.sum()),
        "furthest": float(np.abs(rows.obs[..., :2])[rows.mask].max()),
        "model_error": float(error),
        "return": float(np.where(rows.mask, rows.reward, 0).sum(axis=1).mean()),
        "rows_active": float(((flags & int(Flag.ROWS_ACTIVE)) != 0).mean()),
        "fallback": float(((flags & int(Flag.FALLBACK_USED)) != 0).mean()),
    }


def _timed(rounds: int) -> dict[str, Any]:
    """Medians of each round in microseconds, and the share that the guard adds."""
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    bare, guarded = policies()["regulator"]
    loops = {"bare": _loop(bare), "guarded": _loop(guarded)}
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds):
        for name, loop in loops.items():
            times[name].append(_median(loop))
    middle = {name: statistics.median(values) for name, values in times.items()}
    added = middle["guarded"] - middle["bare"]
    return {
        "microseconds": times,
        "median": middle,
        "added_microseconds": added,
        "share": added / middle["bare"],
        "share_of_the_control_period": added / (1e6 * DT),
    }


def _loop(policy: Any) -> Callable[[], Any]:
    import jax
    import numpy as np

    from neorl_envs.plants import DMSD

    plant = DMSD()
    params, key = plant.default_params(), jax.random.key(SEED)

    @jax.jit
    def period(carry: Any, state: Any, obs: Any) -> Any:
        carry, action = policy(carry, obs, key)
        state, step = plant.step(params, state, action, key)
        return policy.sent(carry, step.applied), state, step.obs

    held = [policy.initial_carry(), *plant.reset(params, key)]

    def once() -> Any:
        held[:] = period(*held)
        return np.asarray(held[2])

    for _ in range(20):
        once()
    return once


def _median(loop: Callable[[], Any]) -> float:
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        loop()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
