"""Four seeds on all cores against one seed, and whether each seed is its single run, bit for bit.

Small case: 12 observations, 3 actions, networks of 64x64, batches of 64, 200,000 random rows. One
process; every core is a device. A round is a number of blocks of one seed, then of four seeds,
through the library's own parallel seeds. Imports, compilation and the first block are not timed.
Run it alone, on two cores or more:

    python tools/studies/benchmarks/seeds.py
    python tools/studies/benchmarks/seeds.py --algorithms iql --seeds 8
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from _rounds import MAX_SPREAD, RESULTS, machine, small_case, summary, write

FLOOR = 1.8
BLOCK = 1000


def main() -> int:
    """Runs all rounds and writes them; 0 if the gain and the bits are as wanted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithms", nargs="+", default=["td3_bc", "iql"])
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each (7)")
    parser.add_argument("--seeds", type=int, default=4, help="seeds side by side (4)")
    parser.add_argument("--blocks", type=int, default=8, help=f"of {BLOCK} updates a round (8)")
    parser.add_argument("--out", type=Path, default=RESULTS / "seeds.json")
    arguments = parser.parse_args()
    from neorl_train import prepare_process

    prepare_process()
    cases = {name: _case(name, arguments) for name in arguments.algorithms}
    result = {
        "benchmark": "seeds",
        "command": "python tools/studies/benchmarks/seeds.py " + " ".join(sys.argv[1:]),
        "case": {"obs": 12, "act": 3, "hidden": [64, 64], "batch": 64, "block": BLOCK},
        "unit": "critic gradient steps per second, all seeds together",
        "floor": FLOOR,
        "cases": cases,
        **machine(),
    }
    write(arguments.out, result)
    return _report(cases)


def _case(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    from neorl_train.runs import tree_digest

    one, many = (_Variant(name, range(n)) for n in (1, arguments.seeds))
    rates: dict[str, list[float]] = {"one": [], "many": []}
    for _ in range(arguments.rounds):
        rates["one"].append(one.round(arguments.blocks))
        rates["many"].append(many.round(arguments.blocks))
        print(name, f"one {rates['one'][-1]:.0f}/s, many {rates['many'][-1]:.0f}/s", flush=True)
    together = many.parallel.snapshot()
    equal = []
    for seed in range(arguments.seeds):
        alone = one if seed == 0 else _Variant(name, [seed])
        while alone.done < many.done:
            alone.round(1)
        single = alone.parallel.snapshot()
        states = _state_of_seed(together, seed), _state_of_seed(single, 0)
        equal.append(len({tree_digest(state) for state in states}) == 1)
    both = {variant: summary(of) for variant, of in rates.items()}
    gain = both["many"]["median"] / both["one"]["median"]
    return {**both, "seeds": arguments.seeds, "gain": gain, "equal_to_single_run": equal}


class _Variant:
    def __init__(self, name: str, seeds: Any) -> None:
        import jax

        from neorl_train.training import offline_seeds

        self.algorithm, data = small_case(name)
        self.n_updates = BLOCK // self.algorithm.batches_per_update
        self.parallel = offline_seeds(self.algorithm, data, list(seeds), jax.local_devices())
        self.parallel.compile(self.n_updates)
        self.done = 0
        self.round(1)

    def round(self, blocks: int) -> float:
        import jax

        started_at, metrics = time.perf_counter(), []
        for _ in range(blocks):
            metrics = self.parallel.advance()
            self.done += 1
        jax.block_until_ready(metrics)
        return blocks * BLOCK * len(self.parallel.seeds) / (time.perf_counter() - started_at)


def _state_of_seed(snapshot: Any, number: int) -> Any:
    import jax

    return jax.tree.map(lambda leaf: leaf[number], snapshot)


def _report(cases: dict[str, Any]) -> int:
    failures = []
    for name, case in cases.items():
        gain = f"{case['seeds']} seeds at {case['gain']:.2f} times the rate of one ({FLOOR} wanted)"
        print(f"{name}: {gain}; equal to their single runs: {case['equal_to_single_run']}")
        if case["gain"] < FLOOR:
            failures.append(f"{name}: a gain of {case['gain']:.2f} is below {FLOOR}")
        if not all(case["equal_to_single_run"]):
            failures.append(f"{name}: a seed among others is not its single run")
        failures += [
            f"{name} {variant}: max/min is {case[variant]['spread']:.2f}, over {MAX_SPREAD}"
            for variant in ("one", "many")
            if case[variant]["spread"] > MAX_SPREAD
        ]
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
