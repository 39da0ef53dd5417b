"""Epsilons of the package dp-accounting, for the tests of federated training.

Usage, in an environment of its own (its bound on attrs is that of 2023):
    pip install dp-accounting==0.6.0
    python tools/studies/oracles/dp_accounting_epsilons.py

Writes ``packages/neorl-train/tests/federation/dp_accounting_epsilons.json``: Renyi accountant, the
package's own orders, addition or removal of one record.
"""

import argparse
import json
from pathlib import Path

FILE = (
    Path(__file__).resolve().parents[3]
    / "packages/neorl-train/tests/federation/dp_accounting_epsilons.json"
)
CASES = [
    (10_000, 4.0, 0.01, 1e-5),
    (14_000, 1.1, 256 / 60_000, 1e-5),
    (40, 2.0, 0.5, 1e-5),
    (1, 1.0, 1.0, 1e-5),
    (100, 1.0, 1.0, 1e-5),
    (40, 5.0, 1.0, 1e-5),
]
"""Rounds, noise multiplier, chance to take part, delta."""


def main() -> int:
    """Writes the file."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    epsilons = []
    for rounds, noise, chance, delta in CASES:
        event: dp_event.DpEvent = dp_event.GaussianDpEvent(noise)
        if chance < 1:
            event = dp_event.PoissonSampledDpEvent(chance, event)
        accountant = RdpAccountant()
        accountant.compose(event, rounds)
        epsilons.append(
            {
                "rounds": rounds, "noise_multiplier": noise, "participation": chance,
                "delta": delta, "epsilon": float(accountant.get_epsilon(delta)),
            }
        )  # fmt: skip
    FILE.write_text(json.dumps(epsilons, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
