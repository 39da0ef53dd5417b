"""Counts, horizons, lags and indices: whole numbers of any integer type, and nothing else."""

import inspect
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neorl_core
from neorl_core import (
    Channel,
    federated,
    linear_systems,
    off_policy_evaluation,
    replay,
    statistics,
)
from neorl_core.testing import exports

KEY = jax.random.key(0)
# Formulas: the version of a document is no argument of one.
EXPORTS = {
    name: value
    for name, value in exports(neorl_core).items()
    if name not in neorl_core.boundary.__all__
}
SERIES, FLAGS = jnp.arange(1.0, 8.0), jnp.zeros(7, bool)
COLUMN, SQUARE = SERIES[:, None], jnp.eye(2)
LOG = (COLUMN, COLUMN[::-1] ** 2, COLUMN + 1, FLAGS, FLAGS)
RUNS = jnp.stack([SERIES, 2 * SERIES])
TRAJECTORIES = off_policy_evaluation.LoggedTrajectories(0 * RUNS, RUNS, None, RUNS, RUNS)
MATRICES = (SQUARE,) * 5
BUFFER = replay.ring_push(replay.ring_buffer(0.0, capacity=3), jnp.ones(2))
TREE = replay.set_priorities(replay.priority_tree(3), jnp.arange(2), jnp.ones(2))
CHANNEL = Channel("level", "m", 0.0, 1.0)
SPEC = {"obs": (CHANNEL,), "action": (CHANNEL,), "cost": (), "dt": 1.0}

# Every parameter of an export that is annotated as an int, in a call with a good value.
CALLS = {
    "Spec": ((), {**SPEC, "horizon": 3}),
    "batch_indices": ((KEY, 0), {"n": 3, "batch": 2}),
    "bootstrap_interval": ((SERIES, KEY), {"resamples": 3}),
    "bootstrap_replicates": ((SERIES, KEY), {"resamples": 3}),
    "bulyan": ((SERIES,), {"num_byzantine": 1}),
    "centred_clipping": ((SERIES, jnp.asarray(0.0)), {"radius": 1.0, "iterations": 2}),
    "delay_line": ((0.5,), {"delay": 2}),
    "delay_residuals": (LOG, {"longest": 1}),
    "discounted_cost_limit": ((10.0,), {"horizon": 3, "discount": 0.5}),
    "epoch_indices": ((KEY, 0), {"n": 3, "batch": 2}),
    "finite_horizon_regulator": (MATRICES, {"horizon": 2}),
    "geometric_median": ((SERIES,), {"iterations": 2}),
    "hcope_threshold": ((SERIES,), {"size": 3}),
    "history_window": ((0.5,), {"length": 2}),
    "identify_linear": (LOG, {"delay": 1}),
    "krum": ((SERIES,), {"num_byzantine": 1}),
    "magic": ((TRAJECTORIES, KEY), {"discount": 0.9, "resamples": 3}),
    "multi_krum": ((SERIES,), {"num_byzantine": 1, "selected": 2}),
    "n_step_returns": ((SERIES, SERIES, FLAGS), {"n": 2, "discount": 0.5}),
    "pad_graph": ((COLUMN, [0], [1]), {"node_count": 8, "edge_count": 2}),
    "pid_multiplier_init": ((jnp.asarray(1.0),), {"delay": 1}),
    "priority_tree": ((), {"capacity": 3}),
    "regret_at_k": ((SERIES, SERIES), {"k": 2}),
    "ring_buffer": ((0.0,), {"capacity": 3}),
    "ring_mixing": ((), {"clients": 3}),
    "ring_sample": ((BUFFER, KEY), {"batch": 2}),
    "sample_priorities": ((TREE, KEY), {"batch": 2}),
    "segment_n_step_returns": ((SERIES, SERIES, FLAGS, FLAGS), {"n": 2, "discount": 0.5}),
    "shuffled_position": ((KEY, jnp.arange(3)), {"n": 3}),
    "sign_flip_test": ((SERIES, SERIES[::-1], KEY), {"resamples": 3}),
    "star_mixing": ((), {"clients": 3}),
    "step_cost_limit": ((10.0,), {"horizon": 3}),
    "stratified_bootstrap_interval": ((RUNS, KEY), {"resamples": 3}),
    "trimmed_mean": ((SERIES,), {"num_byzantine": 1}),
    "variance": ((statistics.sample_moments(SERIES),), {"ddof": 1}),
    "window_rows": ((2, 0), {"length": 2}),
}
BAD = [1.5, 2.0, float("nan"), True, np.True_, "2", None]
NO_WHOLE_NUMBER = "{} must be a whole number that is known before tracing, got {!r}; give an int"


def whole_parameters():
    """Of every export, as the annotations tell."""
    for name, value in EXPORTS.items():
        if inspect.isfunction(value) or name == "Spec":
            for parameter in inspect.signature(value).parameters.values():
                if parameter.annotation in (int, int | tuple[int, ...]):
                    yield name, parameter.name


every_whole_number = pytest.mark.parametrize(("name", "parameter"), [*whole_parameters()])


def whole(message, *parts):
    """A pattern of this message and no more."""
    return f"^{re.escape(message.format(*parts))}$"


