"""How much the checks of a log depend on their thresholds, which were set by hand.

Usage:
    python tools/studies/tables/choice/log_thresholds.py

On a log of the ordinary controller of every plant with at most 12 observations, each threshold is
halved and doubled (for ratios that must exceed one, their distance from one):

- Exchanged measurements: false alarms on the logs, and how many pairs are found of those that are
  exchanged in the second half of a log (at most two pairs of a plant).
- Unstable plants: which of the plants are reported.
- Modes: false alarms with the true modes, and how many lies are found: all in manual, all in
  automatic, and the reverse of the truth.
- The share of visited rows that may be far from the log: the corrected values of
  pool_estimators.py that are stated, how many of their intervals hold the true value, and the
  largest error.

Result: tools/studies/baselines/choice/log_thresholds.json.
"""

import argparse
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from neorl_core.infrastructure import write_text
from neorl_envs import Dataset, collect_log, make
from neorl_envs.inspection import _signals
from neorl_envs.inspection._channels import episodes_sample
from neorl_envs.plants import PLANTS
from neorl_train.choosing import MOST_FAR
from neorl_train.data import _data_warnings as _open_loop

BASELINES = Path(__file__).resolve().parents[2] / "baselines/choice"
STEPS, PAIRS, MOST_CHANNELS = 6_000, 2, 12


def logs() -> dict[str, Dataset]:
    """The log of the ordinary controller of every plant that is small enough."""
    result = {}
    for name in PLANTS:
        env = make(name)
        if env.spec.n_obs > MOST_CHANNELS:
            continue
        ordinary = next(iter(env.tunings()))
        only = {ordinary: env.tunings()[ordinary]}
        result[name] = collect_log(env, only, n_steps=STEPS, key=jax.random.key(0))
        print(name, flush=True)
    return result


FACTORS = (0.5, 1.0, 2.0)


def changed(module: Any, name: str, measure: Callable[[], Any]) -> dict[str, Any]:
    """A measurement with a threshold halved, as it is, and doubled."""
    usual = getattr(module, name)
    least = 1.0 if name in ("WORSE", "ALIKE", "SUSPECT") else 0.0
    results = {}
    for factor in FACTORS:
        value = least + factor * (usual - least)
        value = round(value) if isinstance(usual, int) else value
        setattr(module, name, value)
        results[f"{value:g}"] = measure()
    setattr(module, name, usual)
    print(name, results, flush=True)
    return results


def exchanged(log: Dataset) -> Iterator[tuple[set[str], Dataset]]:
    """The log with two measurements of one unit exchanged in its second half."""
    channels, rows = log.spec.obs, log.transitions
    skipped = _signals.skipped_names(log)
    pairs = [
        (i, j)
        for i, j in itertools.combinations(range(len(channels)), 2)
        if channels[i].unit == channels[j].unit
        and not {channels[i].name, channels[j].name} & skipped
    ]
    for pair in pairs[:: max(1, len(pairs) // PAIRS)][:PAIRS]:
        columns = []
        for column in (rows.obs, rows.next_obs):
            copy = np.array(column)
            copy[len(copy) // 2 :, list(pair)] = copy[len(copy) // 2 :, list(pair[::-1])]
            columns.append(copy)
        false_log = rows._replace(obs=columns[0], next_obs=columns[1])
        yield {channels[k].name for k in pair}, dataclasses.replace(log, transitions=false_log)


def exchanges(all_logs: dict[str, Dataset]) -> dict[str, Any]:
    """False alarms and detections of exchanged measurements."""
    cases = [case for log in all_logs.values() for case in exchanged(log)]
    samples = {
        id(log): episodes_sample(log) for log in (*all_logs.values(), *(c[1] for c in cases))
    }

    def pairs_of(log: Dataset) -> list[Any]:
        return _signals.swapped_pairs(samples[id(log)], log, _signals.skipped_names(log))

    def measure() -> dict[str, int]:
        hits = [names in [set(one["names"]) for one in pairs_of(log)] for names, log in cases]
        false = [bool(pairs_of(log)) for log in all_logs.values()]
        return {"found": sum(hits), "of": len(cases), "false": sum(false), "logs": len(false)}

    names = ("WORSE", "ALIKE", "SUSPECT", "FITTED", "FEWEST_ROWS")
    return {name: changed(_signals, name, measure) for name in names}


def unstable(all_logs: dict[str, Dataset]) -> dict[str, Any]:
    """The plants that are reported as unstable."""

    def measure() -> list[str]:
        return [name for name, log in all_logs.items() if _open_loop.doubling_steps(log)]

    names = ("N_PARTS", "ROWS_PER_COEFFICIENT", "MAX_FRACTION", "MAX_STEPS")
    return {name: changed(_open_loop, name, measure) for name in names}


def false_modes(all_logs: dict[str, Dataset]) -> dict[str, Any]:
    """False alarms and detections of modes that the actuator contradicts."""
    known = [log for log in all_logs.values() if log.mode is not None and np.any(log.mode)]
    lies: dict[str, Callable[[Any], Any]] = {
        "all manual": lambda mode: mode | True,
        "all automatic": lambda mode: mode & False,
        "reversed": lambda mode: ~mode,
    }

    def measure() -> dict[str, int]:
        result = {"logs": len(known), "false": sum(bool(mode_sentences(log)) for log in known)}
        for name, lie in lies.items():
            told = [dataclasses.replace(log, mode=lie(np.asarray(log.mode, bool))) for log in known]
            result[name] = sum(bool(mode_sentences(log)) for log in told)
        return result

    return {name: changed(_signals, name, measure) for name in ("BY_HAND", "STILL", "LIVELY")}


def mode_sentences(log: Dataset) -> list[str]:
    """The warnings on modes alone."""
    entries = {"swapped": [], "modes": _signals.modes(episodes_sample(log), log)}
    return _signals.signal_sentences(entries, None)


def far() -> dict[str, Any]:
    """The corrected values that may be stated, by the share that may be far."""
    pools = json.loads((BASELINES / "pool_estimators.json").read_text())
    candidates = [one for pool in pools for one in pool["candidates"]]

    def measure(most: float) -> dict[str, float]:
        stated = [one for one in candidates if one["far"] <= most]
        errors = [abs(one["corrected"][0] - one["true"]) for one in stated]
        right = [
            error <= (one["corrected"][2] - one["corrected"][1]) / 2 + one["error"]
            for one, error in zip(stated, errors, strict=True)
        ]
        return {
            "stated": len(stated), "of": len(candidates), "right": sum(right),
            "largest error": round(max(errors), 1),
        }  # fmt: skip

    values = [factor * MOST_FAR for factor in FACTORS]
    return {"MOST_FAR": {f"{value:g}": measure(value) for value in values}}


def main() -> None:
    """Measures and writes everything."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    all_logs = logs()
    result = exchanges(all_logs) | unstable(all_logs) | false_modes(all_logs) | far()
    write_text(BASELINES / "log_thresholds.json", json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
