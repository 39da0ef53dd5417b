"""The risk of candidates by a safety critic of the log."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, CostChannel, InputError, Spec
from neorl_core.control import ConstantPolicy
from neorl_envs.datasets import dataset_from_columns
from neorl_train.choosing import ChooseOptions, risk_estimates

SPEC = Spec(
    (Channel("level", "m", 0.0, 2.0),),
    (Channel("inflow", "l/s", 0.0, 10.0),),
    (CostChannel("overflow", "1", 0.0, "step"),),
    dt=10.0,
    horizon=20,
)
FEW = ChooseOptions(horizon=4, risk_updates=600)
CANDIDATES = {name: ConstantPolicy(jnp.full(1, x)) for name, x in (("shut", 0.0), ("open", 10.0))}


def tank_log(episodes=160, highest=1.5):
    """A tank that fills by chance; it overflows above ``highest``."""
    rng, rows = np.random.default_rng(0), []
    level = rng.uniform(0.6, 1.3, episodes)
    for _ in range(20):
        inflow = rng.uniform(0, 10, episodes)
        after = np.clip(level + 0.03 * (inflow - 5) + 0.03 * rng.normal(size=episodes), 0, 2)
        rows.append((level, inflow, after))
        level = after
    level, inflow, after = (
        np.stack(column, axis=1).ravel().astype(np.float32)[:, None]
        for column in zip(*rows, strict=True)
    )
    ends = np.arange(len(level)) % 20 == 19
    return dataset_from_columns(
        SPEC, obs=level, action=inflow, reward=-level[:, 0], next_obs=after,
        cost=(after > highest).astype(np.float32),
        terminated=np.zeros(len(level), bool), truncated=ends,
    )  # fmt: skip


def test_who_fills_the_tank_has_the_higher_risk_and_the_critic_is_measured():
    risk = risk_estimates(tank_log(), CANDIDATES, FEW)
    (limit,) = risk.limits
    assert (risk.horizon, risk.none, limit.name) == (4, "", "overflow")
    shut, filling = limit.candidates
    assert 0 <= shut.value < shut.high < filling.low < filling.value < 1
    # The rate of the log, whose actions are between the two, lies between their risks.
    assert shut.value < limit.rate < filling.value
    assert limit.area_under_roc[0] > 0.9
    assert limit.calibration_error[0] < 0.05
    assert "episodes have a step that counts against overflow" in limit.claim


def test_a_log_that_teaches_nothing_says_why():
    risk = risk_estimates(tank_log(highest=3.0), CANDIDATES, FEW)
    assert risk.limits == ()
    assert risk.none.startswith("nothing can be learned about any limit from this log")
    longer = dataclasses.replace(FEW, horizon=30)
    assert "complete window of 30 steps" in risk_estimates(tank_log(40), CANDIDATES, longer).none


def test_a_horizon_below_one_is_refused():
    with pytest.raises(InputError, match="horizon must be an integer of at least 1"):
        ChooseOptions(horizon=0).validate()
