"""Whole updates with the affine layers' form for a CPU, beside the same with the plain one.

Small case: 12 observations, 3 actions, networks of 64x64, batches of 64. One core, one thread; a
round is CPU time, in alternation; rows are drawn inside the timing, imports and compilation are
not. The ratio is the time of the plain form over that of ours: above 1, the form earns its lines.
Run it alone:

    python tools/studies/benchmarks/affine.py
    python tools/studies/benchmarks/affine.py --rounds 9 --core 1 --out /tmp/affine.json
"""

import sys
from collections.abc import Callable
from typing import Any

from _rounds import bare_scan, interleaved, on_one_core, pair_arguments, pair_report, small_case

LEARNERS = ("bc", "td3_bc", "iql")
STEPS = 1000


def main() -> int:
    """Runs all rounds and writes them; 0 if no variant spreads too far."""
    arguments = pair_arguments(__doc__, "affine")
    on_one_core(arguments.core)
    cases = {name: interleaved(_updates(name), STEPS, arguments.rounds) for name in LEARNERS}
    return pair_report("affine", cases, {name: [("plain", "ours")] for name in LEARNERS}, arguments)


def _updates(name: str) -> dict[str, Callable[[], Any]]:
    """A scan over the updates of a learner, compiled with each form."""
    import jax

    from neorl_agents.networks import _mlp

    algorithm, data = small_case(name)
    ours, variants = _mlp.affine, {}
    for form, function in (("ours", ours), ("plain", _mlp.plain_affine)):
        _mlp.affine = function
        variants[form] = bare_scan(algorithm, data, jax.devices()[0], 0, STEPS)
        variants[form]()  # traced with this form
    _mlp.affine = ours
    return variants


if __name__ == "__main__":
    sys.exit(main())
