"""What barrier rows on an identified model do to single episodes over the reactor's budget.

Takes the policies of a finished demo run. A linear model of the reactor is fitted to the run's log;
the margin of each barrier is the conformal quantile of its prediction error, episode by episode, on
held-out episodes. Each policy then acts in the same 128 starts behind box and rate, and behind
these with barriers that keep the adiabatic temperature and the upper edge of the reactor's band.
Counted are the episodes over the temperature budget, with the exact interval, beside the PID:

    python tools/studies/benchmarks/barrier_rows.py runs/0001
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

STARTS, SEED, HELD_OUT, MISCOVERAGE = 128, 1, 0.2, 0.1
RESULTS = Path(__file__).resolve().parent / "results" / "barrier_rows.json"
VARIANTS = {
    "adiabatic, 1 step": [("T_adiab_hat", 382.15, 1, 0.5)],
    "adiabatic, 3 steps": [("T_adiab_hat", 382.15, 3, 0.8)],
    "adiabatic and band, 3 steps": [("T_adiab_hat", 382.15, 3, 0.8), ("T_R", 365.15, 3, 0.8)],
}


def main() -> int:
    """Fits, evaluates and writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--policies", nargs="+", default=["iql-0", "td3_bc-0"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()

    import jax

    from neorl_agents import load_policy
    from neorl_envs import read_dataset
    from neorl_envs.plants import ChemicalReactor

    plant = ChemicalReactor()
    log = read_dataset(arguments.run / "dataset.h5")
    model, held_out = _model(log)
    policies = {
        name: load_policy(arguments.run / f"policies/{name}.safetensors").policy
        for name in arguments.policies
    }
    key = jax.random.key(SEED)
    pid = plant.tunings()[plant.reference]
    records = {name: _records(plant, model, held_out, rows) for name, rows in VARIANTS.items()}
    document: dict[str, Any] = {
        "starts": STARTS,
        "seed": SEED,
        "reference": _episodes(plant, pid, key),
        "margins": {name: [one["margin"] for one in rows] for name, rows in records.items()},
        "policies": {},
    }
    for name, policy in policies.items():
        timings = {"box and rate": _guarded(plant, policy, pid, [], key)}
        for variant, rows in records.items():
            timings[variant] = _guarded(plant, policy, pid, rows, key)
            print(name, variant, timings[variant], flush=True)
        document["policies"][name] = timings
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document, indent=1))
    return 0


def _model(log: Any) -> tuple[Any, Any]:
    """The model fitted to the first episodes, and the rows of the others."""
    import jax.numpy as jnp
    import numpy as np

    from neorl_core.linear_systems import identify_linear

    rows = log.transitions
    border = int(log.episode_starts[int(log.n_episodes * (1 - HELD_OUT))])
    first = [np.asarray(column)[:border] for column in rows_of(rows)]
    model = identify_linear(*(jnp.asarray(column) for column in first), ridge=1e-6)
    a, b, c = (np.asarray(part, np.float64) for part in (model.a, model.b, model.offset))
    starts = np.asarray(log.episode_starts)
    starts = starts[starts >= border]
    ends = [*starts[1:], len(np.asarray(rows.obs))]
    pieces = [
        (np.asarray(rows.obs)[begin:end], np.asarray(rows.action)[begin:end])
        for begin, end in zip(starts, ends, strict=True)
    ]
    return (a, b, c), pieces


def rows_of(rows: Any) -> tuple[Any, ...]:
    """The columns that the identification takes."""
    return rows.obs, rows.action, rows.next_obs, rows.terminated, rows.truncated


def _records(plant: Any, model: Any, held_out: Any, wanted: Any) -> list[dict[str, Any]]:
    import jax.numpy as jnp
    import numpy as np

    from neorl_core.statistics import conformal_quantile
    from neorl_safety.constraints import barrier_records, spec_channels

    channels = spec_channels(plant.spec)
    names = [channel.name for channel in plant.spec.obs]
    records = []
    for name, limit, steps, decay in wanted:
        index, scores = names.index(name), []
        a, b, c = model
        for obs, action in held_out:
            x = obs[:-steps].astype(np.float64)
            for ahead in range(steps):
                u = action[ahead : len(obs) - steps + ahead]
                x = x @ a.T + u @ b.T + c
            # What matters is a prediction that is too low; the largest of an episode.
            scores.append(np.quantile(obs[steps:, index] - x[:, index], 0.95))
        quantile = conformal_quantile(jnp.asarray(scores, jnp.float32), miscoverage=MISCOVERAGE)
        margin = float(quantile)
        records += barrier_records(
            channels, model, keep={name: 1.0}, at_most=limit, decay=decay,
            margin=max(margin, 0.0), steps=steps,
        )  # fmt: skip
    return records


def _guarded(plant: Any, policy: Any, pid: Any, records: list[Any], key: Any) -> dict[str, Any]:
    from neorl_safety.constraints import declared_constraints
    from neorl_safety.guards import guard

    rates = [
        {"kind": "rate", "channel": c.name, "unit": c.unit, "up": float(rate), "down": float(rate)}
        for c, rate in zip(plant.spec.action, plant.action_rates(), strict=True)
    ]
    constraints = declared_constraints(plant.spec, [*rates, *records])
    return _episodes(plant, guard(policy, constraints, pid, plant.spec), key)


def _episodes(plant: Any, policy: Any, key: Any) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from scipy.stats import binomtest

    from neorl_safety.filters import Flag
    from neorl_train.judging import episodes_of, rollouts

    rows = jax.device_get(rollouts(plant, policy, key, jnp.arange(STARTS)))
    episodes = episodes_of(rows, plant.spec)
    over = int(episodes.violated[:, 0].sum())
    interval = binomtest(over, STARTS).proportion_ci()
    flags, inside = np.asarray(rows.flags), np.asarray(rows.mask)

    def part(flag: Flag) -> float:
        return float(((flags & int(flag)) != 0)[inside].mean())

    return {
        "return": float(episodes.returns.mean()),
        "temperature": float(episodes.cost_sum[:, 0].mean()),
        "over": over,
        "interval": [float(interval.low), float(interval.high)],
        "rows_active": part(Flag.ROWS_ACTIVE),
        "rows_infeasible": part(Flag.ROWS_INFEASIBLE),
        "fallback": part(Flag.FALLBACK_USED),
    }


if __name__ == "__main__":
    sys.exit(main())
