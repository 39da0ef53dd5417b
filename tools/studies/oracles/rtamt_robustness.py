"""Records the robustness that rtamt gives to formulas over a random signal.

Run with `rtamt` and NumPy installed (Python below 3.13); writes
`packages/neorl-safety/tests/monitoring/rtamt_robustness.json`, which a test compares with.
"""

import json
from pathlib import Path

import numpy as np
import rtamt

OUT = Path(__file__).parents[3] / "packages/neorl-safety/tests/monitoring/rtamt_robustness.json"
FORMULAS = {
    "always": "always[0:3](x >= 0.5)",
    "eventually": "eventually[1:4](y <= 0.2)",
    "until": "(x >= 0.0) until[1:5] (y >= 0.7)",
    "until from now": "(x >= 0.0) until[0:3] (y >= 0.4)",
    "nested": "always[0:4](not(x >= 0.6) or eventually[0:2](y >= 0.3))",
    "both": "always[0:2](x >= -1.0) and eventually[0:3](y >= 0.0)",
}
HORIZON = 8


def main() -> None:
    """Evaluates every formula and writes what came out."""
    rng = np.random.default_rng(11)
    rows = [np.zeros(2)]
    for noise in rng.normal(0, 0.6, (60, 2)):
        rows.append(0.7 * rows[-1] + noise)
    signal = np.round(rows[1:], 3)
    recorded = {}
    for name, formula in FORMULAS.items():
        spec = rtamt.StlDiscreteTimeSpecification()
        spec.declare_var("x", "float")
        spec.declare_var("y", "float")
        spec.spec = formula
        spec.parse()
        columns = {"time": list(range(len(signal))), "x": signal[:, 0].tolist()}
        answers = spec.evaluate({**columns, "y": signal[:, 1].tolist()})
        # The tail of rtamt's answer speaks of windows that the signal does not fill.
        recorded[name] = [float(value) for _, value in answers][: len(signal) - HORIZON]
    document = {
        "rtamt": getattr(rtamt, "__version__", "0.4.10"),
        "formulas": FORMULAS,
        "signal": signal.tolist(),
        "robustness": recorded,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
