"""Numbers of other libraries, stored by the scripts in ``tools/studies/oracles``."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.federated import (
    bulyan,
    coordinate_median,
    krum,
    multi_krum,
    trimmed_mean,
    weighted_mean,
)
from neorl_core.off_policy_evaluation import (
    LoggedTrajectories,
    weighted_doubly_robust,
    wpdis,
)
from neorl_core.statistics import (
    interquartile_mean,
    median_task_mean,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap_interval,
    student_interval,
)

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def stored(name):
    return json.loads((FIXTURES / f"{name}.json").read_text())


def aggregates(scores):
    return jnp.stack(
        [
            interquartile_mean(scores),
            median_task_mean(scores),
            jnp.mean(scores),
            optimality_gap(scores),
        ]
    )


def test_rliable():
    """Row N32: the interquartile mean and its kin are those of rliable."""
    record = stored("rliable")
    first, second = np.asarray(record["first"]), np.asarray(record["second"])
    interval = stratified_bootstrap_interval(
        first, jax.random.key(0), statistic=aggregates, resamples=20_000
    )
    np.testing.assert_allclose(interval.estimate, record["points"], rtol=1e-12)
    # Two draws of 20 000: the ends agree to a few thousandths of the width.
    theirs = np.asarray(record["intervals"])
    width = theirs[1] - theirs[0]
    assert np.all(np.abs(np.stack(interval[1:]) - theirs) < 0.03 * width)
    np.testing.assert_allclose(
        performance_profile(first, np.asarray(record["thresholds"])), record["profile"], rtol=1e-12
    )
    np.testing.assert_allclose(
        probability_of_improvement(first, second),
        record["probability_of_improvement"],
        rtol=1e-12,
    )


@pytest.mark.parametrize("function", [wpdis, weighted_doubly_robust])
def test_scope_rl_weighted_estimates(function):
    """SCOPE-RL adds 1e-10 to its denominators."""
    record = stored("scope_rl")
    value = function(logged(record), discount=record["discount"])
    np.testing.assert_allclose(value, record["values"][function.__name__], rtol=1e-8)


def logged(record):
    names = ("log_ratio", "reward", "q_value", "value")
    log_ratio, reward, q_value, value = (jnp.asarray(record[name]) for name in names)
    return LoggedTrajectories(log_ratio, reward, None, q_value, value)


def test_scope_rl_interval():
    record = stored("scope_rl")
    samples, level = np.asarray(record["samples"]), 1 - 2 * record["alpha"]
    student = student_interval(samples, level=level)
    np.testing.assert_allclose(student, record["student"], rtol=1e-10)


@pytest.mark.nightly
def test_flower():
    record = stored("flower")
    updates = {name: np.asarray(record[name]) for name in ("weight", "bias")}
    byzantine, selected = record["num_byzantine"], record["selected"]
    every = {"num_byzantine": byzantine}
    rules = {
        "coordinate_median": coordinate_median,
        "trimmed_mean": functools.partial(trimmed_mean, **every),
        "krum": functools.partial(krum, **every),
        "multi_krum": functools.partial(multi_krum, selected=selected, **every),
        "bulyan": functools.partial(bulyan, **every),
    }
    ours = {name: jax.jit(rule)(updates) for name, rule in rules.items()}
    ours["weighted_mean"] = jax.jit(weighted_mean)(updates, np.asarray(record["rows"], float))
    assert ours.keys() == record["results"].keys()
    for name, result in ours.items():
        for leaf, expected in record["results"][name].items():
            np.testing.assert_allclose(
                result.value[leaf], expected, rtol=1e-11, atol=1e-13, err_msg=f"{name} {leaf}"
            )
