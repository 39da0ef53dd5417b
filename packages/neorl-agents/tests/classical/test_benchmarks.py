"""NeoRL-2's DMSD and Pipeline: identified from a log, controlled better than all that was learned.

The dynamics are the published ones, restated in NumPy; the full figures are made by
``tools/studies/benchmarks/classical_scores.py``.
"""

import jax
import numpy as np
import pytest

from neorl_agents.classical import LQG, MPC, SmithPID

from .neorl2 import (
    DMSD_SPEC,
    DMSD_TASK,
    PIPELINE_SPEC,
    PIPELINE_TASK,
    dmsd_log,
    dmsd_scores,
    pipeline_log,
    pipeline_scores,
)

EFFORT = 0.001


@pytest.fixture(scope="module")
def log(data):
    return dmsd_log(data / "neorl2/DMSD-high-100000-train.npz")


@pytest.mark.nightly
def test_the_exact_system_is_found_in_the_official_file(log):
    report = LQG(effort=EFFORT, longest_delay=1, orders=1).fit(log, DMSD_SPEC, DMSD_TASK).report
    assert (report["order"], report["delay"]) == (1, [0, 0])
    assert max(report["residual"]) < 2.5e-7


def test_a_model_of_dmsd_beats_what_was_learned(log):
    """Row R05: a model from the benchmark's log beats what was learned from it."""
    policy = LQG(effort=EFFORT, longest_delay=1, orders=1).fit(log, DMSD_SPEC, DMSD_TASK).policy
    scores = dmsd_scores(policy, log, 100)
    assert np.mean(scores) >= 97


@pytest.mark.nightly
def test_planning_with_limits_is_better_still(log):
    policy = MPC(effort=EFFORT, longest_delay=1, orders=1).fit(log, DMSD_SPEC, DMSD_TASK).policy
    assert np.mean(dmsd_scores(policy, log, 100)) >= 98


def test_the_dead_time_of_pipeline_is_found_and_compensated():
    """Row R05: a model from a log of Pipeline beats what was learned from it."""
    log = pipeline_log(episodes=6, seed=0)
    fitted = SmithPID(longest_delay=25).fit(log, PIPELINE_SPEC, PIPELINE_TASK)
    loop = fitted.report["loops"][0]
    # What is done now is measured twenty periods later: one of them is that of the next row.
    assert (loop["delay"], loop["pole"]) == (19, 1.0)
    np.testing.assert_allclose(loop["gain"], 1.0, rtol=1e-6)
    scores = pipeline_scores(fitted.policy, 200, jax.random.key(1))
    # 104.3 in the survey; over 200 episodes the mean is uncertain by 0.9.
    assert np.mean(scores) - 2 * np.std(scores) / np.sqrt(200) >= 101


@pytest.mark.nightly
def test_the_regulator_of_pipeline_needs_no_tuning():
    log = pipeline_log(episodes=6, seed=0)
    fitted = LQG(longest_delay=25, orders=1).fit(log, PIPELINE_SPEC, PIPELINE_TASK)
    assert fitted.report["delay"] == [19]
    scores = pipeline_scores(fitted.policy, 200, jax.random.key(1))
    assert np.mean(scores) - 2 * np.std(scores) / np.sqrt(200) >= 101
