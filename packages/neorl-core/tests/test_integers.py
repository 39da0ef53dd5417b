"""Counts, horizons, lags and indices: numbers of any integer type, and nothing else.

Of the functions with a row in the table, ``check_form`` sees to it; these have none.
"""

import inspect
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neorl_core
from neorl_core import Channel, federated, graphs, linear_systems, replay
from neorl_core.testing import exports, load_table

KEY = jax.random.key(0)
WHOLE = (int, int | tuple[int, ...])
IN_TABLE = {row.function.__name__ for row in load_table(Path(__file__).parent)}
# Formulas: the version of a document is no argument of one.
EXPORTS = {
    name: value
    for name, value in exports(neorl_core).items()
    if name not in neorl_core.infrastructure.__all__
}
CHANNEL = Channel("level", "m", 0.0, 1.0)
# A call with the least value, and what is to be done about a smaller one.
CALLS = {
    "Spec": (
        {"obs": (CHANNEL,), "action": (CHANNEL,), "cost": (), "dt": 1.0, "horizon": 1},
        "give the largest number of steps of an episode",
    ),
    "delay_line": ({"fill": 0.5, "delay": 0}, "give 0 for no delay"),
    "identify_subspace": (
        {
            "obs": jnp.arange(9.0)[:, None],
            "action": jnp.ones((9, 1)),
            "terminated": jnp.zeros(9, bool),
            "truncated": jnp.zeros(9, bool),
            "order": 1,
            "horizon": 2,
        },
        "give the number of states",
    ),
    "priority_tree": ({"capacity": 1}, "give the number of items that it holds"),
    "ring_mixing": ({"clients": 1}, "leave mixing out without a graph"),
    "ring_sample": (
        {
            "buffer": replay.ring_push(replay.ring_buffer(0.0, capacity=3), jnp.ones(2)),
            "key": KEY,
            "batch": 0,
        },
        "give the number of draws",
    ),
    "sample_priorities": (
        {"tree": replay.priority_tree(3), "key": KEY, "batch": 1},
        "give the number of draws",
    ),
    "star_mixing": ({"clients": 1}, "leave mixing out without a graph"),
    "window_rows": (
        {"row": 2, "first_row": 0, "length": 1},
        "give the number of rows of a window",
    ),
    "ring_buffer": ({"example": 0.0, "capacity": 1}, "give the number of rows that it holds"),
}
LOG = (*(jnp.arange(7.0)[:, None] + i for i in range(3)), *jnp.zeros((2, 7), bool))


def whole_parameter(name):
    parameters = inspect.signature(EXPORTS[name]).parameters.values()
    return next((p.name for p in parameters if p.annotation in WHOLE), None)


def test_every_integer_of_an_export_is_tested():
    callable_exports = [name for name, value in EXPORTS.items() if inspect.isfunction(value)]
    result = {name for name in callable_exports if whole_parameter(name)} | {"Spec"}
    assert result <= IN_TABLE | set(CALLS) | {"pad_graph", "identify_subspace"}


@pytest.mark.parametrize("name", CALLS)
def test_integers_of_what_has_no_row(name):
    options, advice = CALLS[name]
    parameter = "horizon" if name == "Spec" else whole_parameter(name)
    least = options[parameter]

    def call(number):
        return EXPORTS[name](**{**options, parameter: number})

    for good in (least, np.int64(least), jnp.asarray(least)):
        call(good)
    with pytest.raises(ValueError, match=f"must be {least} or more, got {least - 1}; {advice}"):
        call(least - 1)
    for bad in (1.5, 2.0, np.nan, True, np.True_, "2", None):
        with pytest.raises(ValueError, match=f"^{parameter} must be an integer"):
            call(bad)
    with pytest.raises(ValueError, match=f"^{parameter} must be an integer"):
        jax.jit(lambda number: jnp.zeros(()) * bool(call(number)))(2)


@pytest.mark.parametrize("bad", [1.5, True, None])
def test_sizes_with_a_range_of_their_own_are_integers(bad):
    for sizes in ({"order": bad, "horizon": 3}, {"order": 2, "horizon": bad}):
        with pytest.raises(ValueError, match="must be an integer that is known before"):
            linear_systems.identify_subspace(*LOG[:2], *LOG[3:], **sizes)
    for sizes in ({"node_count": bad, "edge_count": 2}, {"node_count": 8, "edge_count": bad}):
        with pytest.raises(ValueError, match="must be an integer that is known before"):
            graphs.pad_graph(jnp.ones((3, 1)), [0], [1], **sizes)


@pytest.mark.parametrize("bad", [1.5, True, None])
def test_every_one_of_several_is_whole(bad):
    words = "{} must be an integer that is known before tracing, got {!r}"
    for what, function, args in (
        ("every entry of sizes", federated.hierarchical_mixing, ((2, bad),)),
        ("delay", lambda *log: linear_systems.identify_linear(*log, delay=(bad,)), LOG),
    ):
        with pytest.raises(ValueError, match=re.escape(words.format(what, bad))):
            function(*args)


def test_delays_of_an_array_are_delays():
    fit = linear_systems.identify_linear(*LOG, delay=np.asarray([1]))
    np.testing.assert_array_equal(fit.b, linear_systems.identify_linear(*LOG, delay=1).b)
