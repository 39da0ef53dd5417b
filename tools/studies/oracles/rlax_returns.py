"""V-trace and Retrace of rlax 0.1.9, stored for the tests of neorl-core.

uv venv build/venv-rlax
uv pip install --python build/venv-rlax/bin/python "rlax==0.1.9"
build/venv-rlax/bin/python tools/studies/oracles/rlax_returns.py
"""

import argparse
import importlib.metadata
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import rlax

FIXTURES = Path(__file__).parents[3] / "packages/neorl-core/tests/fixtures"
GAMMA, LAMBDA, STEPS = 0.9, 0.7, 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FIXTURES / "rlax.json")
    out = parser.parse_args().out
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(8)
    value, ratio = rng.normal(size=STEPS + 1), rng.uniform(0, 2.5, STEPS)
    reward = rng.normal(size=STEPS)
    discount = np.where(np.arange(STEPS) == 6, 0.0, GAMMA)
    trace = rlax.vtrace_td_error_and_advantage(
        jnp.asarray(value[:-1]),
        jnp.asarray(value[1:]),
        jnp.asarray(reward),
        jnp.asarray(discount),
        jnp.asarray(ratio),
        LAMBDA,
    )
    # rlax gives errors of the values of actions; those of the last step have no later ratio.
    errors = rlax.retrace_continuous(
        jnp.asarray(value[:-1]),
        jnp.asarray(value[1:-1]),
        jnp.asarray(value[1:]),
        jnp.asarray(reward),
        jnp.asarray(discount),
        jnp.log(jnp.asarray(ratio[1:])),
        LAMBDA,
    )
    record = {
        "made_with": {"rlax": importlib.metadata.version("rlax")},
        "gamma": GAMMA,
        "lam": LAMBDA,
        "log": {
            "reward": reward.tolist(),
            "value": value[:-1].tolist(),
            "next_value": value[1:].tolist(),
            "ratio": ratio.tolist(),
            "discount": discount.tolist(),
        },
        "v_trace_returns": (value[:-1] + np.asarray(trace.errors)).tolist(),
        "v_trace_advantages": np.asarray(trace.pg_advantage).tolist(),
        "retrace_returns": (value[:-1] + np.asarray(errors)).tolist(),
    }
    out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
