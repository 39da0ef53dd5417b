"""One decision of a bare policy beside the same behind its guard; and 10,000 states at once.

A network of 64x64 for the reactor (12 observations, 3 actions), its weights as constants, one
observation at a time as a NumPy array, the action read back as one; synchronous dispatch, one core.
Behind the guard with the PID as fallback: box and rate; the same and ten linear rows, none of which
binds; the same where one binds in every step; each as a bundle runs it, carry and answers as one
array of words, and with the arrays that they are; and with the emergency stop, which is pressed
in every step: the words are read, changed and put back before it decides, as the runtime does. In
alternation, medians and 99th percentiles of each round in microseconds. Wanted: box, rate and ten
rows add at most 20 at the median, and a stopped decision takes less than 500 at the 99th
percentile.

Then one step of temporal-logic monitors whose windows have 600, 3,600 and 10,000 steps of 1 s, over
three windows each, so that the rare step that sweeps a window is among them. Wanted: less than
1,000 on average. Run it alone:

    python tools/studies/benchmarks/guard.py
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from _rounds import RESULTS, on_one_core, pair_arguments, small_case

CALLS, STATES, WANTED, STOPPED = 2000, 10_000, 20.0, 500.0
N_ROWS = 10
WINDOWS, WANTED_FORMULA = (600, 3600, 10_000), 1000.0
FORMULAS = {
    "always": "always[0 s, {0} s] (T <= 385 K)",
    "eventually": "eventually[0 s, {0} s] (T <= 385 K)",
    "until": "(T <= 385 K) until[0 s, {0} s] (level >= 1 m)",
    "implies": "level >= 1.9 m implies always[0 s, {0} s] (T <= 385 K)",
    "nested": "always[0 s, {0} s] (eventually[0 s, 60 s] (T <= 385 K))",
}


def main() -> int:
    """Measures and writes; 0 if the addition is as small as wanted."""
    arguments = pair_arguments(__doc__, "guard")
    on_one_core(arguments.core)
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    steps, batched = _steps()
    rounds: dict[str, list[float]] = {name: [] for name in steps}
    slow: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(arguments.rounds):
        for name, step in steps.items():
            for kept, value in zip((rounds[name], slow[name]), _measured(step), strict=True):
                kept.append(value)
    medians = {name: statistics.median(values) for name, values in rounds.items()}
    added = {name: medians[name] - medians["bare"] for name in medians if name != "bare"}
    p99 = {name: statistics.median(values) for name, values in slow.items()}
    document = {
        "microseconds": rounds,
        "microseconds_p99": slow,
        "median": medians,
        "p99": p99,
        "added": added,
        "states_at_once": {"states": STATES, "seconds": [batched() for _ in range(5)]},
        "formulas": {
            f"{name}, {window} steps": _formula_steps(text.format(window), window)
            for name, text in FORMULAS.items()
            for window in WINDOWS
        },
    }
    out = arguments.out or RESULTS / "guard.json"
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(
        json.dumps(
            {
                "median": medians,
                "p99": p99,
                "added": added,
                **document["states_at_once"],
                "formulas": document["formulas"],
            },
            indent=1,
        )
    )
    good = added["box, rate, 10 rows"] <= WANTED and p99["emergency stop"] < STOPPED
    quick = all(row["mean"] < WANTED_FORMULA for row in document["formulas"].values())
    return 0 if good and quick else 1


def _measured(step: Callable[[], Any]) -> tuple[float, float]:
    """Median and 99th percentile."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times), 1e6 * statistics.quantiles(times, n=100)[98]


def _steps() -> tuple[dict[str, Callable[[], Any]], Callable[[], float]]:
    """The variants, each one decision, and a function that times all states in one program."""
    import jax
    import numpy as np

    from neorl_agents import ALGORITHMS
    from neorl_agents.learning import Networks
    from neorl_envs.plants import ChemicalReactor
    from neorl_safety.constraints import action_constraints, declared_constraints
    from neorl_safety.guards import guard

    _, data = small_case("td3_bc")
    plant = ChemicalReactor()
    spec, pid = plant.spec, plant.tunings()[plant.reference]
    algorithm = ALGORITHMS["td3_bc"](networks=Networks(hidden=(64, 64)))
    state = algorithm.init(spec, data.statistics, jax.random.key(0))
    policy = algorithm.policy(state)
    rates = action_constraints(spec, plant.action_rates())
    limited = {
        "box, rate": rates,
        "box, rate, 10 rows": declared_constraints(
            spec, [*_rates(spec, plant), *_rows(spec, 10.0)]
        ),
        "one row binds": declared_constraints(spec, [*_rates(spec, plant), *_rows(spec, -0.02)]),
    }
    rng = np.random.default_rng(0)
    low, high = (np.array([getattr(c, end) for c in spec.obs]) for end in ("low", "high"))
    observations = rng.uniform(low, high, (STATES, spec.n_obs)).astype(np.float32)
    middle = ((low + high) / 2).astype(np.float32)
    bare = jax.jit(lambda obs: policy(policy.initial_carry(), obs, None)[1])
    steps: dict[str, Callable[[], Any]] = {"bare": lambda: np.asarray(bare(middle))}
    for name, constraints in limited.items():
        safe = guard(policy, constraints, pid, spec)
        steps[name] = _decision(safe, middle)
        steps[f"{name}, carry of {len(jax.tree.leaves(safe.initial_carry()))} arrays"] = _decision(
            safe, middle, packed=False
        )
    safe = guard(policy, limited["box, rate, 10 rows"], pid, spec)
    steps["emergency stop"] = _decision(safe, middle, stops=True)
    every = jax.jit(jax.vmap(lambda obs: safe(safe.initial_carry(), obs)[1]))

    def at_once() -> float:
        start = time.perf_counter()
        jax.block_until_ready(every(observations))
        return time.perf_counter() - start

    at_once()
    return steps, at_once


