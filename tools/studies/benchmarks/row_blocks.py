"""CQL's update with the critics' gradient summed over blocks of rows, beside all rows at once.

The two sizes of `learners.py`, ten samples of each kind, three hidden layers. One core, one thread;
a round is CPU time, in alternation; rows are drawn inside the timing, imports and compilation are
not. The ratio is the time of all rows at once over that of the blocks: above 1, they earn their
lines. Run it alone:

    python tools/studies/benchmarks/row_blocks.py
    python tools/studies/benchmarks/row_blocks.py --rounds 5 --core 1 --out /tmp/row_blocks.json
"""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from _learner_peers import DEPTH, SIZES, ours, steps_of_a_call
from _rounds import interleaved, on_one_core, pair_arguments, pair_report

CPU = SimpleNamespace(device="cpu")


def main() -> int:
    """Runs all rounds and writes them; 0 if no variant spreads too far."""
    arguments = pair_arguments(__doc__, "row_blocks")
    on_one_core(arguments.core)
    cases = {
        name: interleaved(_updates(size), steps_of_a_call(size, CPU), arguments.rounds)
        for name, size in SIZES.items()
    }
    ratios = {name: [("whole", "blocks")] for name in SIZES}
    return pair_report("row_blocks", cases, ratios, arguments, SIZES)


def _updates(size: dict[str, int]) -> dict[str, Callable[[], Any]]:
    """A chunk of updates in each form; a class of its own, so that it is not the same program."""
    from neorl_agents import ALGORITHMS, CQL
    from neorl_agents.algorithms import _row_blocks

    class Whole(CQL):
        """The learner whose rows are never cut into blocks."""

    in_blocks = _row_blocks.blocks_of
    forms = {"blocks": (CQL, in_blocks), "whole": (Whole, lambda batch, inputs: 1)}
    variants = {}
    for form, (kind, blocks_of) in forms.items():
        _row_blocks.blocks_of = blocks_of
        name = f"cql_{form}_{size['width']}"
        ALGORITHMS.register(name, kind)
        DEPTH[name] = DEPTH["cql"]
        variants[form] = ours(name, size, CPU, n_samples=10)[0]
        variants[form]()  # traced in this form
    _row_blocks.blocks_of = in_blocks
    return variants


if __name__ == "__main__":
    sys.exit(main())
