"""V-trace and Retrace on recorded steps, against rlax's numbers."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from neorl_core.returns import VTrace, retrace_returns, v_trace

RECORD = json.loads((Path(__file__).parents[1] / "fixtures" / "rlax.json").read_text())


def test_rlax():
    """One episode of both libraries' conventions: rlax's discounts are zero after a termination."""
    with jax.enable_x64(True):
        log = {name: jnp.asarray(values) for name, values in RECORD["log"].items()}
        ended = log["discount"] == 0
        shared = log["reward"], log["value"], log["next_value"], log["ratio"], ended
        result = v_trace(*shared, discount=RECORD["gamma"], lam=RECORD["lam"])
        assert isinstance(result, VTrace)
        np.testing.assert_allclose(result.returns, RECORD["v_trace_returns"], rtol=1e-6)
        np.testing.assert_allclose(result.advantages, RECORD["v_trace_advantages"], rtol=1e-6)
        actual = retrace_returns(*shared, discount=RECORD["gamma"], lam=RECORD["lam"])
        np.testing.assert_allclose(actual, RECORD["retrace_returns"], rtol=1e-6)
