"""Fit LQG and MPC on every plant's own log, and measure them as the baselines are measured.

Usage:
    python tools/studies/tables/classical_table.py [NAME ...]    plants without a result (all)
    python tools/studies/tables/classical_table.py --again NAME  fit and measure again

Each plant's log of mixed quality is identified as a linear plant (`neorl_agents.classical`), with
the loops of ``TASKS``; the controllers then act in the episodes of ``baseline_table.py``.
Stored in tools/studies/baselines/classical/NAME.json, one plant a file, as soon as it is measured; a
controller that cannot be fitted, or a plant without setpoints, leaves its reason. The tables of
the plants' pages show the rows (``tools/studies/tables/plant_pages.py``).
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax

from baseline_table import SEED, row_of
from neorl_agents.classical import LQG, MPC, Loop, Task
from neorl_core import InputError
from neorl_envs import collect_log, environment_names, make
from neorl_envs.scoring import score_episodes

RESULTS = Path(__file__).resolve().parents[1] / "baselines" / "classical"
ROWS = 10_000
ZONES = ("core", "south", "north", "east", "west")
MACHINES = range(1, 5)
TASKS: dict[str, Task | str] = {
    "CSTR-v0": Task((Loop("C_A", "T_c", "C_A_SP"),), ("T",)),
    "ChemicalReactor-v0": Task(
        (Loop("T_adiab_hat", "feed", 379.15), Loop("T_R", "T_in_M", 363.15)),
        ("T_S", "T_M", "T_EK", "T_AWT"),
    ),
    "DMSD-v0": Task(
        (Loop("x1", "force1", "target1"), Loop("x2", "force2", "target2")), ("v1", "v2")
    ),
    "Pipeline-v0": Task((Loop("outflow", "gate", "target"),)),
    "HVACControl-v0": Task(tuple(Loop(f"T_{zone}", f"heat_{zone}", 22.5) for zone in ZONES)),
    "PowerGrid-v0": Task(
        (
            *(Loop(f"frequency_{i}", f"dP_ref_{i}", 0.0) for i in MACHINES),
            *(Loop(f"V_{i}", f"dV_ref_{i}", 1.03 if i % 2 else 1.01) for i in MACHINES),
        )
    ),
    "SteelAnnealing-v0": Task(
        (Loop("T_strip_6", "fuel_6", "T_set"),), tuple(f"T_zone_{i}" for i in range(1, 7))
    ),
    "WaterTreatment-v0": Task(
        (
            Loop("turbidity_filtered", "alum_dose", 0.05),
            Loop("pH_mixed", "caustic_dose", 7.2),
            Loop("level", "flow", 3.0),
        )
    ),
    "IndustrialBenchmark-v0": "nothing has a setpoint: fatigue and consumption are to be small",
    "RobotAssembly-v0": "contact makes and breaks: no linear plant about one point",
    "SupplyChain-v0": "orders fill positions: base stock is the classical controller",
}
"""What LQG and MPC are to hold, or why they do not apply."""
EFFORT = {"DMSD-v0": 1e-5}
"""Cost of the inputs where the default is not a sound one: masses of 20 kg on weak springs."""
LONGEST = {"Pipeline-v0": 25, "SteelAnnealing-v0": 6, "PowerGrid-v0": 3}
"""Longest dead time to look for, periods; 5 for plants that are not named."""


def main() -> int:
    """Measures what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--episodes", type=int, default=30)
    arguments = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    for name in arguments.names or environment_names():
        path = RESULTS / f"{name}.json"
        if arguments.again or not path.exists():
            table = measured(name, arguments.episodes)
            path.write_text(json.dumps(table, indent=1) + "\n")
            for row in table["rows"]:
                outcome = (
                    row.get("reason") or f"score {row['score']:.5g} ± {row['score_error']:.2g}"
                )
                print(name, row["policy"], outcome, flush=True)
    return 0


def measured(name: str, episodes: int) -> dict[str, Any]:
    """Both controllers of one plant, or why not."""
    env: Any = make(name)
    task = TASKS.get(name, "no loops are declared in tools/studies/tables/classical_table.py")
    kinds = {"LQG": LQG, "MPC": MPC}
    if isinstance(task, str):
        rows = [{"policy": kind, "reason": task} for kind in kinds]
        return {"plant": name, "episodes": 0, "rows": rows}
    log = collect_log(env, n_steps=ROWS, key=jax.random.key(SEED))
    keys = jax.random.split(jax.random.key(SEED), episodes)
    options: dict[str, Any] = {"longest_delay": LONGEST.get(name, 5), "rows": ROWS, "orders": 2}
    if name in EFFORT:
        options["effort"] = EFFORT[name]
    rows = []
    for kind, controller in kinds.items():
        started_at = time.monotonic()
        try:
            policy, report = controller(**options).fit(log.transitions, log.spec, task)
        except InputError as error:
            rows.append({"policy": kind, "reason": str(error)})
            continue
        row = row_of(kind, env, score_episodes(env, policy, keys))
        kept = {name: report[name] for name in ("order", "delay", "residual") if name in report}
        rows.append({**row, "identified": kept, "seconds": round(time.monotonic() - started_at)})
    return {
        "plant": name,
        "episodes": episodes,
        "log_rows": log.n_rows,
        "settings": options,
        "rows": rows,
    }


if __name__ == "__main__":
    raise SystemExit(main())