def call(name, parameter, value):
    args, options = CALLS[name]
    answer = EXPORTS[name](*args, **{**options, parameter: value})
    return answer.horizon if name == "Spec" else answer


@every_whole_number
def test_what_is_no_whole_number_is_refused(name, parameter):
    for bad in BAD:
        with pytest.raises(ValueError, match=whole(NO_WHOLE_NUMBER, parameter, bad)):
            call(name, parameter, bad)


@every_whole_number
def test_what_is_being_traced_is_refused(name, parameter):
    message = f"^{parameter} must be a whole number that is known before tracing, got .*; give an"
    with pytest.raises(ValueError, match=message):
        jax.jit(lambda number: call(name, parameter, number))(2)


@every_whole_number
def test_whole_numbers_of_numpy_and_jax_count_as_such(name, parameter):
    good = CALLS[name][1][parameter]
    expected = call(name, parameter, good)
    for number in (np.int64(good), jnp.asarray(good)):
        result = call(name, parameter, number)
        chex.assert_trees_all_equal(result, expected, strict=True)


# The least value of each, and what is to be done about a smaller one.
LEAST = {
    ("Spec", "horizon"): (1, "give the longest episode"),
    ("bootstrap_interval", "resamples"): (1, "give the number of draws"),
    ("bootstrap_replicates", "resamples"): (1, "give the number of draws"),
    ("bulyan", "num_byzantine"): (0, "give 0 for none"),
    ("centred_clipping", "iterations"): (1, "give the number of steps"),
    ("delay_line", "delay"): (0, "give 0 for no delay"),
    ("delay_residuals", "longest"): (0, "give 0 to try no delay"),
    ("discounted_cost_limit", "horizon"): (1, "give the longest episode"),
    ("finite_horizon_regulator", "horizon"): (0, "0 leaves the terminal cost alone"),
    ("geometric_median", "iterations"): (1, "give the number of steps"),
    ("hcope_threshold", "size"): (2, "hold fewer samples out"),
    ("history_window", "length"): (1, "give the number of values that it holds"),
    ("identify_linear", "delay"): (0, "give the steps of dead time"),
    ("krum", "num_byzantine"): (0, "give 0 for none"),
    ("magic", "resamples"): (1, "give the number of draws"),
    ("multi_krum", "num_byzantine"): (0, "give 0 for none"),
    ("n_step_returns", "n"): (1, "1 is the plain temporal difference"),
    ("pid_multiplier_init", "delay"): (1, "1 compares with the step before"),
    ("priority_tree", "capacity"): (1, "give the number of items that it holds"),
    ("ring_buffer", "capacity"): (1, "give the number of rows that it holds"),
    ("ring_mixing", "clients"): (1, "leave mixing out where there is none"),
    ("ring_sample", "batch"): (0, "give the number of draws"),
    ("sample_priorities", "batch"): (1, "give the number of draws"),
    ("segment_n_step_returns", "n"): (1, "1 is the plain temporal difference"),
    ("sign_flip_test", "resamples"): (1, "give the number of sign patterns"),
    ("star_mixing", "clients"): (1, "leave mixing out where there is none"),
    ("step_cost_limit", "horizon"): (1, "give the longest episode"),
    ("stratified_bootstrap_interval", "resamples"): (1, "give the number of draws"),
    ("trimmed_mean", "num_byzantine"): (0, "give 0 for none"),
    ("variance", "ddof"): (0, "0 divides by the count, 1 by one less"),
    ("window_rows", "length"): (1, "give the number of rows of a window"),
}
# These have a range of their own, which their rows of the table test.
RANGES = {
    ("batch_indices", "batch"),
    ("batch_indices", "n"),
    ("epoch_indices", "batch"),
    ("epoch_indices", "n"),
    ("multi_krum", "selected"),
    ("pad_graph", "edge_count"),
    ("pad_graph", "node_count"),
    ("regret_at_k", "k"),
    ("shuffled_position", "n"),
}


@pytest.mark.parametrize(("name", "parameter"), LEAST)
def test_a_whole_number_that_is_too_small_is_refused_and_the_least_is_not(name, parameter):
    least, advice = LEAST[name, parameter]
    call(name, parameter, least)
    message = whole("{} must be {} or more, got {}; {}", parameter, least, least - 1, advice)
    with pytest.raises(ValueError, match=message):
        call(name, parameter, least - 1)


def test_every_whole_number_has_a_least_value_or_a_range():
    assert set(whole_parameters()) == set(LEAST) | RANGES


@pytest.mark.parametrize("bad", [1.5, True, None])
def test_every_one_of_several_is_whole(bad):
    for what, function, args in (
        ("every one of sizes", federated.hierarchical_mixing, ((2, bad),)),
        ("delay", lambda *log: linear_systems.identify_linear(*log, delay=(bad,)), LOG),
    ):
        with pytest.raises(ValueError, match=whole(NO_WHOLE_NUMBER, what, bad)):
            function(*args)


def test_delays_of_an_array_are_delays():
    fit = linear_systems.identify_linear(*LOG, delay=np.asarray([1]))
    np.testing.assert_array_equal(fit.b, linear_systems.identify_linear(*LOG, delay=1).b)
