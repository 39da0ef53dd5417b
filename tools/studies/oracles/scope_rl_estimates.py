"""Off-policy estimates and intervals of SCOPE-RL 0.2.1, stored for the tests of neorl-core.

In an environment of its own. Torch is taken as the CPU build, before the rest, so that no
accelerator libraries come in; the rest without SCOPE-RL's own pins:

    python3.11 -m venv build/venv-scope-rl
    build/venv-scope-rl/bin/pip install "torch==2.13.0"
    build/venv-scope-rl/bin/pip install --no-deps "scope-rl==0.2.1" "d3rlpy==2.8.1" \
        "pytorch-revgrad==0.2.0"
    build/venv-scope-rl/bin/pip install numpy scipy pandas scikit-learn matplotlib seaborn \
        "gym>=0.26.2" "gymnasium==1.0.0" hydra-core structlog colorama h5py tqdm \
        dataclasses-json click
    build/venv-scope-rl/bin/python tools/studies/oracles/scope_rl_estimates.py
"""

import argparse
import importlib.metadata
import json
from pathlib import Path

import numpy as np
from scope_rl.ope import discrete
from scope_rl.utils import estimate_confidence_interval_by_t_test

FIXTURES = Path(__file__).parents[3] / "packages/neorl-core/tests/fixtures"
TRAJECTORIES, STEPS, ACTIONS, DISCOUNT, ALPHA = 12, 5, 3, 0.9, 0.05
ESTIMATORS = {
    "wpdis": discrete.SelfNormalizedPDIS,
    "weighted_doubly_robust": discrete.SelfNormalizedDR,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FIXTURES / "scope_rl.json")
    out = parser.parse_args().out
    rng = np.random.default_rng(21)
    rows = TRAJECTORIES * STEPS
    logging = rng.dirichlet(2 * np.ones(ACTIONS), size=rows)
    evaluated = rng.dirichlet(2 * np.ones(ACTIONS), size=rows)
    action = np.array([rng.choice(ACTIONS, p=chances) for chances in logging])
    taken = np.arange(rows), action
    q_values = rng.normal(size=(rows, ACTIONS))
    reward = rng.uniform(size=rows)
    data = {
        "step_per_trajectory": STEPS,
        "action": action,
        "reward": reward,
        "pscore": logging[taken],
        "evaluation_policy_action_dist": evaluated,
        "state_action_value_prediction": q_values,
        "gamma": DISCOUNT,
    }
    values = {
        name: float(estimator().estimate_policy_value(**data))
        for name, estimator in ESTIMATORS.items()
    }
    samples = rng.exponential(size=30)
    student = estimate_confidence_interval_by_t_test(samples, alpha=ALPHA)

    def column(values: np.ndarray) -> list:
        return values.reshape(TRAJECTORIES, STEPS).tolist()

    record = {
        "made_with": {
            name: importlib.metadata.version(name) for name in ("scope-rl", "d3rlpy", "torch")
        },
        "discount": DISCOUNT,
        "log_ratio": column(np.log(evaluated[taken] / logging[taken])),
        "reward": column(reward),
        "q_value": column(q_values[taken]),
        "value": column(np.sum(q_values * evaluated, axis=1)),
        "values": values,
        "samples": samples.tolist(),
        # Each bound errs with chance alpha by itself.
        "alpha": ALPHA,
        "student": [float(number) for number in student.values()],
    }
    out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