def _decision(
    safe: Any, obs: Any, *, packed: bool = True, stops: bool = False
) -> Callable[[], Any]:
    """One control period: told what was sent, act, remember; as a bundle does it, or by arrays."""
    import jax
    import numpy as np

    from neorl_deploy.bundle import ArrayEntry
    from neorl_deploy.export._stablehlo import flat_step
    from neorl_deploy.runtime import _forms

    run, start = flat_step(safe), jax.tree.leaves(safe.initial_carry())
    sent = np.full(3, np.nan, np.float32)
    answers = jax.eval_shape(run, *start, obs, sent)
    entries = [ArrayEntry(str(i), tuple(a.shape), str(a.dtype)) for i, a in enumerate(answers)]
    layout, action = _forms.layout_of(entries), len(start)
    if packed:
        step = _forms.packed_step(run, layout, len(start))
        calm = _forms.pack(layout, start)
        stopped = _forms.pack(layout, jax.tree.leaves(safe.stop(safe.initial_carry())))
        pressed = np.flatnonzero(calm != stopped)
        held = [jax.device_put(calm), sent]

        def decide() -> Any:
            if stops:
                words = np.array(held[0])
                words[pressed] = stopped[pressed]
                held[0] = jax.device_put(words)
            held[0] = step(held[0], obs, held[1])
            words = np.asarray(held[0])
            held[1] = layout.get(words, str(action))
            for i in range(action + 1, len(entries)):
                layout.get(words, str(i))
            return held[1]
    else:
        step = jax.jit(run)
        held = [start, sent]

        def decide() -> Any:
            answers = step(*held[0], obs, held[1])
            held[0] = answers[:action]
            held[1], *_ = map(np.asarray, answers[action:])
            return held[1]

    for _ in range(20):
        decide()
    return decide


def _rates(spec: Any, plant: Any) -> list[dict[str, Any]]:
    return [
        {"kind": "rate", "channel": c.name, "unit": c.unit, "up": float(rate), "down": float(rate)}
        for c, rate in zip(spec.action, plant.action_rates(), strict=True)
    ]


def _rows(spec: Any, slack: float) -> list[dict[str, Any]]:
    """Rows through the middle of the ranges, moved out by parts of them; the first by ``slack``."""
    import numpy as np

    rng = np.random.default_rng(1)
    low, high = (np.array([getattr(c, end) for c in spec.action]) for end in ("low", "high"))
    records = []
    for i in range(N_ROWS):
        weight = rng.normal(size=len(spec.action)) / (high - low)
        out = slack if i == 0 else 10.0
        parts = {
            c.name: {"value": float(w), "per": c.unit}
            for c, w in zip(spec.action, weight, strict=True)
        }
        at_most = float(weight @ (low + high) / 2 + out)
        records.append({"kind": "linear", "sum": parts, "at_most": at_most, "plus": {}})
    return records


def _formula_steps(text: str, window: int) -> dict[str, Any]:
    """Times of a monitor's steps over three windows."""
    import jax
    import numpy as np

    from neorl_core import Channel, Spec
    from neorl_safety.monitoring import MonitorInput, formula_monitor, read_formula

    spec = Spec(
        obs=(Channel("T", "K", 280.0, 400.0), Channel("level", "m", 0.0, 2.0)),
        action=(Channel("valve", "%", 0.0, 100.0),),
        cost=(),
        dt=1.0,
        horizon=100,
    )
    monitor = formula_monitor(read_formula(text, spec), spec)
    none: Any = np.zeros(1, np.float32)
    step = jax.jit(lambda carry, obs: monitor(carry, MonitorInput(obs, none, none)))
    rng = np.random.default_rng(0)
    rows = rng.normal([370, 1], [8, 0.3], (3 * window, 2)).astype(np.float32)
    start = time.perf_counter()
    carry, _ = step(monitor.initial_carry(), rows[0])
    compiled = time.perf_counter() - start
    times = []
    for row in rows:
        start = time.perf_counter()
        carry, score = step(carry, row)
        np.asarray(score.alarm)
        times.append(1e6 * (time.perf_counter() - start))
    return {
        "median": round(statistics.median(times), 1),
        "mean": round(statistics.fmean(times), 1),
        "p99.9": round(statistics.quantiles(times, n=1000)[998], 1),
        "largest": round(max(times), 1),
        "seconds to compile": round(compiled, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
